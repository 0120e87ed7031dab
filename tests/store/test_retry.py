"""Retry: what failed starts afresh once, and only what may have been paid counts as a repeat."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from backstay.core.errors import NotAllowed, NotFound
from backstay.core.failures import ErrorCode, Failure, FailureKind
from backstay.core.ids import item_id
from backstay.core.models import Failed
from backstay.core.states import ItemState, JobState, StopReason
from backstay.store import jobs
from backstay.store.items import Want, claim_items
from backstay.store.queries import Script
from backstay.store.settle import settle
from tests.store.store_rig import LEASE_MS, OK, RECONCILE_MS, WRONG, Scene, decided

UNKNOWN = Failed(Failure(ErrorCode.UNKNOWN, FailureKind.BUSINESS, "outcome unknown"))
TIMED_OUT = Failed(Failure(ErrorCode.GW_TIMEOUT, FailureKind.INFRASTRUCTURE, "no answer"))


async def cancelled(scene: Scene, items: int = 1) -> int:
    job_id = await scene.submit(items)
    await scene.store.jobs.cancel(job_id, "ann")
    await scene.store.sweeps.end_stopped(job_id, StopReason.CANCEL)
    return job_id


async def test_a_retry_starts_failed_items_afresh(scene: Scene) -> None:
    job_id = await scene.ended(WRONG, items=2)
    await scene.site.advance(100)
    assert await scene.store.jobs.retry(job_id, "ann") == 2
    item = await scene.item(job_id)
    assert (item.state, item.attempt_count, item.error_code, item.finished_at) == (ItemState.QUEUED, 0, None, None)
    assert (item.queued_at, item.created_at) == (scene.site.clock.ms, scene.site.clock.ms - 100_000)
    job = await scene.job(job_id)
    assert (job.state, job.failed, job.finished_at) == (JobState.RUNNING, 0, None)
    for again in await scene.claim():
        await scene.settle(again, OK)
    assert (await scene.job(job_id)).state is JobState.COMPLETED


async def test_only_failed_items_are_retried(scene: Scene) -> None:
    job_id = await scene.submit(3)
    first, second, _ = await scene.claim()
    await scene.settle(first, OK)
    await scene.settle(second, WRONG)
    assert await scene.store.jobs.retry(job_id, "ann") == 1
    assert await scene.states(job_id) == ["succeeded", "queued", "submitting"]


async def test_the_same_retry_twice_makes_one_requeue(scene: Scene) -> None:
    job_id = await scene.ended(WRONG)
    fence = (await scene.item(job_id)).fence
    assert await scene.store.jobs.retry(job_id, "ann") == 1
    with pytest.raises(NotAllowed, match="no failed items"):
        await scene.store.jobs.retry(job_id, "ann")
    assert (await scene.item(job_id)).fence == fence + 1


async def test_two_who_retry_at_once_requeue_each_item_once(scene: Scene) -> None:
    job_id = await scene.ended(WRONG, items=20)
    stores = [await scene.site.open_store() for _ in range(2)]
    got = await asyncio.gather(*(store.jobs.retry(job_id, "ann") for store in stores), return_exceptions=True)
    assert sum(count for count in got if isinstance(count, int)) == 20
    await scene.auditor.check()


async def test_a_retry_meets_each_item_once_even_if_it_fails_again_meanwhile(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "RETRY_ITEMS", 1)
    job_id = await scene.ended(WRONG, items=3)
    plain = scene.store._db.write

    async def write_while_all_fail_again(make: Callable[[], Script[Any]]) -> Any:
        answer = await plain(make)
        taken = await plain(
            lambda: claim_items(scene.store.items._front, [Want("echo", 10, 1)], "w1", LEASE_MS, (), True)
        )
        await plain(lambda: settle([decided(item, WRONG, scene.site.clock.ms) for item in taken.items]))
        return answer

    monkeypatch.setattr(scene.store._db, "write", write_while_all_fail_again)
    assert await asyncio.wait_for(scene.store.jobs.retry(job_id, "ann"), 20) == 3


async def test_a_retry_goes_on_with_a_task_of_which_nobody_knows_and_sends_nothing(scene: Scene) -> None:
    (known,) = await scene.processing(deadline_ms=60_000)
    job_id = known.job_id
    await scene.site.advance(61)
    await scene.store.sweeps.expire()
    item = await scene.item(job_id)
    assert (item.state, item.flaw) == (ItemState.FAILED, "unknown")
    assert await scene.store.jobs.retry(job_id, "ann") == 1
    item, job = await scene.item(job_id), await scene.job(job_id)
    assert (item.state, item.provider_task_id, item.repeats) == (ItemState.PROCESSING, "task-0", 0)
    assert (job.state, job.processing, job.failed, job.repeats) == (JobState.RUNNING, 1, 0, 0)
    assert await scene.claim() == []
    (polled,) = (await scene.store.items.poll("echo", "account-1", 10, "w1", LEASE_MS)).items
    await scene.settle(polled, OK)
    assert (await scene.job(job_id)).state is JobState.COMPLETED


async def test_one_item_can_be_retried_by_itself(scene: Scene) -> None:
    job_id = await scene.ended(WRONG, items=2)
    assert await scene.store.jobs.retry(job_id, "ann", item_id(job_id, 1)) == 1
    assert await scene.states(job_id) == ["failed", "queued"]


async def test_an_item_that_did_not_fail_cannot_be_retried(scene: Scene) -> None:
    job_id = await scene.ended(OK)
    with pytest.raises(NotAllowed, match="succeeded"):
        await scene.store.jobs.retry(job_id, "ann", item_id(job_id, 0))
    with pytest.raises(NotFound):
        await scene.store.jobs.retry(job_id, "ann", item_id(job_id, 7))


async def test_an_item_of_another_owners_job_does_not_exist_for_a_retry(scene: Scene) -> None:
    mine, theirs = await scene.ended(OK, owner="ann"), await scene.ended(WRONG, owner="bob")
    with pytest.raises(NotFound):
        await scene.store.jobs.retry(mine, "ann", item_id(theirs, 0))
    assert await scene.states(theirs) == ["failed"]


async def test_cancelled_items_stay_cancelled(scene: Scene) -> None:
    job_id = await cancelled(scene)
    with pytest.raises(NotAllowed, match="no failed items to retry; cancelled items cannot be retried"):
        await scene.store.jobs.retry(job_id, "ann")
    with pytest.raises(NotAllowed, match="is cancelled: only a failed item can be retried"):
        await scene.store.jobs.retry(job_id, "ann", item_id(job_id, 0))
    assert await scene.states(job_id) == ["cancelled"]


async def test_a_job_that_timed_out_lives_again_with_a_new_limit(scene: Scene) -> None:
    job_id = await scene.submit(job_timeout_ms=1_000)
    await scene.site.advance(5)
    await scene.store.sweeps.stop_overdue()
    await scene.store.sweeps.end_stopped(job_id, StopReason.TIMEOUT)
    assert await scene.store.jobs.retry(job_id, "ann") == 1
    job = await scene.job(job_id)
    assert (job.stop_reason, job.timeout_at) == (None, scene.site.clock.ms + 1_000)
    assert len(await scene.claim()) == 1


async def test_a_retried_item_gets_its_deadline_anew(scene: Scene) -> None:
    job_id = await scene.submit(deadline_ms=10_000)
    await scene.site.advance(11)
    await scene.store.sweeps.expire()
    await scene.store.jobs.retry(job_id, "ann")
    item = await scene.item(job_id)
    assert (item.deadline_at, item.timed_out_at) == (scene.site.clock.ms + 10_000, None)


async def test_retrying_in_a_paused_job_keeps_it_paused(scene: Scene) -> None:
    job_id = await scene.submit(2)
    await scene.settle((await scene.claim(1))[0], WRONG)
    await scene.store.jobs.pause(job_id, "ann")
    assert await scene.store.jobs.retry(job_id, "ann") == 1
    assert (await scene.job(job_id)).state is JobState.PAUSED
    assert await scene.claim() == []


async def test_retrying_does_not_undo_a_cancel(scene: Scene) -> None:
    job_id = await scene.submit(2)
    await scene.settle((await scene.claim(1))[0], WRONG)
    await scene.store.jobs.cancel(job_id, "ann")
    with pytest.raises(NotAllowed):
        await scene.store.jobs.retry(job_id, "ann")
    assert (await scene.job(job_id)).stop_reason == "cancel"


@pytest.mark.parametrize(
    ("outcome", "anew"), [(WRONG, 1), (UNKNOWN, 0), (TIMED_OUT, 0)], ids=["known", "unknown", "timed out"]
)
async def test_only_a_known_failure_is_asked_for_under_a_new_reference(
    scene: Scene, outcome: Failed, anew: int
) -> None:
    job_id = await scene.ended(outcome)
    await scene.store.jobs.retry(job_id, "ann")
    assert len(await scene.claim()) == anew  # what may have been sent is left until it must have landed
    await scene.site.advance(RECONCILE_MS / 1000)
    later = await scene.claim()
    assert [(item.round, item.ask_first) for item in later] == ([] if anew else [(0, 1)])


async def test_an_item_that_met_its_deadline_while_it_was_sent_keeps_its_reference(scene: Scene) -> None:
    job_id = await scene.submit(deadline_ms=1_000)
    await scene.claim()
    await scene.site.advance(2)
    await scene.store.sweeps.expire()
    await scene.store.jobs.retry(job_id, "ann")
    await scene.site.advance(RECONCILE_MS / 1000 - 2)
    assert [item.round for item in await scene.claim()] == [0]


@pytest.mark.parametrize(
    ("outcome", "reconcile_ms", "repeats"),
    [(WRONG, 0, 0), (UNKNOWN, 0, 1), (TIMED_OUT, 0, 1), (UNKNOWN, RECONCILE_MS, 0)],
    ids=["known", "unknown", "timed out", "can be looked up"],
)
async def test_a_retry_of_what_may_have_been_paid_and_cannot_be_looked_up_is_counted_as_a_repeat(
    scene: Scene, outcome: Failed, reconcile_ms: int, repeats: int
) -> None:
    job_id = await scene.submit(2)
    for item in (await scene.store.items.claim([Want("echo", 2, reconcile_ms)], "w1", LEASE_MS)).items:
        await scene.settle(item, outcome, retry="none")
    assert await scene.store.jobs.retry(job_id, "ann") == 2
    assert ((await scene.item(job_id)).repeats, (await scene.job(job_id)).repeats) == (repeats, 2 * repeats)
    [told] = await scene.store.events.oldest(f"item:{item_id(job_id, 0)}")
    assert (told.detail == "by hand") == (repeats == 0)


async def test_a_retry_of_what_was_never_sent_is_no_repeat(scene: Scene) -> None:
    job_id = await scene.submit(deadline_ms=1_000)
    await scene.site.advance(2)
    await scene.store.sweeps.expire()
    await scene.store.jobs.retry(job_id, "ann")
    assert (await scene.job(job_id)).repeats == 0
