"""On what terms a service sends on: prices, a budget for each batch, a pace, headers, and whether it replays."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from backstay import settings
from backstay.cli.serve import _options, serve
from backstay.core.errors import UsageError
from backstay.core.pace import PersonsLimits
from backstay.llm.endpoint import Endpoint
from backstay.run.submission import ProviderTerms
from backstay.server.openai import survey
from backstay.server.openai.shapes import content
from backstay.server.service import Service, ServiceOptions
from backstay.store.files import StoredFile
from tests.server.openai.openai_rig import CHAT, Desk, line, opened, requests
from tests.server.pages.reader import reader

BOUNDED: Any = {"model": "gpt-4o-mini", "max_completion_tokens": 5}


async def _fails_of_unbounded_cost(desk: Desk, batch_id: str, at: int) -> None:
    failed = await desk.until(await desk.client().batches.retrieve(batch_id))
    assert failed.status == "failed"
    assert failed.errors is not None
    assert failed.errors.data is not None
    assert [(error.code, error.line, error.param) for error in failed.errors.data] == [("unbounded_cost", at, "body")]


async def test_a_line_without_a_worst_case_fails_a_batch_that_has_a_budget(database_url: str, tmp_path: Path) -> None:
    async with opened(database_url, tmp_path / "data", budget_micros=1_000_000) as desk:
        unknown = line("b", **{**BOUNDED, "model": "nobody-knows-it"})
        batch = await desk.create("\n".join([line("a", **BOUNDED), "", unknown]).encode())
        await _fails_of_unbounded_cost(desk, batch.id, 3)
        assert await desk.rig.service.store.job_views.page("ada") == [], "nothing was sent"
        assert (await desk.done(line("a", **BOUNDED).encode())).status == "completed"


async def test_a_budget_that_comes_after_a_batch_began_is_not_tried_for_ever(
    sqlite_file_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def torn(service: Service, file: StoredFile) -> AsyncIterator[bytes]:
        async for piece in content(service, file):
            yield piece[: piece.index(b"request-2100")]
            await asyncio.Event().wait()

    monkeypatch.setattr(survey, "content", torn)
    async with opened(sqlite_file_url, tmp_path / "data", works=False) as desk:
        batch = await desk.create(requests(2_200))
        while not await desk.rig.service.store.job_views.page("ada"):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
    monkeypatch.setattr(survey, "content", content)
    async with opened(sqlite_file_url, tmp_path / "data", works=False, budget_micros=1_000_000) as desk:
        await _fails_of_unbounded_cost(desk, batch.id, 1)
        [job] = await desk.rig.service.store.job_views.page("ada")
        await desk.rig.made.tick()
        assert (await desk.rig.service.store.job_views.get(job.id, "ada")).state == "cancelled", (
            "what was in is not sent"
        )


async def test_what_does_not_fit_under_the_budget_is_told_and_the_batch_ends(database_url: str, tmp_path: Path) -> None:
    terms: Any = {"price": (1_000_000, 1_000_000), "budget_micros": 1_000, "output_tokens_default": 300}
    async with opened(database_url, tmp_path / "data", **terms) as desk:  # a token costs a micro-dollar
        done = await desk.done(requests(50))
        [job] = await desk.rig.service.store.job_views.page("ada")
        assert job.spent_micros <= 1_000
        assert done.status == "completed"
        output, errors = await desk.lines(done.output_file_id), await desk.lines(done.error_file_id)
        assert output
        assert {one["error"]["code"] for one in errors} == {"budget_exceeded"}
        assert {one["custom_id"] for one in [*output, *errors]} == {f"request-{n}" for n in range(50)}
        assert done.request_counts is not None
        assert done.request_counts.completed + done.request_counts.failed == done.request_counts.total == 50
        page = await (await reader(desk.rig)).held(f"/jobs/{job.id}")
        assert "its budget was used up" in page.text


async def test_without_replays_every_request_makes_a_batch(sqlite_file_url: str, tmp_path: Path) -> None:
    async with opened(sqlite_file_url, tmp_path / "data", replays=False) as desk:
        file = await desk.upload(requests(1))
        order = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h"}
        again = {"x-stainless-retry-count": "1"}
        made = [await desk.rig.ada.post("/v1/batches", json=order, headers=again) for _ in range(2)]
        assert made[0].json["id"] != made[1].json["id"]
        assert "x-backstay-replayed" not in made[1].headers


def _given(*options: str) -> ServiceOptions:
    ctx = serve.make_context("serve", list(options))
    return _options(ctx, ctx.params, settings.load(environ={}))


def test_the_command_gives_the_service_its_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_KEY", "sk-1")
    url, price = "http://127.0.0.1:9/v1", (150_000, 600_000)
    terms = ("--rpm", "60", "--tpm", "9000", "--budget", "2.50", "--max-output-tokens", "400", "--price", "0.15/0.60")
    sent = ("--header", "X-Team=TEAM", "--timeout", "30s", "--api-key-env", "OTHER_KEY", "--concurrency", "7")
    assert _given("--base-url", url, *terms, *sent, "--no-replay", "--strict-openai") == ServiceOptions(
        open_here=True,
        strict_openai=True,
        upstream=Endpoint(url, key_env="OTHER_KEY", headers_env=(("X-Team", "TEAM"),), price=price, timeout_seconds=30),
        concurrency=7,
        terms={"openai": ProviderTerms(PersonsLimits(60, 9_000, concurrency=7))},
        budget_micros=2_500_000,
        output_tokens_default=400,
        replays=False,
    )
    assert _given() == ServiceOptions(open_here=True)
    assert _given("--host", "0.0.0.0", "--base-url", url) == ServiceOptions(upstream=Endpoint(url))


@pytest.mark.parametrize("option", ["--rpm", "--tpm", "--budget", "--max-output-tokens", "--timeout"])
def test_terms_without_a_service_to_send_to_are_refused(option: str) -> None:
    with pytest.raises(UsageError, match=f"{option} applies to batch requests, and no --base-url is given"):
        _given(option, "5")
