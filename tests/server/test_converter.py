"""The converter, end to end: upload, convert at a gateway, read the result, and every way in which it can fail."""

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from backstay.practice import Practice
from tests.server.converting import convert, converting, converting_as_set, item, settle, upload
from tests.server.pdfs import pdf
from tests.server.rig import Rig


@pytest.fixture
async def both(sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[tuple[Rig, Practice]]:
    async with converting(sqlite_file_url, tmp_path / "data") as made:
        yield made


async def test_a_pdf_is_uploaded_converted_and_read(database_url: str, tmp_path: Path) -> None:
    async with converting(database_url, tmp_path / "data") as (rig, provider):
        content = pdf("a text", bytes_min=3 << 20)
        job = await convert(rig, content, pdf("another"))
        result = await rig.ada.get(f"/api/items/{job}-0/result")
        assert result.status == 200, result
        assert result.headers["content-type"] == "application/xml"
        assert result.headers["content-disposition"] == "attachment; filename*=UTF-8''paper.xml"
        assert f'sha256="{hashlib.sha256(content).hexdigest()}"' in result.body.decode()
        assert '<text value="a text"/>' in result.body.decode()
        assert (await rig.ada.get(f"/api/jobs/{job}")).json["state"] == "completed"
        assert (provider.bill.charged, provider.bill.paid_twice) == (2, [])
        said = (await rig.ada.get(f"/api/items/{job}-0?include=result")).json["result"]
        assert (said["filename"], said["bytes"]) == ("paper.xml", len(result.body))
        assert (await rig.ada.get(f"/api/uploads/{said['file']}/content")).body == result.body


async def test_another_owner_sees_neither_source_nor_result(both: tuple[Rig, Practice]) -> None:
    rig, _ = both
    file = (await upload(rig.ada, pdf())).json["id"]
    job = await convert(rig, pdf())
    never = "file-" + "0" * 24
    for path in (f"/api/uploads/{file}", f"/api/uploads/{file}/content", f"/api/items/{job}-0/result"):
        assert (await rig.ada.get(path)).status == 200
        assert (await rig.bob.get(path)).status == 404
    hidden, unknown = await rig.bob.get(f"/api/uploads/{file}"), await rig.bob.get(f"/api/uploads/{never}")
    assert hidden.body.replace(file.encode(), b"") == unknown.body.replace(never.encode(), b"")
    assert (await rig.bob.delete(f"/api/uploads/{file}")).status == 404
    assert (await rig.bob.get("/api/uploads")).json["data"] == []
    taken = await rig.bob.post("/api/jobs", json={"handler": "gateway", "items": [{"file": file}]})
    await rig.work()
    stolen = (await rig.bob.get(f"/api/items/{taken.json['id']}-0")).json
    assert (stolen["state"], stolen["error_code"]) == ("failed", "EXPIRED")


@pytest.mark.parametrize(
    ("meets", "code", "attempts", "state"),
    [
        ("400", "GW_4XX", 1, "failed"),
        ("404", "GW_4XX", 1, "failed"),
        ("410", "EXPIRED", 1, "failed"),
        ("413", "TOO_LARGE", 1, "failed"),
        ("422", "GW_4XX", 1, "failed"),
        ("500", "GW_5XX", 3, "failed"),
        ("502", "GW_5XX", 3, "failed"),
        ("503x2", None, 3, "succeeded"),
        ("504", "GW_TIMEOUT", 3, "failed"),
        ("408x1", None, 2, "succeeded"),
        pytest.param("hang", "GW_TIMEOUT", 3, "failed", marks=pytest.mark.slow),
        ("hangx1", None, 2, "succeeded"),
        ("cut", "GW_5XX", 3, "failed"),
        ("cut-half", "GW_5XX", 3, "failed"),
        ("cut-halfx1", None, 2, "succeeded"),
        ("nonsense-html", "GW_4XX", 1, "failed"),
        ("nonsense-type", "GW_4XX", 1, "failed"),
        ("nonsense-truncated", "GW_4XX", 1, "failed"),
        ("nonsense-bomb", "GW_4XX", 1, "failed"),
        ("nonsense-empty", "GW_5XX", 3, "failed"),
    ],
)
async def test_what_the_gateway_does_becomes_one_of_the_ten_codes(
    both: tuple[Rig, Practice], meets: str, code: str | None, attempts: int, state: str
) -> None:
    rig, _ = both
    job = await convert(rig, pdf(meets=meets))
    await settle(rig, job)
    shown = await item(rig, job)
    assert (shown["state"], shown["error_code"], shown["attempts"]) == (state, code, attempts), shown
    assert "127.0.0.1" not in json.dumps(shown)
    names = [name async for name in rig.service.artifacts.names(f"results/{job}")]
    assert len(names) == (state == "succeeded"), "what was not whole is not there"
    result = await rig.ada.get(f"/api/items/{job}-0/result")
    assert result.status == (200 if state == "succeeded" else 409)
    assert code is None or result.json["code"] == code


async def test_time_limit_and_retries_of_the_gateway_come_from_the_environment(
    sqlite_file_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"GATEWAY_TIMEOUT_MS": 300, "RETRY_MAX_ATTEMPTS": 2, "RETRY_BASE_DELAY_MS": 0, "RETRY_JITTER_MAX_MS": 0}
    for name, value in given.items():
        monkeypatch.setenv(f"BACKSTAY_{name}", str(value))
    async with converting_as_set(sqlite_file_url, tmp_path / "data") as (rig, _):
        async with asyncio.timeout(20):
            job = await convert(rig, pdf(meets="hang"))
            await settle(rig, job)
        shown = await item(rig, job)
        assert (shown["state"], shown["error_code"], shown["attempts"]) == ("failed", "GW_TIMEOUT", 2)


async def test_the_gateway_is_called_as_often_as_a_budget_allows(sqlite_file_url: str, tmp_path: Path) -> None:
    async with converting(sqlite_file_url, tmp_path / "data", gateway_cost=0.01) as (rig, provider):
        files = [(await upload(rig.ada, pdf(str(number)))).json["id"] for number in range(4)]
        job = await rig.submit("gateway", [{"file": file} for file in files], budget_micros=25_000)
        await rig.work()
        shown = (await rig.ada.get(f"/api/jobs/{job}")).json
        assert (shown["succeeded"], shown["spent_micros"], provider.bill.charged) == (2, 20_000, 2)
        assert shown["short"]


async def test_the_gateway_is_called_as_often_as_its_rate_allows(sqlite_file_url: str, tmp_path: Path) -> None:
    async with converting(sqlite_file_url, tmp_path / "data", gateway_rate="1/h") as (rig, provider):
        job = await convert(rig, *(pdf(str(number)) for number in range(3)))
        assert ((await rig.ada.get(f"/api/jobs/{job}")).json["succeeded"], provider.bill.charged) == (1, 1)


async def test_the_results_of_a_deleted_job_are_gone_from_the_list_of_files(database_url: str, tmp_path: Path) -> None:
    async with converting(database_url, tmp_path / "data") as (rig, _):
        job, kept = await convert(rig, pdf("a"), pdf("b")), await convert(rig, pdf("c"))
        sources = {file["id"] for file in (await rig.ada.get("/api/uploads")).json["data"]}
        made = [(await rig.ada.get(f"/api/items/{one}-0?include=result")).json["result"]["file"] for one in (job, kept)]
        assert (await rig.ada.delete(f"/api/jobs/{job}")).status == 204
        left = {file["id"] for file in (await rig.ada.get("/v1/files")).json["data"]}
        assert len(left) == len(sources) - 2
        assert made[0] not in left
        assert made[1] in left
        assert [name async for name in rig.service.artifacts.names(f"results/{job}")] == []
        assert (await rig.ada.get(f"/api/uploads/{made[0]}/content")).status in (404, 410)


async def test_a_gateway_that_is_not_there_is_gw_5xx_and_tried_again(
    sqlite_file_url: str, tmp_path: Path, unused_tcp_port: int
) -> None:
    gone = f"http://127.0.0.1:{unused_tcp_port}/convert"
    async with converting(sqlite_file_url, tmp_path / "data", gateway_url=gone) as (rig, _):
        job = await convert(rig, pdf())
        await settle(rig, job)
        shown = await item(rig, job)
        assert (shown["state"], shown["error_code"], shown["attempts"]) == ("failed", "GW_5XX", 3)
        assert "127.0.0.1" not in json.dumps(shown)


@pytest.mark.slow
async def test_while_the_gateway_fails_nothing_is_sent_and_afterwards_it_goes_on(
    sqlite_file_url: str, tmp_path: Path
) -> None:
    quick = {"circuit_window": 4, "circuit_cooldown_ms": 300, "retry_max_attempts": 1_000}
    async with converting(sqlite_file_url, tmp_path / "data", **quick) as (rig, provider):
        provider.change(fail=1.0)
        job = await convert(rig, *[pdf(str(number)) for number in range(30)])
        states = {one["provider"]: one["state"] for one in (await rig.ada.get("/api/providers")).json["data"]}
        assert states["gateway"] in ("open", "half_open")
        assert (await rig.ada.get(f"/api/jobs/{job}")).json["failed"] == 0, "they wait, and none is lost"
        provider.change(fail=0.0)
        await settle(rig, job)
        assert (await rig.ada.get(f"/api/jobs/{job}")).json["succeeded"] == 30
        assert provider.bill.charged == 30


async def test_a_worker_without_the_service_converts_as_well(sqlite_file_url: str, tmp_path: Path) -> None:
    async with converting(sqlite_file_url, tmp_path / "data") as (rig, _):
        file = (await upload(rig.ada, pdf("elsewhere"))).json["id"]
        job = await rig.submit("gateway", [{"file": file}])
        settings = {"DATA": str(tmp_path / "data"), "GATEWAY_URL": rig.made.settings.gateway_url}
        environment = {**os.environ, **{f"BACKSTAY_{name}": str(value) for name, value in settings.items()}}
        command = [sys.executable, "-m", "backstay", "tick", "--chain", "--db", sqlite_file_url]
        ticking = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.DEVNULL)
        assert await ticking.wait() == 0
        assert '<text value="elsewhere"/>' in (await rig.ada.get(f"/api/items/{job}-0/result")).body.decode()
        assert "bytes came back" in (await rig.ada.get(f"/api/items/{job}-0/log")).body.decode()


async def test_results_go_to_the_folder_that_was_named_for_them(sqlite_file_url: str, tmp_path: Path) -> None:
    places = {"uploads_dir": str(tmp_path / "in"), "results_dir": str(tmp_path / "out")}
    async with converting(sqlite_file_url, tmp_path / "data", **places) as (rig, _):
        job = await convert(rig, pdf("x"))
        assert (await rig.ada.get(f"/api/items/{job}-0/result")).status == 200
        assert [path.stat().st_size for path in (tmp_path / "in").rglob("*") if path.is_file()] == [len(pdf("x"))]
        made = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
        assert [path.read_bytes().startswith(b"<?xml") for path in made] == [True]


async def test_a_result_that_is_too_large_is_not_kept(sqlite_file_url: str, tmp_path: Path) -> None:
    async with converting(sqlite_file_url, tmp_path / "data", upload_max_bytes=120) as (rig, _):
        job = await convert(rig, pdf("x"))
        await settle(rig, job)
        assert (await item(rig, job))["error_code"] == "TOO_LARGE"
        assert [name async for name in rig.service.artifacts.names("results")] == []


async def test_the_refusal_of_the_gateway_is_a_held_provider_and_no_lost_item(both: tuple[Rig, Practice]) -> None:
    rig, _ = both
    job = await convert(rig, pdf(meets="401"))
    shown = await item(rig, job)
    assert (shown["state"], shown["attempts"]) == ("queued", 0)
    held = {one["provider"]: one["state"] for one in (await rig.ada.get("/api/providers")).json["data"]}
    assert held["gateway"] == "held"


async def test_before_its_end_an_item_has_no_result(both: tuple[Rig, Practice]) -> None:
    rig, _ = both
    file = (await upload(rig.ada, pdf())).json["id"]
    job = await rig.submit("gateway", [{"file": file}])
    answer = await rig.ada.get(f"/api/items/{job}-0/result")
    assert (answer.status, answer.json["code"]) == (409, "NOT_READY")
    assert answer.headers["retry-after"] == "1"


async def test_the_result_of_another_handler_is_its_json(both: tuple[Rig, Practice]) -> None:
    rig, _ = both
    job = await rig.submit("echo", [{"n": 7}])
    await rig.work()
    answer = await rig.ada.get(f"/api/items/{job}-0/result")
    assert (answer.status, answer.json) == (200, {"n": 7})


@pytest.mark.slow
async def test_results_and_sources_expire(database_url: str, tmp_path: Path) -> None:
    days = 2 / 86_400
    async with converting(database_url, tmp_path / "data", file_days=days) as (rig, _):
        job = await convert(rig, pdf())
        made = (await rig.ada.get(f"/api/items/{job}-0?include=result")).json["result"]["file"]
        while (answer := await rig.ada.get(f"/api/items/{job}-0/result")).status == 200:
            pass
        assert (answer.status, answer.json["code"]) == (410, "EXPIRED")
        assert (await rig.ada.get(f"/api/uploads/{made}")).status == 410
        assert (await rig.bob.get(f"/api/uploads/{made}")).status == 404, "that it was there is its owner's to know"


@pytest.mark.parametrize("how", ["item", "job", "dead letters"])
async def test_a_failed_item_is_retried_only_while_its_source_is_there(
    database_url: str, tmp_path: Path, how: str
) -> None:
    paths = {"item": "/api/items/{}-0/retry", "job": "/api/jobs/{}/retry", "dead letters": "/api/dead-letters/replay"}
    async with converting(database_url, tmp_path / "data") as (rig, _):
        first = await convert(rig, pdf("one", meets="400x1"))
        retried = await rig.ada.post(paths[how].format(first), **({"json": {}} if how == "dead letters" else {}))
        assert retried.status == 200, retried
        await rig.work()
        assert (await item(rig, first))["state"] == "succeeded"

        second = await convert(rig, pdf("two", meets="400x1"))
        source = (await rig.ada.get(f"/api/items/{second}-0?include=payload")).json["payload"]["file"]
        assert (await rig.ada.delete(f"/api/uploads/{source}")).status == 204
        refused = await rig.ada.post(paths[how].format(second), **({"json": {}} if how == "dead letters" else {}))
        if how == "dead letters":
            assert refused.json["items"] == 0
        else:
            assert refused.status == 409, refused
        assert (await item(rig, second))["state"] == "failed"


async def test_of_many_failed_items_those_with_their_sources_are_retried(both: tuple[Rig, Practice]) -> None:
    rig, _ = both
    job = await convert(rig, *[pdf(str(number), meets="400x1") for number in range(4)])
    for position in (0, 2):
        source = (await rig.ada.get(f"/api/items/{job}-{position}?include=payload")).json["payload"]["file"]
        await rig.ada.delete(f"/api/uploads/{source}")
    assert (await rig.ada.post(f"/api/jobs/{job}/retry")).status == 200
    await rig.work()
    states = [(await item(rig, job, position))["state"] for position in range(4)]
    assert states == ["failed", "succeeded", "failed", "succeeded"]


async def test_a_source_that_goes_while_its_item_waits_is_expired(both: tuple[Rig, Practice]) -> None:
    rig, provider = both
    file = (await upload(rig.ada, pdf())).json["id"]
    job = await rig.submit("gateway", [{"file": file}])
    await rig.ada.delete(f"/api/uploads/{file}")
    await rig.work()
    shown = await item(rig, job)
    assert (shown["state"], shown["error_code"]) == ("failed", "EXPIRED")
    assert provider.counts.requests == 0


async def test_what_was_uploaded_unchecked_is_checked_before_it_is_sent(both: tuple[Rig, Practice]) -> None:
    rig, provider = both
    file = (await upload(rig.ada, b"GIF89a", kind="any")).json["id"]
    job = await rig.submit("gateway", [{"file": file}])
    await rig.work()
    shown = await item(rig, job)
    assert (shown["error_code"], shown["attempts"]) == ("NOT_PDF", 1)
    assert provider.counts.requests == 0


@pytest.mark.parametrize(
    "payload", [{}, {"file": 7}, {"file": "x"}, {"file": "file-" + "0" * 24, "url": "http://x"}, "file-1", None]
)
async def test_an_item_that_names_no_file_is_refused_at_submit(both: tuple[Rig, Practice], payload: Any) -> None:
    rig, _ = both
    answer = await rig.ada.post("/api/jobs", json={"handler": "gateway", "items": [payload]})
    assert answer.status in (400, 422), answer
