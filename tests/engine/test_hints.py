"""Hints: what they name goes first, what they do not name is found as well, and without them nothing is lost."""

from typing import Any

import pytest

from backstay.client import Job
from backstay.core.breaker import BreakerPolicy
from backstay.core.errors import DatabaseUnreachable
from backstay.core.ids import item_id
from backstay.core.pace import Answers
from backstay.engine.engine import Engine
from backstay.engine.hints import DATABASE_SECONDS, HELD_SECONDS_MAX
from backstay.testing import virtual_time
from tests.engine.carrier import Carrier
from tests.engine.conftest import MakeRig
from tests.engine.provider import HttpError, Provider
from tests.engine.rig import Rig
from tests.engine.virtual import SlowProvider, virtual_rig


def carrier_of(rig: Rig) -> Carrier:
    return Carrier(rig.site.clock.monotonic)


async def started(rig: Rig, hints: Carrier, concurrency: int = 100) -> Engine:
    """An engine that claims when the test says so; the database has just had its turn."""
    engine = rig.engine(concurrency, heart=False, hints=hints)
    await engine.start()
    await engine.claim_once(1000)
    return engine


async def claimed(rig: Rig, job: Job, position: int = 0) -> bool:
    return (await rig.item(job, position)).state != "queued"


async def claimed_at_the_databases_turn(rig: Rig, engine: Engine) -> int:
    await rig.site.advance(DATABASE_SECONDS)
    return await engine.claim_once(1000)


async def test_what_is_named_goes_first_and_the_rest_waits_for_the_databases_turn(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    hints = carrier_of(rig)
    engine = await started(rig, hints)
    ahead, job = await rig.submit(range(3), priority=9), await rig.submit(range(3))
    message = hints.send("call", [item_id(job.id, 2)])
    assert await engine.claim_once(1000) == 1
    assert await claimed(rig, job, 2)
    assert hints.acked == [message]
    assert await engine.claim_once(1000) == 0  # nothing in hand, and the database's second is not over
    assert not await claimed(rig, ahead)
    assert await claimed_at_the_databases_turn(rig, engine) == 5
    await engine.stop(1)


async def test_each_second_the_databases_order_is_served_however_much_is_in_hand(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    provider.gate.clear()
    hints = carrier_of(rig)
    engine = await started(rig, hints, concurrency=10)
    old = await rig.submit(range(2))
    await rig.site.advance(0.5)
    young = await rig.submit(range(8))
    hints.send_job("call", young.id, 8)
    assert await engine.claim_once(4) == 4
    assert not await claimed(rig, old)
    await rig.site.advance(DATABASE_SECONDS)
    assert await engine.claim_once(2) == 2
    assert [await claimed(rig, old, n) for n in range(2)] == [True, True]
    assert await engine.claim_once(4) == 4  # and then what is left in hand
    provider.gate.set()
    await engine.stop(5)
    assert (provider.calls, provider.paid_twice, len(hints.acked)) == (10, [], 1)


async def test_a_worker_with_hints_finds_by_itself_what_no_hint_came_for(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    hints = carrier_of(rig)
    async with rig.working(concurrency=4, hints=hints):
        job = await rig.submit(range(40))
        view = await job.wait(timeout_seconds=20)
    assert view.succeeded == 40


async def test_as_long_as_the_database_has_more_and_nothing_is_in_hand_it_is_asked_at_once(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    provider.gate.clear()
    await rig.submit(range(9))
    hints = carrier_of(rig)
    engine = rig.engine(100, heart=False, hints=hints)
    await engine.start()
    assert [await engine.claim_once(4) for _ in range(3)] == [4, 4, 1]
    await rig.submit()
    assert await engine.claim_once(4) == 0
    provider.gate.set()
    await engine.stop(5)


async def test_while_the_hints_are_not_alive_the_worker_goes_by_the_database_alone(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    hints = carrier_of(rig)
    engine = await started(rig, hints)
    hints.turn(alive=False)
    assert engine.next_turn_at is None
    for _ in range(3):
        await rig.submit()
        assert await engine.claim_once(1000) == 1
    await engine.stop(1)


async def test_a_hint_wakes_an_idle_worker_and_a_broker_that_goes_away_does_so_too(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    hints = carrier_of(rig)
    async with rig.working(hints=hints) as worker:
        await rig.until(lambda: worker.engine.next_turn_at)
        turns = worker.engine.turns
        assert turns is not None
        turns.database_at = float("inf")  # only the hint can make it look
        job = await rig.submit()
        hints.send_job("call", job.id, 1)
        await job.wait(timeout_seconds=5)
        turns.database_at = float("inf")
        other = await rig.submit()
        hints.turn(alive=False)
        await other.wait(timeout_seconds=5)


async def test_a_message_whose_items_are_done_is_acked_and_nothing_runs_twice(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    hints = carrier_of(rig)
    async with rig.working(hints=hints):
        job = await rig.submit(range(30))
        hints.send_job("call", job.id, 30)
        hints.send_job("call", job.id, 30)
        await job.wait(timeout_seconds=20)
        late = hints.send_job("call", job.id, 30)
        unknown = hints.send("call", [1 << 60])
        await rig.until(lambda: {late, unknown} <= set(hints.acked))
    assert (provider.calls, provider.paid_twice, hints.in_hand) == (30, [], 0)
    assert 1 << 60 in hints.not_won


async def test_a_claim_that_failed_leaves_its_messages_in_hand(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    hints = carrier_of(rig)
    engine = await started(rig, hints)
    job = await rig.submit()
    hints.send_job("call", job.id, 1)
    claim_named = rig.store.items.claim_named

    async def cut(*_: Any) -> Any:
        await claim_named(*_)
        raise DatabaseUnreachable("the answer was lost")

    rig.store.items.claim_named = cut
    with pytest.raises(DatabaseUnreachable):
        await engine.claim_once(1000)
    assert (hints.acked, hints.in_hand) == ([], 1)
    rig.store.items.claim_named = claim_named
    assert await engine.claim_once(1000) == 1  # what the lost answer had won was given back first
    assert hints.in_hand == 0
    await engine.stop(1)
    assert (await rig.item(job)).state == "succeeded"


async def test_the_room_is_shared_by_the_handlers_that_have_something_in_hand(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    provider.gate.clear()
    for name in ("other", "third"):
        rig.serves(provider, name)
    hints = carrier_of(rig)
    engine = await started(rig, hints, concurrency=10)
    jobs = {name: await rig.submit(range(size), name) for name, size in (("call", 20), ("other", 2), ("third", 20))}
    for name, size in (("call", 20), ("other", 2)):
        hints.send_job(name, jobs[name].id, size)
    assert await engine.claim_once(1000) in (7, 10)  # the two of the small one, and a half or all of the rest
    await engine.claim_once(1000)
    held = [flight.item.handler for flight in engine.flights.all()]
    assert {name: held.count(name) for name in jobs} == {"call": 8, "other": 2, "third": 0}
    provider.gate.set()
    await engine.stop(5)


async def test_hints_for_a_paced_handler_only_wake_the_claim_in_order(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    handler = rig.app.handlers["call"]
    handler.answers, handler.pace_name = Answers(), "paced"
    await rig.store.providers.set_pace("paced", (None, None), 100)
    hints = carrier_of(rig)
    engine = await started(rig, hints)
    first, named = await rig.submit(range(2), priority=9), await rig.submit(range(2))
    message = hints.send("call", [item_id(named.id, 1)])
    assert await engine.claim_once(1) == 1
    assert await claimed(rig, first)  # the first in order, not the one that was named
    assert not await claimed(rig, named, 1)
    assert hints.acked == [message]
    await engine.stop(1)


async def test_a_message_held_too_long_is_let_go_of_and_its_items_are_not_lost(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), breaker=BreakerPolicy(calls_min=2, window_calls=4, open_ms=30_000))
    provider.script = [HttpError(502)] * 4
    await rig.submit(range(4))
    await rig.tick()  # the breaker is open
    hints = carrier_of(rig)
    engine = await started(rig, hints)
    job = await rig.submit()
    message = hints.send_job("call", job.id, 1)
    assert await engine.claim_once(1000) == 0
    assert (hints.acked, hints.in_hand) == ([], 1)
    await rig.site.advance(HELD_SECONDS_MAX)
    hints.tend()
    assert (hints.acked, hints.in_hand) == ([message], 0)
    await engine.stop(1)
    async with rig.working(hints=hints):
        await job.wait(timeout_seconds=20)


@virtual_time
async def test_a_worker_whose_provider_is_ill_does_not_spin_on_what_is_in_hand() -> None:
    async with virtual_rig() as rig:
        provider = rig.takes_tasks(SlowProvider("task"))
        hints = Carrier(rig.clock.monotonic)
        job = await rig.submit(provider, 5)
        await rig.client.store.providers.hold("task", "by hand")
        looks: list[float] = []
        async with rig.working(hints=hints) as worker:
            claim_once = worker.engine.claim_once

            async def counted(items_max: int) -> int:
                looks.append(rig.clock.monotonic())
                assert len(looks) < 1_000, "it spins"
                return await claim_once(items_max)

            worker.engine.claim_once = counted  # type: ignore[method-assign]
            hints.send_job("task", job.id, 5)
            await rig.clock.sleep(60)
            assert 20 <= len(looks) <= 150, "now and then, and at every sweep"
            assert provider.calls() == 0
            await rig.client.store.providers.release("task")
            await rig.clock.sleep(10)
            assert provider.calls("submit") == 5
