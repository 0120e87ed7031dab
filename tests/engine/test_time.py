"""Deadlines and order: nothing hangs past its time, and nobody waits for ever."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from backstay.client import Job
from backstay.core.callbacks import result_of
from backstay.core.events import Trouble
from backstay.core.states import JobState
from backstay.store.inbox import LateSuccess
from backstay.store.outbox import HINT_AGE_MS, WORK
from tests.engine.conftest import MakeRig
from tests.engine.provider import HttpError, Provider, TaskProvider
from tests.engine.rig import Rig


async def test_an_item_that_was_never_taken_fails_at_its_deadline(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), deadline=60)
    job = await rig.submit()
    await rig.site.advance(61)
    await rig.tick()
    (result,) = await rig.results(job)
    assert (result.state, result.error_code, provider.calls) == ("failed", "GW_TIMEOUT", 0)
    assert (await rig.item(job)).timed_out_at is not None


async def late_results(rig: Rig) -> list[str]:
    found = await rig.store.inbox.late("ann", None, 10)
    return [result_of((await rig.store.inbox.late_result(late.number, "ann")).body or "") for late in found]


async def shown(rig: Rig, job: Job) -> list[str | None]:
    """What a person sees of the answers to its items."""
    return [row.result async for row in rig.store.results.all(job.id, "ann")]


async def test_a_running_item_fails_at_its_deadline_and_its_result_is_kept_as_late(make_rig: MakeRig) -> None:
    rig = await make_rig(heartbeat_seconds=0.1)
    provider = rig.serves(Provider())
    provider.gate.clear()
    job = await rig.submit(deadline_seconds=60)
    async with rig.working() as worker:
        await rig.until(lambda: provider.now == 1)
        await rig.site.advance(61)
        await worker.engine.sweeper.run_once()
        view = await job.wait(timeout_seconds=20)
        assert (view.state, view.failed, provider.now) == (JobState.FAILED, 1, 1), "its call goes on"
        await asyncio.sleep(0.5)  # some beats find that its lease is gone
        provider.gate.set()
        await rig.until(lambda: provider.now == 0)
        await worker.engine.settler.wait_until_committed()
    (result,) = await rig.results(job)
    assert (result.state, result.error_code) == ("failed", "GW_TIMEOUT")
    assert (await rig.item(job)).timed_out_at is not None
    assert (result.flaw, await shown(rig, job)) == ("late", ['"a"']), "what came is shown with the failure"
    assert await late_results(rig) == ['"a"']
    (late,) = await rig.store.inbox.late("ann", None, 10)
    await rig.store.inbox.accept(late.number, "ann", "me")
    assert ((await job.show()).succeeded, (await rig.item(job)).flaw) == (1, None)


async def test_a_result_that_comes_right_after_the_deadline_is_late_too(make_rig: MakeRig) -> None:
    """Though no sweep has ended its item yet."""
    rig = await make_rig()
    provider = rig.serves(Provider())
    provider.gate.clear()
    job = await rig.submit(deadline_seconds=60)
    async with rig.working() as worker:
        await rig.until(lambda: provider.now == 1)
        await rig.site.advance(61)
        provider.gate.set()
        await job.wait(timeout_seconds=20)
        await worker.engine.settler.wait_until_committed()
    assert ((await job.show()).failed, (await rig.item(job)).timed_out_at is not None) == (1, True)
    assert ((await rig.results(job))[0].flaw, await shown(rig, job)) == ("late", ['"a"'])
    assert await late_results(rig) == ['"a"']


@pytest.mark.slow
async def test_a_running_item_is_cut_off_when_the_grace_after_its_deadline_is_over(make_rig: MakeRig) -> None:
    rig = await make_rig(cancel_grace_seconds=0.2)
    provider = rig.serves(Provider())
    provider.gate.clear()
    job = await rig.submit(deadline_seconds=2)
    async with rig.working():
        await rig.until(lambda: provider.now == 1)
        await rig.until(lambda: provider.now == 0)
        view = await job.wait(timeout_seconds=20)
    assert (view.failed, provider.calls, await late_results(rig)) == (1, 1, [])
    assert (await rig.item(job)).flaw == "unknown"


async def test_a_task_that_ends_after_its_deadline_has_its_result_kept(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = TaskProvider()
    rig.takes_tasks(provider)
    job = await rig.submit(range(2), "task", deadline_seconds=60)
    await rig.tick()
    await rig.site.advance(61)
    await rig.tick()
    assert (await job.show()).failed == 2
    polls = provider.polls
    provider.ended["task-0"] = "paid"
    await rig.site.advance(61)
    await rig.tick()
    assert (await late_results(rig), provider.polls) == (['"paid"'], polls + 1)
    await rig.site.advance(61)
    await rig.tick()
    assert provider.polls == polls + 2, "the other is asked for yet"
    await rig.site.advance(rig.limits.late_result_seconds)
    await rig.tick()
    await rig.site.advance(3_600)
    await rig.tick()
    assert (provider.polls, await late_results(rig)) == (polls + 2, ['"paid"'])
    assert (await job.show()).failed == 2
    assert [one.flaw for one in await rig.results(job)] == ["late", "unknown"]
    assert await shown(rig, job) == ['"paid"', None]


async def late_tasks(rig: Rig, items: int) -> Job:
    """Tasks that end after their deadline; nobody has asked for their results yet."""
    provider = TaskProvider()
    rig.takes_tasks(provider)
    job = await rig.submit(range(items), "task", deadline_seconds=60)
    await rig.tick()
    await rig.site.advance(61)
    await rig.tick()
    provider.ended.update({f"task-{n}": f"paid {n}" for n in range(items)})
    await rig.site.advance(61)
    return job


async def test_a_late_result_the_database_refuses_keeps_no_other_from_being_kept(make_rig: MakeRig) -> None:
    rig = await make_rig()
    job = await late_tasks(rig, 3)
    keep, troubles = rig.store.inbox.keep_late, list[Trouble]()

    async def refuse_one(results: Sequence[LateSuccess]) -> int:
        if any(late.result == '"paid 1"' for late in results):
            raise ValueError("cannot be stored")
        return await keep(results)

    rig.store.inbox.keep_late = refuse_one
    rig.app.bus.subscribe(lambda event: troubles.append(event) if isinstance(event, Trouble) else None)
    await rig.tick()
    assert await shown(rig, job) == ['"paid 0"', None, '"paid 2"']
    assert [trouble.message for trouble in troubles] == ["ValueError: cannot be stored"]


async def test_one_late_result_that_cannot_be_accepted_keeps_no_other_from_it(make_rig: MakeRig) -> None:
    rig = await make_rig()
    job = await late_tasks(rig, 3)
    await rig.tick()
    archived = (await rig.item(job, 1)).id
    await rig.site.rows(f"UPDATE items SET archive_id = 1 WHERE id = {archived}")
    assert await job.accept_late() == 2
    assert [result.state for result in await rig.results(job)] == ["succeeded", "failed", "succeeded"]


async def test_a_task_at_the_provider_fails_at_its_deadline(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = TaskProvider()
    rig.takes_tasks(provider)
    job = await rig.submit(["a"], "task", deadline_seconds=60)
    await rig.tick()
    await rig.site.advance(61)
    await rig.tick()
    assert (await rig.item(job)).timed_out_at is not None
    assert (await job.show()).state is JobState.FAILED


class LateTasks(TaskProvider):
    """Its tasks end while they are asked about, and by then their time is over."""

    def __init__(self, rig: Rig) -> None:
        super().__init__()
        self._rig = rig
        self.finishes_all = True

    async def poll(self, task_ids: Sequence[str]) -> dict[str, Any]:
        self._rig.site.clock.ms += 61_000
        return await super().poll(task_ids)


@pytest.mark.parametrize("kind", ["function", "task"])
async def test_a_result_that_comes_after_the_deadline_is_no_success(make_rig: MakeRig, kind: str) -> None:
    rig = await make_rig()

    @rig.app.handler("function")
    async def late(item: str) -> str:
        rig.site.clock.ms += 61_000
        return "too late"

    rig.takes_tasks(LateTasks(rig), "task")
    job = await rig.submit(["a"], kind, deadline_seconds=60)
    await rig.tick()
    if kind == "task":
        await rig.site.advance(10)
        await rig.tick()
    item, view = await rig.item(job), await job.show()
    assert (item.state, item.error_code) == ("failed", "GW_TIMEOUT")
    assert item.timed_out_at is not None
    assert (view.state, view.succeeded, view.failed) == (JobState.FAILED, 0, 1)


async def test_a_deadline_counts_the_retries(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), retry="timed")
    provider.script = [HttpError(502)] * 100
    job = await rig.submit(deadline_seconds=600)
    for _ in range(14):
        await rig.tick()
        await rig.site.advance(50)
    (result,) = await rig.results(job)
    assert (result.state, result.error_code) == ("failed", "GW_TIMEOUT")
    assert 1 < provider.calls < 14


async def test_ten_items_do_not_wait_behind_thousands_submitted_earlier(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    provider = rig.serves(Provider())
    await rig.submit(range(20_000))
    small = await rig.submit(range(10))
    async with rig.working(concurrency=20):
        view = await small.wait(timeout_seconds=30)
    assert view.succeeded == 10
    assert provider.calls < 10_000


async def test_priority_nine_overtakes(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.rng = Random(1)
    order: list[str] = []

    @rig.app.handler("notes")
    async def notes(item: str) -> None:
        order.append(item)

    await rig.submit(["low"] * 60, "notes")
    await rig.submit(["high"] * 20, "notes", priority=9)
    async with rig.working(concurrency=1):
        await rig.until(lambda: order.count("high") == 20)
    before = order[: len(order) - order[::-1].index("high")].count("low")
    assert before <= 10  # of 20 claims about one starts at a lower priority


@pytest.mark.slow
async def test_low_priority_is_not_starved(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig(tick_items_max=1)
    rig.rng = Random(1)
    rig.serves(Provider())
    low = await rig.submit(["low"])
    high = await rig.submit(["high"] * 1_000, priority=9)
    for _ in range(400):  # one claim in twenty starts at a lower priority
        await rig.tick()
        if (await low.show()).succeeded:
            break
    assert ((await low.show()).succeeded, (await high.show()).ended) == (1, False)


async def test_time_limits_follow_the_databases_clock_not_the_workers(make_rig: MakeRig) -> None:
    """A worker whose own clock is a day ahead must not time out what is fresh."""
    rig = await make_rig()
    if not rig.site.is_postgres:
        pytest.skip("on SQLite the worker's clock is the database's")
    provider = rig.serves(Provider())
    provider.script = [HttpError(502)]
    await rig.site.advance(0)
    job = await rig.submit(deadline_seconds=600)
    rig.site.clock.ms += 86_400_000
    await rig.tick()
    item = await rig.item(job)
    assert (item.state, item.timed_out_at) == ("queued", None)


async def test_polls_that_fail_are_no_verdict_on_the_tasks(make_rig: MakeRig) -> None:
    rig = await make_rig(call_retries_max=0)
    provider = TaskProvider()
    provider.finishes_all = True
    provider.poll_script = [ConnectionError("no route")]
    rig.takes_tasks(provider)
    job = await rig.submit(["a"], "task")
    await rig.tick()
    await rig.site.advance(10)
    await rig.tick()
    assert (await rig.item(job)).state == "processing"
    await rig.site.advance(10)
    await rig.tick()
    assert ((await job.show()).succeeded, (await rig.item(job)).flaw) == (1, None)


async def test_a_handler_may_take_exactly_as_long_as_its_limit_says(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()

    @rig.app.handler("slow", timeout=0.2, retry="none")
    async def slow(item: float) -> str:
        await asyncio.sleep(item)
        return "done"

    job = await rig.submit([0.01, 30], "slow")
    async with rig.working():
        view = await job.wait(timeout_seconds=10)
    assert (view.succeeded, view.failed) == (1, 1)


async def test_hints_that_nobody_takes_are_dropped_by_whoever_sweeps(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    await rig.store.outbox.open_sink()
    await rig.submit(range(120))
    await rig.tick()
    assert (await rig.store.outbox.lag(WORK)).rows == 3
    await rig.site.advance(HINT_AGE_MS / 1000 + 1)
    await rig.tick()
    assert (await rig.store.outbox.lag(WORK)).rows == 0
