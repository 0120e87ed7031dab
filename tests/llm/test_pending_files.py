"""Where a file has to be processed before a batch can be made of it, it is waited for, and uploaded once."""

import asyncio
import io
import json

import aiohttp
import pytest
from aiohttp import web

from backstay.client import Job
from backstay.clock import Clock, Tasks
from backstay.core.states import ItemState
from backstay.llm.batch import CREATE_SECONDS_MAX, RUN_SECONDS, BatchHandler
from backstay.llm.endpoint import Lane
from backstay.llm.providers.openai.batch_api import BatchLookup, FilesAndBatches
from tests.databases import Site
from tests.llm.lane_rig import CHAT, MINUTES_10, LaneRig, Provider, chats, lane
from tests.llm.test_batch_lookup import BehindClock

LOOK = "GET /files/*"


class Vague(Provider):
    """Says of a file that is pending that it is uploaded, as others say of one that is ready."""

    async def _pass(self, request: web.Request, session: aiohttp.ClientSession, inside: str) -> web.StreamResponse:
        reply = await super()._pass(request, session, inside)
        if isinstance(reply, web.Response) and isinstance(reply.body, bytes):
            reply.body = reply.body.replace(b'"status": "pending"', b'"status": "uploaded"').replace(
                b'"status":"pending"', b'"status":"uploaded"'
            )
        return reply


class Stop:
    """Holds the first look at a file until a test lets it go on."""

    def __init__(self, rig: LaneRig) -> None:
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        rig.provider.before[LOOK] = self._wait

    async def _wait(self) -> None:
        self.reached.set()
        await self.go_on.wait()


async def ended(rig: LaneRig, job: Job, position: int = 0) -> bool:
    """Whether the job has; until then the time moves on to the next try of an item."""
    item = await rig.item(job, position)
    if item.state is ItemState.QUEUED and item.due_at is not None:
        await rig.site.advance(max(item.due_at - rig.site.clock.now_ms(), 0) / 1000)
    return bool((await job.show()).ended)


async def check_one_batch(rig: LaneRig, requests: int, uploads: int = 1) -> None:
    asked = rig.provider.asked
    assert (asked["POST /files"], asked["POST /batches"], len(await rig.batches())) == (uploads, 1, 1)
    assert (rig.provider.bill.charged, rig.provider.bill.bodies_paid_twice) == (requests, [])


@pytest.mark.slow
async def test_a_batch_is_made_when_its_file_is_processed(leaping_site: Site) -> None:
    async with lane(leaping_site, Lane.BATCH, Provider(file_seconds=0.7)) as rig:
        job = await rig.request(chats(20))
        assert (await rig.done(job)).succeeded == 20
        assert {len(await rig.attempts(job, n)) for n in range(20)} == {1}
        assert rig.provider.asked[LOOK] >= 1
        await check_one_batch(rig, 20)


async def test_a_file_that_is_processed_at_once_is_not_asked_about(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        assert (await rig.done(await rig.request(chats(3)))).succeeded == 3
        assert rig.provider.asked[LOOK] == 0


async def test_a_look_that_fails_is_made_again(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, Provider(file_seconds=1.0)) as rig:
        rig.provider.drop[LOOK] = 1
        job = await rig.request(chats(3))
        assert (await rig.done(job)).succeeded == 3
        assert len(await rig.attempts(job)) == 1
        await check_one_batch(rig, 3)


async def test_a_file_that_cannot_be_processed_fails_its_requests_with_the_reason_and_no_others(
    sqlite_site: Site,
) -> None:
    async with lane(sqlite_site, Lane.BATCH, Provider(file_seconds=0.2)) as rig:
        job = await rig.request([*chats(2), *chats(2, model="practice-file-error")])
        async with rig.working():
            [failed] = await rig.until(lambda: rig.attempts(job, 3))
            await rig.in_state(job, "succeeded", 0)
            await rig.in_state(job, "succeeded", 1)
        assert (failed.outcome, failed.error_code) == ("retry", "GW_5XX")
        assert "could not process the file" in failed.message
        assert "asked not to process this file" in failed.message
        assert (rig.provider.asked["POST /batches"], rig.provider.bill.charged) == (1, 2)


async def test_a_new_process_waits_on_for_the_file_of_the_one_that_was_killed(leaping_site: Site) -> None:
    async with lane(leaping_site, Lane.BATCH, Provider(file_seconds=0.5)) as rig:
        stop = Stop(rig)
        job = await rig.request(chats(30))
        engine = rig.engine()
        await engine.start()
        await engine.claim_once(30)
        await stop.reached.wait()
        await engine.stop(0)
        assert rig.provider.asked["POST /batches"] == 0
        rig.provider.before.clear()
        rig.restart()
        stop.go_on.set()
        await rig.site.advance(MINUTES_10)
        view = await rig.done(job)
        assert (view.succeeded, view.repeats) == (30, 0)
        await check_one_batch(rig, 30)


@pytest.mark.slow
async def test_a_file_left_behind_that_is_not_whole_is_uploaded_again(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, Provider(file_seconds=0.5)) as rig:
        stop = Stop(rig)
        job = await rig.request(chats(4))
        engine = rig.engine()
        await engine.start()
        await engine.claim_once(4)
        await stop.reached.wait()
        await engine.stop(0)
        stop.go_on.set()
        rig.provider.before.clear()
        [file] = (await rig.ask("GET", "/files"))["data"]
        half = (await rig.content(file["id"])).splitlines(keepends=True)[:2]
        await rig.ask("DELETE", f"/files/{file['id']}")
        await rig.wire.upload("/v1/files", {"purpose": "batch"}, file["filename"], io.BytesIO("".join(half).encode()))
        rig.restart()
        await rig.site.advance(MINUTES_10)
        assert (await rig.done(job)).succeeded == 4
        await check_one_batch(rig, 4, uploads=3)


class Ahead(Clock):
    """A provider's time, which the test can move."""

    seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.seconds


async def test_claims_that_grow_too_old_meanwhile_come_back_to_the_same_file_at_no_cost(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, Provider(file_seconds=3_600)) as rig:
        rig.provider.clock = provider_clock = Ahead()
        job = await rig.request(chats(5))
        async with rig.working():
            await rig.until(lambda: rig.provider.asked[LOOK])
            await rig.site.advance(RUN_SECONDS - CREATE_SECONDS_MAX + 10)
            [first] = await rig.until(lambda: rig.attempts(job))
            provider_clock.seconds = 3_600
            await rig.until(lambda: ended(rig, job))
        assert "still processing the file" in first.message
        assert ((await job.show()).succeeded, (await rig.item(job)).attempt_count) == (5, 1)
        await check_one_batch(rig, 5)


async def test_a_file_that_is_deleted_meanwhile_is_uploaded_again(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, Provider(file_seconds=0.5)) as rig:

        async def delete() -> None:
            rig.provider.before.clear()
            [file] = (await rig.ask("GET", "/files"))["data"]
            await rig.ask("DELETE", f"/files/{file['id']}")

        rig.provider.before[LOOK] = delete
        job = await rig.request(chats(5))
        async with rig.working():
            await rig.until(lambda: ended(rig, job))
        assert "no longer has the file" in ((await rig.attempts(job))[0].message or "")
        assert (await job.show()).succeeded == 5
        await check_one_batch(rig, 5, uploads=2)


async def test_of_the_files_at_the_provider_only_those_are_unused_that_certainly_no_batch_was_made_of(
    sqlite_site: Site,
) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:

        async def upload(digest: str) -> str:
            file = io.BytesIO(b'{"custom_id":"x"}\n')
            reply = await rig.wire.upload("/v1/files", {"purpose": "batch"}, f"backstay-{digest}.jsonl", file)
            return str(json.loads(reply.text)["id"])

        rig.provider.clock = BehindClock()
        await upload("aa")  # so old that its batch, if any, is not listed
        rig.provider.clock = Clock()
        used, unused = await upload("bb"), await upload("cc")
        asked = {"input_file_id": used, "endpoint": CHAT, "completion_window": "24h"}
        await rig.wire.post("/v1/batches", json.dumps(asked), 10)
        assert isinstance(rig.handler, BatchHandler)
        lookup = BatchLookup(FilesAndBatches(rig.handler.channel), rig.site.clock, Tasks())
        lookup.keep_unused("bb", used)
        assert await lookup.find("0" * 40, rig.site.clock.now_ms() // 1000) is None
        assert [lookup.find_unused(digest) for digest in ("aa", "bb", "cc")] == [None, None, unused]


@pytest.mark.slow
async def test_a_job_that_is_cancelled_meanwhile_makes_no_batch(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, Provider(file_seconds=0.2)) as rig:
        stop = Stop(rig)
        job = await rig.request(chats(3))
        async with rig.working() as worker:
            await stop.reached.wait()
            await job.cancel()
            await rig.until(lambda: all(flight.context.stopped for flight in worker.engine.flights.all()))
            stop.go_on.set()
            assert (await job.wait(timeout_seconds=30)).cancelled == 3
            later = await rig.request(chats(1, user="later"))
            assert (await later.wait(timeout_seconds=30)).succeeded == 1
        assert rig.provider.asked["POST /batches"] == 1


async def test_a_refusal_of_a_file_that_was_not_ready_is_not_final(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, Vague(file_seconds=0.5)) as rig:
        job = await rig.request(chats(2))

        async def processed() -> bool:
            return bool((await rig.ask("GET", "/files"))["data"][0]["status"] == "processed")

        async with rig.working():
            await rig.until(lambda: rig.attempts(job))
            await rig.until(processed)
            await rig.site.advance(60)
            assert (await job.wait(timeout_seconds=30)).succeeded == 2
        first, *_ = await rig.attempts(job)
        assert "is in 'pending' state" in (first.message or "")
        assert (rig.provider.asked["POST /files"], rig.provider.asked["POST /batches"]) == (1, 2)


async def test_a_refusal_of_a_file_that_was_ready_is_final(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        rig.provider.refuse["POST /batches"] = 400
        assert (await rig.done(await rig.request(chats(2)))).failed == 2
        assert (rig.provider.asked["POST /batches"], rig.provider.asked[LOOK]) == (1, 0)
