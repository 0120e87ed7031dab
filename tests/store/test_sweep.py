"""expire, stop_overdue, end_stopped: what time ends, and that it is told."""

import json
import re
from typing import Any

import pytest

from backstay.core.ids import item_id
from backstay.core.models import CannotAsk, Delivery, HandedBack, Submitted
from backstay.core.states import ItemState, JobState, StopReason
from backstay.store import sweeps
from backstay.store.queries import statements
from backstay.store.submissions import Chunk
from tests.store.store_rig import BROKEN, HOURS_48_MS, LEASE_MS, OK, TASK, Scene, decided, new_job


async def in_state(scene: Scene, state: ItemState, **options: Any) -> int:
    job_id = await scene.submit(**options)
    if state is not ItemState.QUEUED:
        (item,) = await scene.claim()
        if state is ItemState.PROCESSING:
            await scene.settle(item, TASK)
    return job_id


@pytest.mark.parametrize("state", [ItemState.QUEUED, ItemState.SUBMITTING, ItemState.PROCESSING])
async def test_a_deadline_ends_an_item_in_every_unfinished_state(scene: Scene, state: ItemState) -> None:
    job_id = await in_state(scene, state, deadline_ms=60_000)
    await scene.site.advance(59.999)
    assert (await scene.store.sweeps.expire()).items == 0
    await scene.site.advance(0.002)
    swept = await scene.store.sweeps.expire()
    assert (swept.items, swept.ended_jobs) == (1, [(job_id, JobState.FAILED)])
    item = await scene.item(job_id)
    assert (item.state, item.error_code, item.timed_out_at) == (ItemState.FAILED, "GW_TIMEOUT", scene.site.clock.ms)
    (attempt,) = await scene.store.item_views.attempts(item.id)
    assert (attempt.outcome, attempt.message) == ("failed", "the deadline passed")
    assert item.flaw == (None if state is ItemState.QUEUED else "unknown"), "what was sent may have been paid"


async def test_an_item_that_waits_for_a_retry_meets_its_deadline_too(scene: Scene) -> None:
    job_id = await scene.submit(deadline_ms=1_000)
    await scene.settle((await scene.claim())[0], BROKEN)
    await scene.site.advance(1.001)
    assert (await scene.store.sweeps.expire()).items == 1
    assert (await scene.item(job_id)).timed_out_at is not None


@pytest.mark.parametrize("ends", ["deadline", "timeout", "cancel"])
async def test_an_item_of_which_a_call_was_lost_is_of_unknown_outcome_however_it_ends(scene: Scene, ends: str) -> None:
    job_id = await scene.submit(2, deadline_ms=600_000 if ends == "deadline" else None)
    lost, refused = await scene.claim()
    await scene.settle(lost, CannotAsk())
    await scene.settle(refused, BROKEN)
    await scene.end(job_id, ends)
    found = [await scene.item(job_id, position) for position in range(2)]
    last = ("cancelled", None) if ends == "cancel" else ("failed", None)
    assert [(item.state, item.flaw) for item in found] == [("failed", "unknown"), last]


async def test_what_a_person_has_looked_up_again_is_not_cancelled(scene: Scene) -> None:
    """Its first call may have been done; a retry that is cancelled before it was looked up does not change that."""
    job_id = await scene.submit()
    (item,) = await scene.claim()
    await scene.settle(item, CannotAsk(), delivery=Delivery.AT_MOST_ONCE)
    await scene.store.jobs.retry(job_id, "ann")
    await scene.store.jobs.cancel(job_id, "ann")
    await scene.store.sweeps.end_stopped(job_id, StopReason.CANCEL)
    ended = await scene.item(job_id)
    assert (ended.state, ended.error_code, ended.flaw) == ("failed", "UNKNOWN", "unknown")


async def test_who_held_an_expired_item_writes_nothing_more(scene: Scene) -> None:
    await scene.submit(deadline_ms=1_000)
    (item,) = await scene.claim()
    await scene.site.advance(2)
    await scene.store.sweeps.expire()
    assert (await scene.settle(item, OK)).applied == []


async def test_an_ended_item_has_no_deadline(scene: Scene) -> None:
    await scene.ended(OK, deadline_ms=1_000)
    await scene.site.advance(100)
    assert (await scene.store.sweeps.expire()).items == 0


async def test_expiry_goes_by_bounded_passes(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "CHUNK_ITEMS", 2)
    await scene.submit(5, deadline_ms=1_000)
    await scene.site.advance(2)
    passes = [await scene.store.sweeps.expire() for _ in range(3)]
    assert [(swept.items, swept.more) for swept in passes] == [(2, True), (2, True), (1, False)]


@pytest.mark.parametrize("state", [ItemState.QUEUED, ItemState.SUBMITTING, ItemState.PROCESSING])
async def test_a_job_past_its_limit_fails_with_all_it_has_left(scene: Scene, state: ItemState) -> None:
    job_id = await in_state(scene, state)
    await scene.site.advance(HOURS_48_MS / 1000 - 0.001)
    assert await scene.store.sweeps.stop_overdue() == []
    await scene.site.advance(0.001)
    assert await scene.store.sweeps.stop_overdue() == [job_id]
    assert await scene.store.sweeps.stop_overdue() == []
    assert await scene.store.sweeps.stopped_jobs() == [(job_id, StopReason.TIMEOUT)]
    swept = await scene.store.sweeps.end_stopped(job_id, StopReason.TIMEOUT)
    assert swept.ended_jobs == [(job_id, JobState.FAILED)]
    item = await scene.item(job_id)
    assert (item.state, item.error_code, item.timed_out_at) == (ItemState.FAILED, "GW_TIMEOUT", scene.site.clock.ms)
    assert (await scene.store.item_views.attempts(item.id))[-1].message == "the job exceeded its maximum runtime"
    assert item.flaw == (None if state is ItemState.QUEUED else "unknown")
    assert await scene.store.sweeps.stopped_jobs() == []


async def test_a_job_past_its_limit_is_failed_although_some_items_succeeded(scene: Scene) -> None:
    job_id = await scene.submit(2)
    await scene.settle((await scene.claim(1))[0], OK)
    await scene.site.advance(HOURS_48_MS / 1000)
    await scene.store.sweeps.stop_overdue()
    await scene.store.sweeps.end_stopped(job_id, StopReason.TIMEOUT)
    job = await scene.job(job_id)
    assert (job.state, job.succeeded, job.failed) == (JobState.FAILED, 1, 1)


async def test_a_stopped_job_ends_by_chunks(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "CHUNK_ITEMS", 2)
    job_id = await scene.submit(9, job_timeout_ms=1_000)
    for item in (await scene.claim(6))[:3]:
        await scene.settle(item, TASK)
    await scene.site.advance(1)
    await scene.store.sweeps.stop_overdue()
    passes = []
    while (swept := await scene.store.sweeps.end_stopped(job_id, StopReason.TIMEOUT)).more:
        passes.append(swept.items)
    assert passes == [6]
    assert swept.ended_jobs == [(job_id, JobState.FAILED)]
    assert (await scene.job(job_id)).processing == 0


async def test_a_job_whose_submitter_never_came_back_ends_at_its_limit(scene: Scene) -> None:
    job = await scene.open_job(1, last=False, job_timeout_ms=1_000)
    await scene.settle((await scene.claim())[0], OK)
    await scene.site.advance(1)
    await scene.store.sweeps.stop_overdue()
    await scene.store.sweeps.end_stopped(job.id, StopReason.TIMEOUT)
    assert (await scene.job(job.id)).state is JobState.FAILED


async def test_many_stopped_jobs_are_each_ended(scene: Scene) -> None:
    jobs = [await scene.submit(job_timeout_ms=1_000) for _ in range(5)]
    await scene.site.advance(1)
    assert sorted(await scene.store.sweeps.stop_overdue()) == jobs
    for job_id, reason in await scene.store.sweeps.stopped_jobs():
        await scene.store.sweeps.end_stopped(job_id, reason)
    assert [(await scene.job(job)).state for job in jobs] == [JobState.FAILED] * 5


async def test_a_paused_job_does_not_run_into_its_limit(scene: Scene) -> None:
    job_id = await scene.submit(job_timeout_ms=10_000)
    await scene.site.advance(6)
    await scene.store.jobs.pause(job_id, "ann")
    await scene.site.advance(1_000)
    assert await scene.store.sweeps.stop_overdue() == []
    await scene.store.jobs.resume(job_id, "ann")
    await scene.site.advance(3.999)
    assert await scene.store.sweeps.stop_overdue() == []
    await scene.site.advance(0.001)
    assert await scene.store.sweeps.stop_overdue() == [job_id]


async def test_a_paused_jobs_items_step_aside_and_come_back(scene: Scene) -> None:
    job_id = await scene.submit(3)
    await scene.store.jobs.pause(job_id, "ann")
    assert await scene.store.jobs.paused_jobs() == [job_id]
    await scene.store.jobs.park(job_id)
    assert await scene.store.jobs.parked_jobs() == [job_id]
    await scene.store.jobs.unpark(job_id)
    assert await scene.store.jobs.parked_jobs() == [job_id], "a paused job stays parked"
    await scene.store.jobs.resume(job_id, "ann")
    assert await scene.store.jobs.parked_jobs() == []
    assert len(await scene.claim()) == 3


async def test_parked_items_still_meet_their_deadline_and_their_cancel(scene: Scene) -> None:
    dated, cancelled = await scene.submit(deadline_ms=1_000), await scene.submit()
    for job_id in (dated, cancelled):
        await scene.store.jobs.pause(job_id, "ann")
        await scene.store.jobs.park(job_id)
    await scene.site.advance(2)
    await scene.store.sweeps.expire()
    await scene.store.jobs.cancel(cancelled, "ann")
    await scene.store.sweeps.end_stopped(cancelled, StopReason.CANCEL)
    assert await scene.states(dated) == ["failed"]
    assert await scene.states(cancelled) == ["cancelled"]


async def test_polling_goes_on_after_an_expired_task(scene: Scene) -> None:
    job_id = await in_state(scene, ItemState.PROCESSING, deadline_ms=1_000)
    await scene.site.advance(100)
    await scene.store.sweeps.expire()
    assert (await scene.store.items.poll("echo", "account-1", 5, "w1", LEASE_MS)).items == []
    assert (await scene.store.item_views.get(item_id(job_id, 0), "ann")).provider_task_id == "task-1"


def test_no_statement_deletes_work() -> None:
    """What is stuck is taken up again or fails with a reason; only a person's word deletes a job that has ended.
    What is told of a dead letter leaves the database in the transaction that knows the archive that has it."""
    work = re.compile(r"DELETE FROM (jobs|items|requests|attempts|events|batches|inbox)\b", re.IGNORECASE)
    deleting = {name for name, text in statements() if work.search(text)}
    elsewhere = {"archive_messages", "archive_events"}
    assert {name for name in deleting if not name.startswith("purge_")} == elsewhere


async def test_what_a_handler_has_not_done_by_its_time_goes_to_the_next(scene: Scene) -> None:
    job = await scene.submit(3, handler_then="other", move_ms=60_000)
    [first, *_] = await scene.claim(1)
    assert await scene.store.sweeps.move_late() == 0
    await scene.site.advance(60)
    assert await scene.store.sweeps.move_late() == 2
    assert await scene.store.sweeps.move_late() == 0
    assert len(await scene.claim(handler="other")) == 2
    await scene.settle(first, Submitted("task-1", ""))
    await scene.site.advance(60)
    [task] = (await scene.store.items.poll("echo", "", 10, "w9", 90_000)).items
    assert (task.job_id, task.stop_reason) == (job, "move")


async def test_what_comes_back_after_its_job_was_to_move_goes_to_the_next_handler(scene: Scene) -> None:
    job = await scene.submit(30, handler_then="other", move_ms=60_000)
    early, *late = await scene.claim(30)
    await scene.settle(early, BROKEN)
    await scene.site.advance(60)
    await scene.store.items.settle([decided(item, BROKEN, scene.site.clock.ms) for item in late[:25]])
    await scene.store.items.settle([decided(item, BROKEN, scene.site.clock.ms) for item in late[25:]])
    handlers = await scene.site.rows(f"SELECT handler FROM items WHERE job_id = {job} ORDER BY id")
    assert [handler for (handler,) in handlers] == ["echo"] + ["other"] * 29


async def test_the_items_of_a_late_job_with_several_providers_go_each_to_its_own_next_handler(scene: Scene) -> None:
    """Two endpoints of each provider stand beside the two of the job, in the same order."""
    old, new = ("batch@a#1", "batch@b#2"), ("call@a#3", "call@b#4")
    for first, other in (old, new):
        await scene.store.providers.save_endpoint(other, json.dumps({"name": other}))
        await scene.store.providers.save_endpoint(first, json.dumps({"beside": [json.dumps({"name": other})]}))
    job = new_job(handler=old[0], handler_then=new[0], move_ms=60_000)
    opened = await scene.store.submissions.open(job, Chunk(0, ["0", "1", "2"], "d", True, None, None, (*old, old[1])))
    [late] = await scene.claim(1, handler=old[1])
    assert await scene.store.sweeps.move_late() == 0
    await scene.site.advance(61)
    assert await scene.store.sweeps.move_late() == 2
    await scene.settle(late, HandedBack("not sent"))
    assert await scene.store.sweeps.move_late() == 0, "what comes back later follows at once"
    rows = await scene.site.rows(f"SELECT handler FROM items WHERE job_id = {opened.id} ORDER BY id")
    assert [handler for (handler,) in rows] == [new[0], new[1], new[1]]
    outside = "SELECT 1 FROM items JOIN jobs ON jobs.id = job_id WHERE order_key NOT BETWEEN first_key AND last_key"
    assert await scene.site.rows(outside) == [], "a worker that does one job looks only between its keys"
