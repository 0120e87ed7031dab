"""Polls, look-ups and cancels: how often and how long a provider is asked, and that nobody waits for another's."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from backstay.client import Job
from backstay.core.errors import Throttled
from backstay.core.events import Trouble
from backstay.engine import poller
from backstay.engine.poller import ItemQuota
from backstay.testing import virtual_time
from tests.engine.conftest import MakeRig
from tests.engine.provider import TaskProvider
from tests.engine.virtual import AskableProvider, SlowProvider, VirtualRig, virtual_rig

MINUTE = 60.0
CALLS = 7  # 6 inner retries
LONGEST_SECONDS = (CALLS + CALLS - 1) * MINUTE  # no wait is longer than a call
QUESTIONS = ("poll", "find", "cancel")


async def due(rig: VirtualRig, *providers: SlowProvider) -> list[tuple[Job, Job, Job]]:
    """Of each provider three jobs of an item: one is to be polled, one looked up, and one cancelled, now."""
    jobs = []
    for provider in providers:
        polled, cancelled = [await rig.under_way(provider) for _ in range(2)]
        jobs.append((polled, await rig.lose(provider), cancelled))
    await rig.clock.sleep(400)
    for _, _, cancelled in jobs:
        await cancelled.cancel()
    for provider in providers:
        provider.asked.clear()
    return jobs


async def one_turn(rig: VirtualRig, provider: SlowProvider, *what: str) -> list[float]:
    """When a worker asks this, from its first call until it lets go of the item."""
    async with rig.working() as worker, asyncio.timeout(2 * LONGEST_SECONDS):
        flights = worker.engine.flights
        while not provider.calls(*what) or flights.polled_leases() or flights.leases(rig.clock.monotonic()):
            await rig.clock.sleep(0.5)
        return provider.times(*what)


@pytest.mark.parametrize("what", ["poll", "find"])
def test_a_question_that_hangs_is_cut_off_and_asked_as_often_as_the_limits_say(what: str) -> None:
    @virtual_time
    async def ask() -> None:
        async with virtual_rig() as rig:
            provider = rig.takes_tasks(AskableProvider("task"))
            await (rig.under_way(provider) if what == "poll" else rig.lose(provider))
            await rig.clock.sleep(400)
            provider.asked.clear()
            provider.hangs = {what}
            times = await one_turn(rig, provider, what)
        assert len(times) == CALLS
        assert all(later - earlier >= MINUTE for earlier, later in pairwise(times)), "each has its minute"
        assert times[-1] - times[0] <= LONGEST_SECONDS

    ask()


@pytest.mark.parametrize(("what", "calls"), [("poll", CALLS), ("find", CALLS), ("cancel", CALLS - 1)])
def test_a_question_that_fails_is_asked_as_often_as_the_limits_say(what: str, calls: int) -> None:
    """A cancel follows a poll, which was the first call of its turn."""

    @virtual_time
    async def ask() -> None:
        async with virtual_rig() as rig:
            provider = rig.takes_tasks(AskableProvider("task"))
            job = await (rig.lose(provider) if what == "find" else rig.under_way(provider))
            await rig.clock.sleep(400)
            if what == "cancel":
                await job.cancel()
            provider.asked.clear()
            provider.fails = {what}
            assert len(await one_turn(rig, provider, what)) == calls

    ask()


@virtual_time
async def test_a_poll_and_the_cancel_that_follows_are_no_more_calls_than_the_limits_say() -> None:
    async with virtual_rig() as rig:
        provider = rig.takes_tasks(SlowProvider("task"))
        job = await rig.under_way(provider)
        await rig.clock.sleep(400)
        await job.cancel()
        provider.asked.clear()
        provider.fails = {"poll", "cancel"}
        times = await one_turn(rig, provider, "poll", "cancel")
        assert (len(times), provider.calls("cancel")) == (CALLS, 1)


@virtual_time
async def test_a_look_up_and_the_request_that_follows_are_no_more_calls_than_the_limits_say() -> None:
    patient = {
        "lease_seconds": 900,
        "send_guard_seconds": 800,
        "submitting_seconds": 2_000,
        "call_timeout_seconds": 600,
    }
    async with virtual_rig(**patient) as rig:
        provider = rig.takes_tasks(AskableProvider("task"))
        job = await rig.lose(provider, deadline_seconds=3_000)
        await rig.clock.sleep(3_001)
        await rig.tick()
        await job.retry()  # it may have been sent, so it is looked up first
        provider.fails, provider.fails_left = {"find"}, CALLS - 1
        while not provider.calls("find"):
            await rig.clock.sleep(10)
            await rig.tick()
        assert (provider.calls("find"), provider.calls("submit")) == (CALLS - 1, 0)


@virtual_time
async def test_no_wait_between_retries_is_longer_than_a_call_may_take() -> None:
    async with virtual_rig(call_timeout_seconds=10, call_retries_max=9) as rig:
        provider = rig.takes_tasks(SlowProvider("task"))
        await rig.under_way(provider)
        await rig.clock.sleep(400)
        provider.asked.clear()
        provider.fails = {"poll"}
        times = await one_turn(rig, provider, "poll")
        assert len(times) == 10
        assert max(later - earlier for earlier, later in pairwise(times)) == pytest.approx(10)


@virtual_time
async def test_what_is_asked_about_is_nobody_elses_until_the_last_retry() -> None:
    async with virtual_rig() as rig:
        provider = rig.takes_tasks(AskableProvider("task"))
        await due(rig, provider)
        provider.hangs = {"poll", "find"}
        async with rig.working(), rig.working(), rig.working():
            await rig.clock.sleep(7 * MINUTE)  # far longer than a lease
            assert (provider.peak["poll"], provider.peak["find"]) == (1, 1)
            assert min(provider.calls("poll"), provider.calls("find")) >= 4


@virtual_time
async def test_what_a_dead_poller_asked_about_is_asked_about_by_another_soon() -> None:
    async with virtual_rig() as rig:
        provider = rig.takes_tasks(AskableProvider("task"))
        [(polled, lost, _)] = await due(rig, provider)
        provider.hangs = {"poll", "find"}
        async with rig.working(heart=False):  # it hangs in its questions, and nobody extends its claims any more
            await rig.clock.sleep(10)
            provider.hangs, provider.ended = set(), True
            async with rig.working():
                await rig.clock.sleep(rig.app.limits.lease_seconds + 10)
                states = {(await rig.item(job)).state for job in (polled, lost)}
    assert states == {"succeeded"}


@virtual_time
async def test_in_a_worker_a_slow_provider_holds_up_no_question_to_another() -> None:
    async with virtual_rig() as rig:
        slow, quick = (rig.takes_tasks(AskableProvider(name)) for name in ("slow", "quick"))
        _, jobs = await due(rig, slow, quick)
        slow.hangs = set(QUESTIONS)
        async with rig.working():
            await rig.clock.sleep(30)
            assert quick.calls("cancel") == 1
            quick.ended = True
            await rig.clock.sleep(20)
            assert [str((await job.show()).state) for job in jobs] == ["completed", "completed", "cancelled"]
            assert (slow.calls("poll"), slow.calls("find")) == (1, 1), "it hangs yet"


@virtual_time
async def test_in_a_tick_a_slow_provider_holds_up_no_question_and_no_item_of_another() -> None:
    async with virtual_rig(invocation_seconds=300) as rig:
        slow, quick = (rig.takes_tasks(AskableProvider(name)) for name in ("slow", "quick"))
        _, (polled, lost, cancelled) = await due(rig, slow, quick)
        new = await rig.submit(quick)
        slow.hangs = set(QUESTIONS)
        report = await rig.tick()
        assert report.seconds <= 300
        assert slow.calls("poll") >= 3
        assert {what: quick.calls(what) for what in (*QUESTIONS, "submit")} == {
            **{"poll": 1, "find": 1, "cancel": 1},
            "submit": 2,  # what never arrived, and what is new
        }
        assert {(await rig.item(job)).state for job in (polled, lost, cancelled, new)} == {"processing"}
        slow.hangs, quick.ended = set(), True  # what a cancelled task comes to is waited for
        await rig.clock.sleep(10)
        await rig.tick()
        assert str((await cancelled.show()).state) == "cancelled"


@pytest.mark.parametrize("items_max", [1, 2, 3, 4, 9, 40])
def test_a_tick_looks_up_polls_and_takes_no_more_items_than_its_bound(items_max: int) -> None:
    @virtual_time
    async def look() -> None:
        async with virtual_rig(tick_items_max=50) as rig:
            kinds = [rig.takes_tasks(AskableProvider(name)) for name in ("one", "two", "three")]
            for provider in kinds:
                await rig.under_way(provider, 12)
                await rig.lose(provider, 12)
            await rig.clock.sleep(400)
            for provider in kinds:
                await rig.submit(provider, 12)
                provider.asked.clear()
            rig.app.limits = replace(rig.app.limits, tick_items_max=items_max)
            report = await rig.tick()
            found, sent = (sum(provider.calls(what) for provider in kinds) for what in ("find", "submit"))
            assert (report.asked, report.claimed) == (found, sent)
            assert report.asked + report.polled + report.claimed == items_max, "there is work enough for all of it"
            if items_max >= 9:
                shares = [provider.calls("find") for provider in kinds]
                assert max(shares) - min(shares) <= 1, "nobody takes another's part"

    look()


@virtual_time
async def test_what_some_handlers_do_not_need_of_a_tick_is_there_for_the_others() -> None:
    async with virtual_rig(tick_items_max=50) as rig:
        busy, *_ = (rig.takes_tasks(AskableProvider(name)) for name in ("busy", "idle", "lazy"))
        await rig.under_way(busy, 40)
        await rig.clock.sleep(10)
        await rig.submit(busy, 40)
        rig.app.limits = replace(rig.app.limits, tick_items_max=40)
        report = await rig.tick()
        assert (report.asked, report.polled, report.claimed) == (0, 20, 20)


@virtual_time
async def test_a_long_wait_that_a_provider_asks_for_is_not_sat_out_under_a_claim() -> None:
    async with virtual_rig() as rig:
        provider = rig.takes_tasks(SlowProvider("task"))
        job = await rig.under_way(provider)
        await rig.clock.sleep(10)
        provider.asked.clear()
        provider.fails, provider.error = {"poll"}, Throttled("busy", 900)
        async with rig.working():
            await rig.clock.sleep(1)
            assert (await rig.item(job)).leased_by is None
            provider.fails = set()
            await rig.clock.sleep(890)
            assert provider.calls("poll") == 1
            await rig.clock.sleep(20)
            assert provider.calls("poll") >= 2


@virtual_time
async def test_a_cancelled_task_that_does_not_end_is_polled_at_its_interval_and_cancelled_once() -> None:
    async with virtual_rig(poll_interval_seconds=10) as rig:
        provider = rig.takes_tasks(SlowProvider("task"))
        job = await rig.under_way(provider)
        await rig.clock.sleep(10)
        await job.cancel()
        provider.asked.clear()
        async with rig.working():
            await rig.clock.sleep(200)
        assert (provider.calls("cancel"), provider.calls("poll") in range(15, 23)) == (1, True), provider.calls("poll")


async def test_what_was_cancelled_is_not_remembered_for_ever(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller, "CANCELLED_MAX", 2)
    rig = await make_rig()
    provider = TaskProvider()
    rig.takes_tasks(provider)
    engine = rig.engine(heart=False)
    await engine.start()
    for _ in range(4):
        job = await rig.submit(["a"], "task")
        await rig.tick()
        await job.cancel()
        await engine.sweeper.run_once()
        await engine.gate.refresh(max_age_seconds=0)
        await engine.poller.run_once(ItemQuota(10))
        assert len(engine.poller._cancelled) <= 3
    await engine.stop(5)
    assert provider.cancelled == ["task-0", "task-1", "task-2", "task-3"]


@pytest.mark.slow
@virtual_time
async def test_a_provider_that_cancels_nothing_is_not_asked_to_cancel_hundreds() -> None:
    async with virtual_rig(tick_items_max=1_000) as rig:
        provider = rig.takes_tasks(SlowProvider("task"))
        job = await rig.under_way(provider, 300)
        await rig.clock.sleep(10)
        await job.cancel()
        provider.hangs = {"cancel"}
        troubles: list[Trouble] = []
        rig.app.bus.subscribe(lambda event: troubles.append(event) if isinstance(event, Trouble) else None)
        async with rig.working():
            view = await job.wait(timeout_seconds=rig.app.limits.cancel_grace_seconds + LONGEST_SECONDS + MINUTE)
        assert (str(view.state), view.failed) == ("cancelled", 300), "nobody knows what became of them"
        assert provider.peak["cancel"] <= 10
        told = [trouble.message for trouble in troubles if trouble.where == "cancel at task"]
        assert 1 <= len(told) <= 2, "it is asked again when its turn is over, for as long as the grace lasts"
        assert all(message.endswith("290 more were not tried") for message in told)
