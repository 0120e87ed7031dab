"""A service with several providers behind it: each request of a batch goes to the provider of its model."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from openai.types import Batch

from backstay import settings
from backstay.app import Backstay
from backstay.cli.serve import _options, serve
from backstay.core.errors import UsageError
from backstay.core.pace import PersonsLimits
from backstay.llm.endpoint import Endpoint
from backstay.practice import Faults, Practice
from backstay.run.submission import ProviderTerms
from backstay.server.service import ServiceOptions
from tests.server.openai.openai_rig import Desk, line, opened, requests
from tests.server.rig import rigged

OPENAI, GROQ, ANTHROPIC = "sk-openai-0123456789", "gsk-groq-0123456789", "sk-ant-0123456789"
KEYS = {"openai": OPENAI, "groq": GROQ, "anthropic": ANTHROPIC}
MODELS = {"openai": "gpt-4o-mini", "groq": "groq:llama-3.3-70b-versatile", "anthropic": "claude-sonnet-4-5"}


class Several(NamedTuple):
    desk: Desk
    practices: dict[str, Practice]

    @property
    def groq(self) -> Endpoint:
        upstream = self.desk.rig.service.options.upstream
        assert upstream is not None
        return next(end for end in upstream.all if end.api == "groq")

    def calls(self) -> dict[str, int]:
        return {name: practice.counts.calls for name, practice in self.practices.items()}


@asynccontextmanager
async def several(url: str, data: Path, *names: str, **options: Any) -> AsyncIterator[Several]:
    """Each provider takes only its own key."""
    practices = {name: Practice(Faults(key=KEYS[name])) for name in names}
    async with _served(list(practices.values())) as urls:
        ends = [Endpoint(at, key_env=f"{name.upper()}_API_KEY", api=name) for name, at in zip(names, urls, strict=True)]
        first = Endpoint(
            ends[0].base_url, key_env=ends[0].key_env, api=ends[0].api, beside=tuple(end.dump() for end in ends[1:])
        )
        given = ServiceOptions(**{"upstream": first, "concurrency": 20, **options})
        async with rigged(url, data, Backstay(url), given) as rig:
            desk = Desk(rig, practices[names[0]], urls[0])
            try:
                yield Several(desk, practices)
            finally:
                await asyncio.gather(*(client.close() for client in desk.clients))


@asynccontextmanager
async def _served(practices: list[Practice]) -> AsyncIterator[list[str]]:
    if not practices:
        yield []
        return
    async with practices[0].serving() as url, _served(practices[1:]) as others:
        yield [url, *others]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(f"{name.upper()}_API_KEY", key)


def mixed(*models: str, **body: Any) -> bytes:
    given = {"max_tokens": 20, **body}
    return "\n".join(line(f"r{n}", model=model, **given) for n, model in enumerate(models)).encode()


async def test_each_request_of_a_batch_goes_to_the_provider_of_its_model(database_url: str, tmp_path: Path) -> None:
    async with several(database_url, tmp_path / "data", "openai", "groq", "anthropic") as made:
        done = await made.desk.done(mixed(*MODELS.values(), "openai:gpt-4o-mini"))
        assert done.status == "completed", done.errors
        assert made.calls() == {"openai": 2, "groq": 1, "anthropic": 1}
        found = {one["custom_id"]: one["response"]["body"] for one in await made.desk.lines(done.output_file_id)}
        assert {key: body["model"] for key, body in found.items()} == {
            "r0": "gpt-4o-mini",
            "r1": "llama-3.3-70b-versatile",
            "r2": "claude-sonnet-4-5",
            "r3": "gpt-4o-mini",
        }
        assert {body["object"] for body in found.values()} == {"chat.completion"}, "Anthropic's reply is translated"
        assert all(body["choices"][0]["message"]["content"] for body in found.values())


async def test_a_model_of_no_provider_here_fails_the_batch_by_its_line(sqlite_file_url: str, tmp_path: Path) -> None:
    async with several(sqlite_file_url, tmp_path / "data", "openai", "anthropic") as made:
        failed = await made.desk.done(mixed("gpt-4o-mini", "groq:llama", "claude-sonnet-4-5", "nobodys-model"))
        assert failed.status == "failed"
        assert failed.errors is not None
        assert failed.errors.data is not None
        found = {error.line: error for error in failed.errors.data}
        assert {number: (error.code, error.param) for number, error in found.items()} == {
            2: ("model_not_found", "body.model"),
            4: ("model_not_found", "body.model"),
        }
        assert "the provider groq; this service has only: anthropic, openai" in (found[2].message or "")
        assert "for example anthropic:nobodys-model" in (found[4].message or "")
        assert made.calls() == {"openai": 0, "anthropic": 0}, "nothing was sent"


async def test_what_cannot_be_translated_fails_the_batch_by_its_line(sqlite_file_url: str, tmp_path: Path) -> None:
    async with several(sqlite_file_url, tmp_path / "data", "openai", "anthropic") as made:
        endless = line("endless", model="claude-sonnet-4-5")  # it has no max_tokens, which Anthropic requires
        failed = await made.desk.done(b"\n".join([mixed("gpt-4o-mini"), endless.encode()]))
        assert failed.errors is not None
        assert failed.errors.data is not None
        [error] = failed.errors.data
        assert (error.line, error.code) == (2, "invalid_request")
        assert "max_tokens" in (error.message or "")


async def test_a_provider_that_refuses_its_key_does_not_stop_the_others(
    sqlite_file_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "not-this-one-000")
    async with several(sqlite_file_url, tmp_path / "data", "openai", "groq") as made:
        batch = await made.desk.create(mixed(*[MODELS["groq"], MODELS["openai"]] * 3))
        batch = await made.desk.until(batch, "in_progress")
        batch = await completed(made, batch, 3)
        async with asyncio.timeout(30):  # the others may be done before the refusal has arrived
            held = await made.desk.rig.service.store.providers.holds()
            while not held.providers:
                await asyncio.sleep(0.01)
                held = await made.desk.rig.service.store.providers.holds()
        assert [name.partition("/")[0] for name in held.providers] == [made.groq.provider]
        batch = await made.desk.client().batches.retrieve(batch.id)
        assert batch.status == "in_progress"
        assert made.practices["openai"].counts.calls == 3
        why = (await made.desk.rig.ada.get(f"/v1/batches/{batch.id}/why")).json
        assert [reason["code"] for reason in why["reasons"]] == ["provider_held"], "the job's own handler is openai's"
        assert made.groq.provider in why["reasons"][0]["text"]


async def completed(made: Several, batch: Batch, count: int) -> Batch:
    """Waits until so many requests of the batch have an answer."""
    async with asyncio.timeout(30):
        while batch.request_counts is None or batch.request_counts.completed < count:
            await asyncio.sleep(0.01)
            batch = await made.desk.client().batches.retrieve(batch.id)
    return batch


@pytest.mark.parametrize("fault", [{"outage_seconds": 600.0}, {"throttle": 1.0, "retry_after": 600.0}, {"fail": 1.0}])
async def test_a_provider_that_is_down_delays_nothing_of_the_others(
    sqlite_file_url: str, tmp_path: Path, fault: dict[str, float]
) -> None:
    """Although its requests are many and come first. Only its own breaker opens."""
    async with several(sqlite_file_url, tmp_path / "data", "openai", "groq") as made:
        made.practices["groq"].change(**fault)
        batch = await made.desk.create(mixed(*[MODELS["groq"]] * 60, *[MODELS["openai"]] * 10))
        batch = await completed(made, batch, 10)
        assert (batch.status, made.practices["groq"].bill.charged) == ("in_progress", 0)
        assert (await made.desk.done(mixed(MODELS["openai"]))).status == "completed"
        held = await made.desk.rig.service.store.providers.holds()
        assert {name.partition("/")[0] for name in held.providers} <= {made.groq.provider}


async def test_each_provider_has_its_own_pace(sqlite_file_url: str, tmp_path: Path) -> None:
    terms = {"groq": ProviderTerms(PersonsLimits(requests_per_minute=60))}
    async with several(sqlite_file_url, tmp_path / "data", "openai", "groq", terms=terms) as made:
        batch = await made.desk.create(mixed(*[MODELS["groq"], MODELS["openai"]] * 50))
        await completed(made, batch, 50)
        calls = made.calls()
        assert calls["openai"] == 50
        assert calls["groq"] < 50, "one a second, after those that a minute begins with"


async def test_each_provider_has_its_own_budget(sqlite_file_url: str, tmp_path: Path) -> None:
    """A full one ends the requests of its own provider only, and not before the others are done."""
    terms = {"groq": ProviderTerms(budget_micros=1), "openai": ProviderTerms(PersonsLimits(concurrency=5))}
    async with several(sqlite_file_url, tmp_path / "data", "openai", "groq", terms=terms) as made:
        made.practices["openai"].change(latency=0.1)
        done = await made.desk.done(mixed(*[MODELS["groq"]] * 5, *[MODELS["openai"]] * 40))
        assert made.calls() == {"openai": 40, "groq": 0}
        assert len(await made.desk.lines(done.output_file_id)) == 40
        errors = [one["error"]["code"] for one in await made.desk.lines(done.error_file_id)]
        assert errors == ["budget_exceeded"] * 5


async def test_a_budget_weighs_each_request_by_the_prices_of_its_provider(sqlite_file_url: str, tmp_path: Path) -> None:
    async with several(sqlite_file_url, tmp_path / "data", "openai", "anthropic", budget_micros=10_000_000) as made:
        done = await made.desk.done(mixed("gpt-4o-mini", "claude-sonnet-4-5"))
        assert done.status == "completed", done.errors
        failed = await made.desk.done(mixed("gpt-4o-mini", "anthropic:nobody-knows-its-price"))
        assert failed.errors is not None
        assert failed.errors.data is not None
        assert [(error.code, error.line) for error in failed.errors.data] == [("unbounded_cost", 2)]


async def test_a_provider_that_is_taken_away_fails_what_had_begun(sqlite_file_url: str, tmp_path: Path) -> None:
    async with several(sqlite_file_url, tmp_path / "data", "openai", "anthropic", works=False) as made:
        file = await made.desk.upload(mixed("gpt-4o-mini", "claude-sonnet-4-5"))
        order = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        store = made.desk.rig.service.store
        claim = store.batches.claim

        async def claims_nothing(lease_ms: int) -> None:
            return None

        store.batches.claim = claims_nothing  # type: ignore[method-assign]  # the service stops before it is read
        batch = (await made.desk.rig.ada.post("/v1/batches", json=order)).json
        await store.batches.begin(batch["id"], 2, "gpt-4o-mini")
        store.batches.claim = claim  # type: ignore[method-assign]
        await store.batches.release(batch["id"], 3_600_000)
    async with several(sqlite_file_url, tmp_path / "data", "openai", "groq", works=False) as made:
        await made.desk.rig.service.store.batches.release(batch["id"], 0)
        failed = await made.desk.until(await made.desk.client().batches.retrieve(batch["id"]))
        assert failed.status == "failed"
        assert failed.errors is not None
        assert failed.errors.data is not None
        assert [(error.code, error.line) for error in failed.errors.data] == [("model_not_found", 2)]


async def test_the_models_of_all_providers_are_listed_by_the_names_that_lead_to_them(
    sqlite_file_url: str, tmp_path: Path
) -> None:
    async with several(sqlite_file_url, tmp_path / "data", "openai", "anthropic") as made:
        found = [model.id async for model in made.desk.client().models.list()]
        assert "claude-practice" in found
        assert "openai:practice" in found, found
        assert (await made.desk.done(mixed("openai:practice", "claude-practice"))).status == "completed"


async def test_strict_knows_the_models_of_each_provider(sqlite_file_url: str, tmp_path: Path) -> None:
    async with several(sqlite_file_url, tmp_path / "data", "openai", "anthropic", strict_openai=True) as made:
        assert (await made.desk.done(mixed("anthropic:claude-practice"))).status == "completed"
        failed = await made.desk.done(mixed("claude-none-such"))
        assert failed.errors is not None
        assert failed.errors.data is not None
        assert [error.code for error in failed.errors.data] == ["model_not_found"]


async def test_anthropic_alone_answers_chat_requests(sqlite_file_url: str, tmp_path: Path) -> None:
    async with several(sqlite_file_url, tmp_path / "data", "anthropic") as made:
        done = await made.desk.done(requests(2, model="claude-sonnet-4-5", max_tokens=20))
        assert done.status == "completed", done.errors
        lines = await made.desk.lines(done.output_file_id)
        assert {one["response"]["body"]["object"] for one in lines} == {"chat.completion"}


async def test_one_provider_takes_every_model(sqlite_file_url: str, tmp_path: Path) -> None:
    async with opened(sqlite_file_url, tmp_path / "data") as desk:
        done = await desk.done(mixed("claude-sonnet-4-5", "groq:llama", "nobodys-model"))
        assert done.status == "completed"
        lines = await desk.lines(done.output_file_id)
        assert {one["response"]["body"]["model"] for one in lines} == {
            "claude-sonnet-4-5",
            "groq:llama",
            "nobodys-model",
        }


def _given(*options: str) -> ServiceOptions:
    ctx = serve.make_context("serve", list(options))
    return _options(ctx, ctx.params, settings.load(environ={}))


def test_the_command_takes_several_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    twice = ("--provider", "openai", "--provider", "anthropic", "--provider", "openai")
    upstream = _given(*twice, "--rpm", "60").upstream
    assert upstream is not None
    assert [(end.api, end.base_url, end.key_env) for end in upstream.all] == [
        ("anthropic", "http://127.0.0.1:9", "ANTHROPIC_API_KEY"),
        ("openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    ]
    assert _given("--provider", "groq", "--provider", "groq").upstream == _given("--provider", "groq").upstream


@pytest.mark.parametrize("option", [("--base-url", "http://127.0.0.1:9"), ("--api-key-env", "K"), ("--header", "A=B")])
def test_what_is_for_one_provider_is_refused_with_several(option: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match=f"{option[0]} works with one provider only, not with groq and openai"):
        _given("--provider", "openai", "--provider", "groq", *option)


def test_a_provider_without_its_key_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROQ_API_KEY")
    with pytest.raises(UsageError, match="GROQ_API_KEY is not set"):
        _given("--provider", "openai", "--provider", "groq")
