"""tick: one bounded invocation, and a chain of them that ends."""

import asyncio

import pytest

from backstay.core.breaker import BreakerPolicy
from backstay.core.events import TickEnded
from backstay.store.workers import RecentTicks
from backstay.testing import virtual_time
from tests.engine.conftest import MakeRig
from tests.engine.provider import Provider, TaskProvider
from tests.engine.virtual import AskableProvider, virtual_rig

HOUR_MS = 3_600_000


async def test_a_tick_takes_no_more_items_than_its_bound(make_rig: MakeRig) -> None:
    rig = await make_rig(tick_items_max=7)
    provider = rig.serves(Provider())
    await rig.submit(range(20))
    assert (await rig.tick()).claimed == 7
    assert provider.calls == 7


async def test_a_tick_runs_no_more_at_once_than_its_bound(make_rig: MakeRig) -> None:
    rig = await make_rig(tick_concurrency=3)
    provider = rig.serves(Provider())
    job = await rig.submit(range(20))
    await rig.tick()
    assert (provider.peak <= 3, (await job.show()).succeeded) == (True, 20)


async def test_a_tick_ends_in_its_time_and_hands_back_what_it_could_not_finish(make_rig: MakeRig) -> None:
    rig = await make_rig(invocation_seconds=60)
    hung, slow = rig.serves(Provider(), "hung"), rig.serves(Provider(), "slow")
    hung.gate.clear()
    slow.gate.clear()
    job, _ = await rig.submit(range(3), "hung"), await rig.submit(["a"], "slow")
    ticking = asyncio.create_task(rig.tick())
    await rig.until(lambda: (hung.now, slow.now) == (3, 1))
    await rig.site.advance(60)
    slow.gate.set()  # an item that ends makes it look at the time
    report = await asyncio.wait_for(ticking, 60)
    items = [await rig.item(job, n) for n in range(3)]
    assert {(item.state, item.leased_by, item.attempt_count) for item in items} == {("queued", None, 0)}
    assert (report.claimed, report.follow_up) == (4, True)


@virtual_time
async def test_a_tick_of_a_provider_that_hangs_at_everything_ends_in_its_time() -> None:
    async with virtual_rig(invocation_seconds=100, handler_timeout_seconds=3_600) as rig:
        provider = rig.takes_tasks(AskableProvider("task"))
        await rig.under_way(provider)
        await rig.lose(provider)
        await rig.clock.sleep(400)
        await rig.submit(provider)
        provider.hangs = {"submit", "poll", "find"}

        @rig.app.handler("function")
        async def hang(item: int) -> None:
            await asyncio.Event().wait()

        await rig.app.submit("function", [1])
        report = await rig.tick()
        assert 90 <= report.seconds <= 100
        assert (report.asked, report.polled, report.claimed) == (1, 1, 2)


@virtual_time
async def test_a_tick_whose_providers_do_not_say_how_they_are_ends_in_its_time() -> None:
    async with virtual_rig(invocation_seconds=100) as rig:

        async def hang(*_: object) -> None:
            await asyncio.Event().wait()

        async def fail(item: int) -> None:
            raise ConnectionError("no route")

        plain = BreakerPolicy(mode="hold", window_calls=1, calls_min=1)
        for name in ("one", "two", "three"):
            rig.app.handler(name, breaker=plain, health=hang)(fail)
            await rig.app.submit(name, [1])
        await rig.tick()
        await rig.clock.sleep(60)
        assert 50 <= (await rig.tick()).seconds <= 100


async def test_a_tick_polls_and_submits_within_one_bound(make_rig: MakeRig) -> None:
    rig = await make_rig(tick_items_max=4)
    provider = TaskProvider()
    rig.takes_tasks(provider)
    await rig.submit(range(12), "task")
    for _ in range(3):
        await rig.tick()
    await rig.site.advance(10)
    provider.finishes_all = True
    report = await rig.tick()
    assert (report.polled, report.claimed) == (2, 0)


async def test_a_tick_of_one_item_polls_as_well(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig(tick_items_max=1)
    provider = TaskProvider()
    provider.finishes_all = True
    rig.takes_tasks(provider)
    job = await rig.submit(["a"], "task")
    await rig.tick()
    await rig.site.advance(10)
    await rig.tick()
    assert (await job.show()).succeeded == 1


async def test_a_tick_asks_for_another_only_if_items_are_pending(make_rig: MakeRig) -> None:
    rig = await make_rig(tick_items_max=2)
    rig.serves(Provider())
    assert not (await rig.tick()).follow_up
    await rig.submit(range(3))
    assert (await rig.tick()).follow_up
    last = await rig.tick(1)
    assert (last.pending, last.follow_up) == (False, False)


async def test_a_tick_asks_for_none_when_its_chain_is_long_enough(make_rig: MakeRig) -> None:
    rig = await make_rig(tick_items_max=1, chain_depth_max=0)
    rig.serves(Provider())
    await rig.submit(range(3))
    report = await rig.tick()
    assert (report.pending, report.follow_up) == (True, False)
    ended = rig.told(TickEnded)[0]
    assert (ended.depth, ended.follow_up, ended.full) == (0, False, True)


async def test_what_waits_for_its_time_is_left_to_the_schedule(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    provider = rig.serves(Provider())
    provider.script = [TimeoutError()]
    await rig.submit()
    report = await rig.tick()
    assert (report.pending, report.follow_up) == (False, False)


async def test_ticks_at_the_same_time_submit_every_item_once(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = TaskProvider()
    rig.takes_tasks(provider)
    job = await rig.submit(range(300), "task")
    await asyncio.gather(*(rig.tick() for _ in range(3)))
    assert (len(provider.bill), provider.bill.total()) == (300, 300)
    assert (await job.show()).processing == 300


async def test_a_tick_is_written_down_with_what_became_of_it(make_rig: MakeRig) -> None:
    rig = await make_rig(tick_items_max=1, chain_depth_max=1)
    rig.serves(Provider())
    await rig.submit(range(3))
    for depth in (0, 1):
        await rig.tick(depth)
    assert await rig.store.invocations.lately(HOUR_MS) == RecentTicks(ticks=2, chains=1, chains_full=1, failed=0)


async def test_a_tick_that_was_broken_off_is_written_down_as_failed(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    provider.gate.clear()
    await rig.submit()
    ticking = asyncio.create_task(rig.tick())
    await rig.until(lambda: provider.calls)
    ticking.cancel()
    provider.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await ticking
    assert await rig.store.invocations.lately(HOUR_MS) == RecentTicks(ticks=1, chains=1, chains_full=0, failed=1)
