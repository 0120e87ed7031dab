"""pause, resume, cancel, retry: a person's buttons, each for the owner only."""

from collections.abc import Awaitable, Callable

import pytest

from backstay.core.errors import NotAllowed, NotFound
from backstay.core.ids import item_id
from backstay.core.states import JobState, StopReason
from backstay.store.jobs import Jobs
from tests.store.store_rig import LEASE_MS, OK, WRONG, Scene

Verb = Callable[[Jobs, int, str], Awaitable[object]]
VERBS: dict[str, Verb] = {"pause": Jobs.pause, "resume": Jobs.resume, "cancel": Jobs.cancel, "retry": Jobs.retry}


@pytest.mark.parametrize("verb", VERBS)
async def test_another_owners_job_does_not_exist(scene: Scene, verb: str) -> None:
    job_id = await scene.ended(WRONG)
    before = await scene.everything()
    with pytest.raises(NotFound):
        await VERBS[verb](scene.store.jobs, job_id, "bob")
    assert await scene.everything() == before


@pytest.mark.parametrize("verb", VERBS)
async def test_a_job_that_never_was_does_not_exist(scene: Scene, verb: str) -> None:
    with pytest.raises(NotFound):
        await VERBS[verb](scene.store.jobs, 99, "ann")


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel"])
async def test_an_ended_job_is_past_pausing_and_cancelling(scene: Scene, verb: str) -> None:
    job_id = await scene.ended(OK)
    before = await scene.everything()
    with pytest.raises(NotAllowed, match="completed"):
        await VERBS[verb](scene.store.jobs, job_id, "ann")
    assert await scene.everything() == before


async def test_pausing_and_resuming_bring_a_job_back_to_where_it_was(scene: Scene) -> None:
    waiting, running = await scene.submit(handler="other"), await scene.submit(2)
    await scene.claim(1)
    for job_id in (waiting, running):
        await scene.store.jobs.pause(job_id, "ann")
        assert (await scene.job(job_id)).state is JobState.PAUSED
        with pytest.raises(NotAllowed):
            await scene.store.jobs.pause(job_id, "ann")
        await scene.store.jobs.resume(job_id, "ann")
    assert (await scene.job(waiting)).state is JobState.QUEUED
    assert (await scene.job(running)).state is JobState.RUNNING
    assert len(await scene.claim()) == 1


async def test_cancelling_ends_what_waits_and_leaves_what_runs_to_its_holder(scene: Scene) -> None:
    job_id = await scene.submit(3)
    (item,) = await scene.claim(1)
    await scene.store.jobs.cancel(job_id, "ann")
    swept = await scene.store.sweeps.end_stopped(job_id, StopReason.CANCEL)
    assert (swept.items, swept.ended_jobs) == (2, [])
    assert await scene.states(job_id) == ["submitting", "cancelled", "cancelled"]
    settled = await scene.settle(item, OK)
    assert settled.ended_jobs == [(job_id, JobState.CANCELLED)]
    assert (await scene.job(job_id)).succeeded == 1


async def test_a_paused_job_can_be_cancelled(scene: Scene) -> None:
    job_id = await scene.submit()
    await scene.store.jobs.pause(job_id, "ann")
    await scene.store.jobs.cancel(job_id, "ann")
    await scene.store.sweeps.end_stopped(job_id, StopReason.CANCEL)
    assert (await scene.job(job_id)).state is JobState.CANCELLED


async def test_a_job_is_cancelled_once(scene: Scene) -> None:
    job_id = await scene.submit()
    await scene.store.jobs.cancel(job_id, "ann")
    with pytest.raises(NotAllowed, match="being cancelled already"):
        await scene.store.jobs.cancel(job_id, "ann")
    with pytest.raises(NotAllowed):
        await scene.store.jobs.pause(job_id, "ann")


async def test_what_a_person_did_is_told_in_the_timelines(scene: Scene) -> None:
    job_id = await scene.ended(WRONG)
    await scene.store.jobs.retry(job_id, "ann")
    await scene.store.jobs.pause(job_id, "ann")
    await scene.store.jobs.resume(job_id, "ann")
    await scene.store.jobs.cancel(job_id, "ann")
    told = await scene.store.events.oldest(f"job:{job_id}")
    assert [event.act for event in told] == ["retried", "paused", "resumed", "cancel_asked"]
    assert told[0].detail == "1 item"
    assert [e.act for e in await scene.store.events.oldest(f"item:{item_id(job_id, 0)}")] == ["retried"]


async def test_a_job_is_paused_when_nobody_is_there_for_it_and_resumed_by_whoever_comes(scene: Scene) -> None:
    workers, job_id = scene.store.workers, await scene.submit()
    await workers.register("w1", "host", 1, "place", "{}")
    await workers.pause_unattended(job_id, "ann", LEASE_MS)
    assert (await scene.job(job_id)).state is JobState.QUEUED
    await workers.unregister("w1")
    await workers.pause_unattended(job_id, "bob", LEASE_MS)
    assert not await workers.take_up(job_id, "ann")
    for _ in range(2):
        await workers.pause_unattended(job_id, "ann", LEASE_MS)
        assert (await scene.job(job_id)).state is JobState.PAUSED
    assert not await workers.take_up(job_id, "bob")
    assert [await workers.take_up(job_id, "ann") for _ in range(2)] == [True, False]
    assert (await scene.job(job_id)).state is JobState.QUEUED


async def test_the_job_of_a_dead_worker_is_paused_and_an_ended_one_is_not(scene: Scene) -> None:
    ended, job_id = await scene.ended(OK), await scene.submit()
    await scene.store.workers.register("w1", "host", 1, "place", "{}")
    await scene.site.advance(LEASE_MS / 1000)
    for each in (ended, job_id):
        await scene.store.workers.pause_unattended(each, "ann", LEASE_MS)
    assert (await scene.job(job_id)).state is JobState.PAUSED
    assert (await scene.job(ended)).state is JobState.COMPLETED
