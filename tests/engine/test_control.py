"""pause, resume and cancel while things run."""

import pytest

from backstay.core.errors import DatabaseUnreachable
from backstay.core.states import JobState
from backstay.engine import sweeper
from backstay.observe.metrics import Metrics
from backstay.store import sweeps
from backstay.store.submissions import Chunk
from tests.engine.conftest import MakeRig
from tests.engine.provider import HttpError, Provider, TaskProvider
from tests.store.store_rig import new_job


async def test_a_paused_job_finishes_what_runs_and_starts_nothing(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    provider.gate.clear()
    job = await rig.submit(range(6))
    async with rig.working(concurrency=2) as worker:
        await rig.until(lambda: provider.now == 2)
        await job.pause()
        provider.gate.set()
        await rig.until(lambda: provider.now == 0)
        await worker.engine.settler.wait_until_committed()
        await worker.engine.sweeper.run_once()
        view = await job.show()
        assert (view.state, view.succeeded, provider.calls) == (JobState.PAUSED, 2, 2)
        await job.resume()
        assert (await job.wait(timeout_seconds=20)).succeeded == 6


async def test_cancelling_keeps_what_is_under_way_and_starts_nothing(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    provider.gate.clear()
    job = await rig.submit(range(6))
    async with rig.working(concurrency=4):
        await rig.until(lambda: provider.now == 4)
        await job.cancel()
        await rig.until(lambda: all(context.stopped for context in provider.contexts))
        provider.gate.set()
        view = await job.wait(timeout_seconds=20)
    assert (view.state, view.cancelled, view.succeeded, provider.calls) == (JobState.CANCELLED, 2, 4, 4)


async def test_cancelling_a_job_stops_no_run_of_another(make_rig: MakeRig) -> None:
    rig = await make_rig(cancel_grace_seconds=0)
    provider = rig.serves(Provider())
    provider.gate.clear()
    unwanted, wanted = await rig.submit(range(2)), await rig.submit(range(2))
    async with rig.working():
        await rig.until(lambda: provider.now == 4)
        await unwanted.cancel()
        await rig.until(lambda: provider.now == 2)
        provider.gate.set()
        view = await wanted.wait(timeout_seconds=20)
    assert (view.succeeded, view.repeats, provider.calls) == (2, 0, 4)


@pytest.mark.slow
async def test_what_has_not_ended_in_the_grace_of_a_cancel_has_an_unknown_outcome(make_rig: MakeRig) -> None:
    rig = await make_rig(cancel_grace_seconds=0.2)
    provider = rig.serves(Provider())
    provider.gate.clear()
    job = await rig.submit(range(6))
    async with rig.working(concurrency=4):
        await rig.until(lambda: provider.now == 4)
        await job.cancel()
        view = await job.wait(timeout_seconds=20)
    assert (view.state, view.cancelled, view.failed, provider.now) == (JobState.CANCELLED, 2, 4, 0)
    cut_off = [result for result in await rig.results(job) if result.state == "failed"]
    assert {(result.error_code, result.flaw) for result in cut_off} == {("UNKNOWN", "unknown")}


async def test_what_was_cut_off_before_is_not_called_cancelled(make_rig: MakeRig) -> None:
    rig = await make_rig(handler_timeout_seconds=0.2)
    provider = rig.serves(Provider(), timeout=0.2)
    provider.gate.clear()
    job = await rig.submit(range(2))
    async with rig.working(concurrency=1):
        await rig.in_state(job, "queued")

        async def cut_off() -> bool:
            return (await rig.item(job)).repeats == 1

        await rig.until(cut_off)
    await job.cancel()
    await rig.sweep()
    codes = {result.item: (result.state, result.error_code) for result in await rig.results(job)}
    assert codes[f"{job.id}-0"] == ("failed", "UNKNOWN")


async def test_a_worker_with_no_room_left_hears_of_a_cancel_too(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    provider.gate.clear()
    job = await rig.submit(range(6))
    async with rig.working(concurrency=2):
        await rig.until(lambda: provider.now == 2)
        await job.cancel()
        await rig.until(lambda: all(context.stopped for context in provider.contexts))
        provider.gate.set()
        view = await job.wait(timeout_seconds=10)
    assert (view.state, view.cancelled, view.succeeded) == (JobState.CANCELLED, 4, 2)


async def test_cancelling_cancels_the_providers_tasks(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = TaskProvider()
    rig.takes_tasks(provider)
    job = await rig.submit(range(3), "task")
    await rig.tick()
    await job.cancel()
    await rig.tick()
    assert sorted(provider.cancelled) == ["task-0", "task-1", "task-2"]
    assert not (await job.show()).ended, "what comes of them is waited for"
    provider.ended.update({"task-0": "paid", "task-1": ValueError("cancelled")})
    await rig.site.advance(60)
    await rig.tick()
    view = await job.show()
    assert (view.succeeded, view.cancelled) == (1, 1)
    await rig.site.advance(rig.limits.cancel_grace_seconds)
    await rig.tick()
    view = await job.show()
    assert (view.state, view.succeeded, view.cancelled, view.failed) == (JobState.CANCELLED, 1, 1, 1)
    assert (await rig.item(job, 2)).error_code == "UNKNOWN"


async def test_a_task_that_was_done_before_the_cancel_keeps_its_result(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = TaskProvider()
    rig.takes_tasks(provider)
    job = await rig.submit(range(2), "task")
    await rig.tick()
    provider.ended["task-1"] = "paid"
    await job.cancel()
    await rig.tick()
    assert ((await job.show()).succeeded, provider.cancelled) == (1, ["task-0"])


async def test_a_cancelled_item_of_a_lost_worker_is_not_sent_and_its_outcome_is_unknown(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    job = await rig.submit(range(2))
    await rig.abandon()
    await job.cancel()
    await rig.site.advance(600)
    await rig.tick()
    view = await job.show()
    assert (view.state, view.cancelled, view.failed, provider.calls) == (JobState.CANCELLED, 1, 1, 0)


async def test_items_that_end_with_their_job_are_counted_like_any_other(make_rig: MakeRig) -> None:
    rig = await make_rig()
    metrics = Metrics()
    rig.app.bus.subscribe(metrics)
    rig.serves(Provider())
    rig.takes_tasks(TaskProvider())
    waiting, at_the_provider = await rig.submit(range(4)), await rig.submit(range(3), "task")
    await waiting.cancel()
    await rig.tick()
    await rig.site.advance(rig.limits.job_timeout_seconds + 1)
    await rig.sweep()
    assert (await waiting.show()).cancelled == 4
    assert (await at_the_provider.show()).failed == 3
    asked = metrics.registry.get_sample_value
    assert asked("backstay_items_settled_total", {"state": "cancelled"}) == 4
    assert asked("backstay_items_settled_total", {"state": "failed"}) == 3
    assert asked("backstay_items_failed_total", {"code": "GW_TIMEOUT"}) == 3


async def test_a_job_can_be_retried_after_it_failed(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    provider.script = [HttpError(400)] * 3
    job = await rig.submit(range(3))
    await rig.tick()
    assert (await job.show()).state is JobState.FAILED
    assert await job.retry() == 3
    await rig.tick()
    view = await job.show()
    assert (view.state, view.succeeded, view.failed) == (JobState.COMPLETED, 3, 0)
    assert provider.paid_twice == [], "a known failure is asked for under a new key"


async def test_a_resume_that_broke_off_is_finished_by_a_sweep(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    broken, still_paused = await rig.submit(range(3)), await rig.submit(range(3))
    for job in (broken, still_paused):
        await job.pause()
    await rig.sweep()
    unpark = rig.store.jobs.unpark

    async def away(_: int) -> None:
        raise DatabaseUnreachable("no route to the database")

    rig.store.jobs.unpark = away
    with pytest.raises(DatabaseUnreachable):
        await broken.resume()
    rig.store.jobs.unpark = unpark
    await rig.tick()
    await rig.tick()
    assert ((await broken.show()).succeeded, (await still_paused.show()).succeeded, provider.calls) == (3, 0, 3)


async def test_a_large_job_that_was_stopped_keeps_no_other_from_its_end(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker ends a bounded part of each in a sweep; a tick, which may be the last for long, ends all."""
    monkeypatch.setattr(sweeps, "CHUNK_ITEMS", 2)
    monkeypatch.setattr(sweeper, "PASSES_MAX", 2)
    rig = await make_rig()
    rig.serves(Provider())
    large, small = await rig.submit(range(11)), await rig.submit(range(3))
    for job in (large, small):
        await rig.store.jobs.cancel(job.id, "ann")  # by a process that has died since
    await rig.sweep()
    views = [await job.show() for job in (large, small)]
    assert [(view.cancelled, view.state) for view in views] == [(4, JobState.QUEUED), (3, JobState.CANCELLED)]
    await rig.store.jobs.cancel((await rig.submit(range(3))).id, "ann")  # the last that is looked at has no more
    await rig.tick()
    view = await large.show()
    assert (view.cancelled, view.state) == (11, JobState.CANCELLED)


async def test_more_items_than_one_pass_ends_meet_their_deadline_in_one_sweep(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "CHUNK_ITEMS", 2)
    rig = await make_rig()
    rig.serves(Provider())
    job = await rig.submit(range(7), deadline_seconds=10)
    await rig.site.advance(11)
    await rig.sweep()
    view = await job.show()
    assert (view.failed, view.state) == (7, JobState.FAILED)


async def test_more_items_than_one_pass_moves_go_to_the_next_handler_in_one_sweep(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "CHUNK_ITEMS", 2)
    rig = await make_rig()
    slow, quick = rig.serves(Provider(), "slow"), rig.serves(Provider(), "quick")
    new = new_job(handler="slow", handler_then="quick", move_ms=60_000)
    await rig.store.submissions.open(new, Chunk(0, ["1"] * 7, "d", True))
    await rig.site.advance(61)
    await rig.tick()
    assert (slow.calls, quick.calls) == (0, 7)
