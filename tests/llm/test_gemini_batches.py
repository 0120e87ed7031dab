"""Gemini's batches: results in any order, lost creations, what is late or gone, and one bad request among good ones."""

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
import pytest

from backstay.client import Job
from backstay.core.errors import Transient
from backstay.core.models import CannotAsk, Failed, Submitted, Succeeded
from backstay.core.states import ItemState
from backstay.llm.endpoint import Lane
from backstay.llm.providers.gemini.batches import GeminiBatch, GeminiResultReader, read_batch, reference_of
from tests.databases import Site
from tests.llm.lane_rig import HALF, KEY, LaneRig, Provider, lane
from tests.llm.reply_rig import priced
from tests.practice.visitor import HeldClock

MODEL = "gemini-m"
URL = f"/v1beta/models/{MODEL}:generateContent"
CREATE = f"POST /models/{MODEL}:batchGenerateContent"
SHOW = "GET /batches/*"
LIST = "GET /batches"
START = "POST /upload/v1/files"
RESULTS = "GET /files/*:download"
CANCEL = "POST /batches/*:cancel"


def opened(site: Site, provider: Provider | None = None, **more: Any) -> AbstractAsyncContextManager[LaneRig]:
    return lane(site, Lane.BATCH, provider, price=HALF, api="gemini", **more)


def bodies(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"contents": [{"role": "user", "parts": [{"text": f"say {n}"}]}], **more} for n in range(count)]


def fault(name: str) -> str:
    return f"cachedContents/practice-{name}"


async def ask(rig: LaneRig, asked: list[dict[str, Any]], url: str = URL) -> Job:
    return await rig.request(asked, url)


async def send(rig: LaneRig, method: str, path: str, **more: Any) -> Any:
    session = aiohttp.ClientSession(headers={"x-goog-api-key": KEY})
    async with session, session.request(method, f"{rig.base_url}{path}", **more) as reply:
        return await reply.json(content_type=None)


async def batches(rig: LaneRig) -> list[dict[str, Any]]:
    """The newest first."""
    return list((await send(rig, "GET", "/batches?pageSize=100")).get("operations", []))


async def texts(rig: LaneRig, job: Job) -> list[Any]:
    found = []
    for result in await rig.results(job):
        body = (result.value or {}).get("body", {}) if isinstance(result.value, dict) else {}
        said = body["candidates"][0]["content"]["parts"][0]["text"] if body.get("candidates") else None
        found.append(said and said.rpartition(" say ")[2])
    return found


async def pass_time(rig: LaneRig, fact: Callable[[], Any], seconds: float = 5) -> Any:
    """Works until a fact is there, while time passes quickly."""

    async def reached() -> Any:
        await rig.site.advance(seconds)
        found = fact()
        return await found if asyncio.iscoroutine(found) else found

    async with rig.working(concurrency=20_000):
        return await rig.until(reached)


async def done(rig: LaneRig, job: Job, seconds: float = 5) -> Any:
    async def ended() -> Any:
        view = await job.show()
        return view if view.ended else None

    return await pass_time(rig, ended, seconds)


async def lost(rig: LaneRig, job: Job, count: int) -> None:
    """Works until the creation of the batch was not answered."""
    async with rig.working():
        await rig.until(lambda: rig.attempts(job, count - 1))
    assert {(await rig.item(job, n)).state for n in range(count)} == {ItemState.SUBMITTING}


async def reference(rig: LaneRig, job: Job, position: int = 0) -> str:
    task = (await rig.item(job, position)).provider_task_id
    assert task is not None
    return task.rpartition("/")[2]


async def test_every_request_gets_its_own_answer_and_pays_half(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        job = await ask(rig, bodies(60))
        view = await rig.done(job)
        assert await texts(rig, job) == [str(n) for n in range(60)]
        assert view.spent_micros == rig.provider.bill.total.cost_micros
        [batch] = await batches(rig)
        assert batch["metadata"]["batchStats"] == {"requestCount": "60", "successfulRequestCount": "60"}
        assert batch["metadata"]["displayName"].startswith("backstay-")
        kept = [file["source"] for file in (await send(rig, "GET", "/files?pageSize=100"))["files"]]
        assert kept == ["GENERATED"]  # the input was deleted


async def test_each_model_has_a_batch_of_its_own_whatever_the_version(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        urls = (URL, URL.replace("v1beta", "v1"), "/v1beta/models/gemini-n:generateContent")
        items = [{"custom_id": f"r{n}", "url": urls[n % 3], "body": body} for n, body in enumerate(bodies(6))]
        job = await rig.submit(items, rig.handler.name)
        assert (await rig.done(job)).succeeded == 6
        models = sorted(batch["metadata"]["model"] for batch in await batches(rig))
        assert models == ["models/gemini-m", "models/gemini-n"]


async def test_a_large_shard_is_uploaded_in_pieces(sqlite_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstay.llm.providers.gemini.batches.PIECE_BYTES", 300)
    async with opened(sqlite_site) as rig:
        job = await ask(rig, bodies(20))
        assert (await rig.done(job)).succeeded == 20
        assert rig.provider.asked[START] == 1
        assert await texts(rig, job) == [str(n) for n in range(20)]


async def test_one_bad_request_among_good_ones_fails_alone(sqlite_site: Site) -> None:
    asked = bodies(9)
    asked[2]["unknown"] = 1  # refused when it is run
    asked[4]["cachedContent"] = fault("503")  # an error each time
    asked[6]["cachedContent"] = fault("nonsense-htmlx1")  # at first a line of the results that is not JSON
    asked[8]["cachedContent"] = fault("duplicate")  # two lines
    async with opened(sqlite_site) as rig:
        job = await ask(rig, asked)
        view = await done(rig, job)
        states = await rig.states(job)
        assert [n for n, state in enumerate(states) if state != "succeeded"] == [2, 4]
        assert view.repeats == 1
        assert len(await rig.attempts(job, 2)) == 1
        assert len(await rig.attempts(job, 4)) > 1
        assert "Unknown name" in str((await rig.attempts(job, 2))[-1].message)


async def test_a_refused_upload_or_creation_leaves_nothing_and_is_tried_again(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        for name in (START, CREATE):
            rig.provider.refuse[name] = 429
            job = await ask(rig, bodies(3))
            await pass_time(rig, lambda job=job: rig.attempts(job, 0), 0.2)  # type: ignore[misc]
            assert rig.provider.asked[name] >= 1
            del rig.provider.refuse[name]
            view = await done(rig, job, 0.2)
            assert (view.succeeded, view.repeats) == (3, 0)
            rig.provider.asked.clear()
        assert len(await batches(rig)) == 2


async def test_too_many_waiting_tokens_make_smaller_batches_later(sqlite_site: Site) -> None:
    async with opened(sqlite_site, Provider(batch_enqueued_tokens=1)) as rig:
        job = await ask(rig, bodies(3))
        await pass_time(rig, lambda: rig.attempts(job, 0), 1)
        assert rig.provider.asked[CREATE] >= 1
        rig.provider.change(batch_enqueued_tokens=None)
        view = await done(rig, job)
        assert (view.succeeded, view.repeats, rig.provider.bill.charged) == (3, 0, 3)


@pytest.mark.slow
async def test_a_lost_creation_is_found_by_its_name_while_it_runs(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        rig.provider.clock = held = HeldClock()
        rig.provider.lose[CREATE] = 1
        job = await ask(rig, bodies(3))
        await lost(rig, job, 3)
        [batch] = await batches(rig)
        assert "done" not in batch

        async def processing() -> bool:
            return (await rig.item(job)).state is ItemState.PROCESSING

        await pass_time(rig, processing)
        held.wake(1_000)
        view = await done(rig, job)
        assert (view.succeeded, view.repeats, rig.provider.asked[CREATE]) == (3, 0, 1)


@pytest.mark.slow
async def test_a_new_process_finds_a_lost_batch_by_its_results(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        rig.provider.lose[CREATE] = 1
        job = await ask(rig, bodies(40))
        await lost(rig, job, 40)
        rig.restart()  # a new process knows nothing
        rig.provider.asked.clear()
        view = await done(rig, job)
        assert (view.succeeded, view.repeats, rig.provider.bill.bodies_paid_twice) == (40, 0, [])
        assert rig.provider.asked[CREATE] == 0
        assert rig.provider.asked[RESULTS] <= 2  # once to find it, once to read it


async def uncertain(rig: LaneRig, ref: str) -> str:
    with pytest.raises(Transient) as told:
        await rig.handler.ask(ref, rig.site.clock.now_ms() - 60_000)
    return str(told.value)


async def test_a_batch_of_ours_that_runs_may_have_the_request_and_others_may_not(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        rig.provider.clock = held = HeldClock()
        rig.provider.lose[CREATE] = 1
        job = await ask(rig, bodies(3))
        await lost(rig, job, 3)
        inline = {"requests": {"requests": [{"request": bodies(1)[0]}]}}
        batch = {"batch": {"displayName": "theirs", "inputConfig": inline}}
        theirs = await send(rig, "POST", f"/models/{MODEL}:batchGenerateContent", json=batch)
        rig.restart()
        ours = next(each for each in await batches(rig) if each["name"] != theirs["name"])
        told = await uncertain(rig, "0" * 40)
        assert ours["name"].removeprefix("batches/") in told
        held.wake(1_000)

        async def ended() -> bool:
            return all(each.get("done") for each in await batches(rig))

        await rig.until(ended)
        rig.restart()
        assert "may not list the newest ones yet" in await uncertain(rig, "0" * 40)
        await rig.site.advance(600)
        assert "may not list the newest ones yet" in await uncertain(rig, "0" * 40)
        await rig.site.advance(600)
        assert isinstance(await rig.handler.ask("0" * 40, 1), CannotAsk)


async def test_a_request_is_found_in_the_results_by_another_process(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        job = await ask(rig, bodies(2))
        assert (await rig.done(job)).succeeded == 2
        ref = await reference(rig, job)
        rig.restart()
        found = await rig.handler.ask(ref, 1)
        [batch] = await batches(rig)
        assert found == Submitted(f"{batch['name'].removeprefix('batches/')}/{ref}", rig.handler.account)


async def test_a_cancelled_job_cancels_its_batch(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        rig.provider.clock = held = HeldClock()
        job = await ask(rig, bodies(3))
        async with rig.working():
            await rig.in_state(job, "processing")
        await job.cancel()
        await pass_time(rig, lambda: rig.provider.asked[CANCEL])
        held.wake(1_000)
        assert rig.provider.bill.charged == 0


@pytest.mark.slow
async def test_a_batch_that_is_shown_late_is_asked_for_again(sqlite_site: Site) -> None:
    async with opened(sqlite_site) as rig:
        rig.provider.refuse[SHOW] = 404
        job = await ask(rig, bodies(2))
        await pass_time(rig, lambda: rig.provider.asked[SHOW] > 1, 0.5)
        del rig.provider.refuse[SHOW]
        view = await done(rig, job, 0.5)
        assert (view.succeeded, view.repeats, rig.provider.asked[CREATE]) == (2, 0, 1)


def batch_of(state: str, **more: Any) -> GeminiBatch:
    metadata = {"state": f"BATCH_STATE_{state}", **more.pop("metadata", {})}
    return read_batch({"name": "batches/b", "metadata": metadata, **more})


def missing(batch: GeminiBatch, whole: bool = False, told: int = 0) -> Any:
    answer = GeminiResultReader(batch, whole, told, priced).read_missing("f" * 40, 7_000).answer
    assert isinstance(answer, Failed)
    return answer.failure


@pytest.mark.parametrize(
    ("batch", "told", "kind"),
    [
        (batch_of("EXPIRED", done=True), 0, "infrastructure"),
        (batch_of("EXPIRED", metadata={"batchStats": {"successfulRequestCount": "3"}}), 0, "unknown"),
        (batch_of("EXPIRED", metadata={"batchStats": {"successfulRequestCount": "3"}}), 3, "infrastructure"),
        (batch_of("CANCELLED", error={"code": 1}), 0, "infrastructure"),
        (batch_of("CANCELLED", metadata={"batchStats": {"failedRequestCount": "1"}}), 0, "unknown"),
        (batch_of("FAILED", error={"code": 3, "message": "odd"}), 0, "infrastructure"),
        (batch_of("FAILED", error={"code": 8, "message": "wait"}), 0, "throttled"),
        (batch_of("SUCCEEDED", done=True), 0, "unknown"),
    ],
)
def test_what_a_request_without_a_line_means(batch: GeminiBatch, told: int, kind: str) -> None:
    assert batch.ended
    assert missing(batch, told > 0, told).kind == kind


def test_waiting_tokens_and_cancelled_lines_are_recognised() -> None:
    full = batch_of("FAILED", error={"code": 8, "message": "wait"})
    assert GeminiResultReader(full, False, 0, priced).too_many_tokens
    assert missing(full).retry_after_ms == 7_000
    cancelled = GeminiResultReader(batch_of("CANCELLED"), True, 1, priced)
    line = cancelled.read_line('{"key":"k","error":{"code":1,"message":"no"}}')
    assert line is not None
    assert line.cancelled
    assert cancelled.read_line('{"key":"k"}') is None


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ({"code": 3, "message": "m"}, "business", 400),
        ({"code": 8, "message": "m"}, "throttled", 429),
        ({"code": 13}, "infrastructure", 500),
        ({"code": 503, "message": "m"}, "infrastructure", 503),
        ({"status": "DEADLINE_EXCEEDED"}, "infrastructure", 504),
        ("odd", "infrastructure", 500),
    ],
)
def test_an_error_of_a_line_is_one_of_grpc_or_of_http(error: Any, kind: str, status: int) -> None:
    reader = GeminiResultReader(batch_of("SUCCEEDED"), True, 1, priced)
    line = reader.read_line(json.dumps({"key": "k", "error": error}))
    assert line is not None
    assert isinstance(line.answer, Failed)
    assert (line.answer.failure.kind, line.answer.failure.provider_status) == (kind, status)
    assert line.answer.task_ended


def test_an_answer_of_a_line_is_kept_byte_for_byte() -> None:
    body = '{"candidates": [ {"finishReason":"STOP"}],  "usageMetadata": {"promptTokenCount": 1}}'
    line = GeminiResultReader(batch_of("SUCCEEDED"), True, 1, priced).read_line(f'{{"key":"k","response":{body}}}')
    assert line is not None
    assert isinstance(line.answer, Succeeded)
    assert body in str(line.answer.result)


def test_a_batch_is_read_with_either_prefix_and_with_its_output_at_either_place() -> None:
    out = {"responsesFile": "files/batch-1"}
    for said in (
        {"metadata": {"state": "JOB_STATE_SUCCEEDED", "output": out}},
        {"metadata": {"state": "BATCH_STATE_SUCCEEDED"}, "response": out, "done": True},
        {"done": True, "response": out},
    ):
        found = read_batch({"name": "batches/b", **said})
        assert (found.id, found.ended, found.output_file) == ("b", True, "files/batch-1")
    odd = read_batch({"name": "b", "done": True, "response": {"responsesFile": "files/../../x"}, "metadata": 7})
    assert odd.output_file is None
    for wrong in ({}, {"name": "b"}, {"name": 7, "done": True}, {"name": "b", "metadata": {"state": 3}}):
        with pytest.raises(Transient):
            read_batch(wrong)


def test_a_reference_is_found_in_any_order_of_members() -> None:
    ref = "a" * 40
    for text in (f'{{"key":"{ref}","response":{{}}}}', f'{{"response": {{}}, "key": "{ref}"}}'):
        assert reference_of(text.encode()) == ref
    for text in ('{"key": "theirs"}', '{"metadata": {}}', "nonsense", "[]"):
        assert reference_of(text.encode()) is None
