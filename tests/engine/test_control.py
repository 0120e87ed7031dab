"""pause, resume and cancel while things run."""

import pytest

from backstay.core.states import JobState
from backstay.observe.metrics import Metrics
from tests.engine.conftest import MakeRig
from tests.engine.provider import HttpError, Provider, TaskProvider


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
        await worker.engine.settler.drained()
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
