"""A batch whose creation was not heard of is found again, and never paid for twice."""

import json
from typing import Any

from backstay.client import Job
from backstay.clock import Clock
from backstay.core.events import Trouble
from backstay.core.states import ItemState
from backstay.llm.endpoint import Lane
from tests.databases import Site
from tests.llm.lane_rig import CHAT, MINUTES_10, LaneRig, chats, lane


async def test_a_batch_whose_creation_was_never_answered_is_found_and_not_paid_again(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        rig.provider.lose["POST /batches"] = 1
        job = await rig.request(chats(60))
        async with rig.working():
            await rig.until(lambda: rig.provider.asked["POST /batches"] == 1)

            async def unknown() -> bool:
                return (await rig.item(job, 59)).lease_expires_at is not None and bool(await rig.attempts(job, 59))

            await rig.until(unknown)
        assert {(await rig.item(job, n)).state for n in range(60)} == {ItemState.SUBMITTING}
        await rig.site.advance(MINUTES_10)
        rig.provider.asked.clear()
        view = await rig.done(job)
        assert (view.succeeded, view.repeats, len(await rig.batches())) == (60, 0, 1)
        assert (rig.provider.bill.charged, rig.provider.bill.bodies_paid_twice) == (60, [])
        assert rig.provider.asked["GET /batches"] == 2  # for all of them, and once by this test


async def test_a_new_process_finds_the_batch_by_reading_its_file_once(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        rig.provider.lose["POST /batches"] = 1
        job = await rig.request(chats(60))
        async with rig.working():
            await rig.until(lambda: rig.provider.asked["POST /batches"] == 1)
            await rig.until(lambda: rig.attempts(job, 59))
        rig.restart()
        await rig.site.advance(MINUTES_10)
        rig.provider.asked.clear()
        view = await rig.done(job)
        assert (view.succeeded, view.repeats, len(await rig.batches())) == (60, 0, 1)
        assert rig.provider.asked["GET /files/*/content"] == 2  # its input and its output


async def test_a_batch_that_never_arrived_is_created_again(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        rig.provider.drop["POST /batches"] = 1
        job = await rig.request(chats(5))
        async with rig.working():
            await rig.until(lambda: rig.attempts(job, 4))
        await rig.site.advance(MINUTES_10)
        view = await rig.done(job)
        assert (view.succeeded, len(await rig.batches())) == (5, 1)
        assert {(await rig.item(job, n)).rescues for n in range(5)} == {1}
        assert rig.provider.bill.bodies_paid_twice == []


async def test_a_creation_that_failed_at_the_provider_is_looked_for_before_it_is_repeated(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        rig.provider.refuse["POST /batches"] = 502
        job = await rig.request(chats(2))
        async with rig.working():
            await rig.until(lambda: rig.attempts(job, 1))
        assert (await rig.item(job)).state is ItemState.SUBMITTING
        rig.provider.refuse.clear()
        await rig.site.advance(MINUTES_10)
        assert (await rig.done(job)).succeeded == 2


async def test_a_look_up_without_a_certain_answer_sends_nothing(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, call_retries_max=0) as rig:
        rig.provider.lose["POST /batches"] = 1
        job = await rig.request(chats(2))
        async with rig.working():
            await rig.until(lambda: rig.attempts(job, 1))
        await rig.site.advance(MINUTES_10)
        rig.provider.refuse["GET /files"] = 500
        await rig.sweep()
        assert (await rig.item(job)).state is ItemState.SUBMITTING
        del rig.provider.refuse["GET /files"]
        await rig.site.advance(MINUTES_10)
        assert (await rig.done(job)).succeeded == 2
        assert rig.provider.bill.bodies_paid_twice == []


async def test_a_lost_batch_is_found_behind_pages_of_others(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        rig.provider.lose["POST /batches"] = 1
        job = await rig.request(chats(2))
        async with rig.working():
            await rig.until(lambda: rig.attempts(job, 1))
        foreign = {"input_file_id": "file-none", "endpoint": CHAT, "completion_window": "24h"}
        for _ in range(210):
            await rig.wire.post("/v1/batches", json.dumps(foreign), 10)
        await rig.site.advance(MINUTES_10)
        assert (await rig.done(job)).succeeded == 2
        assert rig.provider.bill.bodies_paid_twice == []


async def _lost(rig: LaneRig, bodies: list[dict[str, Any]]) -> Job:
    """A job whose batch was created, and whose process never heard of it."""
    rig.provider.lose["POST /batches"] = 1
    job = await rig.request(bodies)
    async with rig.working(concurrency=20_000):
        await rig.until(lambda: rig.attempts(job, len(bodies) - 1))
    rig.restart()
    await rig.site.advance(MINUTES_10)
    return job


async def _completed(rig: LaneRig) -> Any:
    async def batches() -> list[dict[str, Any]]:
        return [batch for batch in await rig.batches() if batch["status"] == "completed"]

    return await rig.until(batches)


class BehindClock(Clock):
    """A provider's time two days ago."""

    def now_ms(self) -> int:
        return super().now_ms() - 2 * 86_400_000


async def _delete_files(rig: LaneRig, batch: dict[str, Any], *names: str) -> None:
    for name in names:
        await rig.ask("DELETE", f"/files/{batch[name]}")


async def test_an_older_batch_whose_files_were_deleted_holds_up_no_look_up(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        rig.provider.clock = BehindClock()
        await rig.done(await rig.request(chats(2, user="before")))
        [older] = await rig.batches()
        await _delete_files(rig, older, "input_file_id", "output_file_id")
        rig.provider.clock = Clock()
        job = await _lost(rig, chats(2))
        view = await rig.done(job)
        assert (view.succeeded, view.repeats, len(await rig.batches())) == (2, 0, 2)
        assert rig.provider.bill.bodies_paid_twice == []


async def test_a_batch_of_the_time_whose_files_were_deleted_is_named_and_nothing_is_sent(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, call_retries_max=0) as rig:
        job = await _lost(rig, chats(2))
        [batch] = await _completed(rig)
        await _delete_files(rig, batch, "input_file_id", "output_file_id")
        await rig.sweep()
        assert (await rig.item(job)).state is ItemState.SUBMITTING
        [trouble] = rig.told(Trouble)  # one word for all of them
        assert f"the file of {batch['id']} was deleted" in trouble.message


async def test_a_lost_batch_whose_input_was_deleted_is_found_by_its_results(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        job = await _lost(rig, chats(3))
        [batch] = await _completed(rig)
        await _delete_files(rig, batch, "input_file_id")
        view = await rig.done(job)
        assert (view.succeeded, view.repeats, len(await rig.batches())) == (3, 0, 1)
        assert rig.provider.bill.bodies_paid_twice == []


async def test_a_batch_is_found_as_long_as_its_requests_may_live(sqlite_site: Site) -> None:
    days_40 = 40 * 86_400
    async with lane(sqlite_site, Lane.BATCH, item_timeout_seconds=days_40, job_timeout_seconds=days_40) as rig:
        job = await _lost(rig, chats(2))
        await rig.site.advance(20 * 86_400)
        view = await rig.done(job)
        assert (view.succeeded, view.repeats, len(await rig.batches())) == (2, 0, 1)
        assert rig.provider.bill.bodies_paid_twice == []


async def test_one_sweep_takes_up_many_lost_requests(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        job = await _lost(rig, chats(1_200))
        rig.provider.asked.clear()
        await rig.sweep()
        view = await job.show()
        assert (view.processing, rig.provider.asked["GET /batches"]) == (1_200, 1)
