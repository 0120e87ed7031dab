"""Seven ways in which a poller of paid jobs goes wrong, and that each one ends: in time, and without a runaway."""

import pytest

from backstay.core.errors import DatabaseUnreachable
from backstay.core.events import Trouble
from backstay.core.states import JobState
from tests.engine.conftest import MakeRig
from tests.engine.provider import HttpError, Provider, TaskProvider
from tests.engine.rig import Rig

MINUTES_5 = 300
HOURS_2 = 7_200
HOURS_48 = 172_800


async def ticks_until(rig: Rig, seconds: float, every: float = MINUTES_5) -> None:
    """Scheduled invocations for so long."""
    left = seconds
    while left > 0:
        await rig.tick()
        await rig.site.advance(min(every, left))
        left -= every


async def test_1_an_item_that_keeps_failing_is_failed_by_time_not_by_count(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), retry="timed", breaker=None)
    provider.script = [HttpError(502)] * 1_000
    job = await rig.submit(["a"])
    await ticks_until(rig, HOURS_2 - 60, every=600)
    assert (await rig.item(job)).state == "queued"
    assert provider.calls > 8
    await rig.site.advance(120)
    await ticks_until(rig, 900, every=300)
    (result,) = await rig.results(job)
    assert (result.state, result.error_code) == ("failed", "GW_TIMEOUT")
    assert "timeout of 2 h" in (result.message or "")
    assert (await rig.item(job)).timed_out_at is not None


async def test_2_items_that_all_take_too_long_end_their_job_and_the_chain(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.takes_tasks(TaskProvider())
    job = await rig.submit(["a", "b", "c"], "task")
    report = await rig.tick()
    assert report.pending
    await rig.site.advance(HOURS_2 + 1)
    report = await rig.tick()
    assert not report.pending
    assert not report.follow_up
    view = await job.show()
    assert (view.state, view.failed) == (JobState.FAILED, 3)


async def test_3_an_item_stuck_at_the_provider_fails_only_after_one_more_poll(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = TaskProvider()
    rig.takes_tasks(provider)
    job = await rig.submit(["a", "b"], "task")
    await rig.tick()
    await rig.site.advance(HOURS_2 + 1)
    provider.ended["task-0"] = "just in time"
    await rig.tick()
    states = [result.state for result in await rig.results(job)]
    assert sorted(states) == ["failed", "succeeded"]
    assert (await job.show()).state is JobState.COMPLETED


async def test_4_a_job_that_runs_for_days_is_failed_with_all_it_has(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.takes_tasks(TaskProvider())
    provider = rig.serves(Provider())
    provider.script = [HttpError(429, "3000")] * 100
    tasks, calls = await rig.submit(["a"], "task"), await rig.submit(["b"])
    await rig.tick()
    await rig.site.advance(HOURS_48 + 1)
    report = await rig.tick()
    assert not report.pending
    for job in (tasks, calls):
        assert (await job.show()).state is JobState.FAILED
        (attempt, *_) = reversed(await rig.attempts(job))
        assert attempt.message == "the job exceeded its maximum runtime"


async def test_5_a_chain_of_ticks_ends_at_its_depth_although_work_is_left(make_rig: MakeRig) -> None:
    rig = await make_rig(tick_items_max=4)
    rig.serves(Provider())
    job = await rig.submit(range(20))
    reports = [await rig.tick(depth) for depth in range(3)]
    assert [report.claimed for report in reports] == [4, 4, 4]
    assert [report.follow_up for report in reports] == [True, True, False]
    assert reports[-1].pending
    assert (await job.show()).succeeded == 12


@pytest.mark.slow
async def test_6_a_result_that_could_not_be_written_is_written_later(make_rig: MakeRig, monkeypatch: object) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    settle, refusals = rig.store.items.settle, [DatabaseUnreachable("full"), DatabaseUnreachable("full")]

    async def settle_badly(settlements: object) -> object:
        if refusals:
            raise refusals.pop()
        return await settle(settlements)

    rig.store.items.settle = settle_badly
    job = await rig.submit(["a"])
    async with rig.working():
        view = await job.wait(timeout_seconds=20)
    assert (view.state, provider.calls) == (JobState.COMPLETED, 1)
    assert [trouble.where for trouble in rig.told(Trouble)].count("settle") == 2


async def test_7_what_a_crashed_invocation_held_is_taken_up_by_the_next(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    job = await rig.submit(["a", "b", "c"])
    assert len(await rig.abandon(2)) == 2
    await rig.site.advance(MINUTES_5)
    await rig.tick()
    view = await job.show()
    assert (view.state, view.succeeded, view.repeats) == (JobState.COMPLETED, 3, 2)
    assert provider.calls == 3
