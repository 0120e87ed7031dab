"""hold, release, observe, probe: what all workers know of a provider, and of each other."""

import asyncio

from backstay.core.breaker import BreakerPolicy, BreakerState, Call
from tests.databases import START_MS
from tests.store.store_rig import Scene

POLICY = BreakerPolicy(calls_min=4, window_calls=10, open_ms=30_000, probes_max=2)


def calls(scene: Scene, ok: int, failed: int) -> list[Call]:
    now = scene.site.clock.ms
    return [Call(now, now, ok=True)] * ok + [Call(now, now, ok=False)] * failed


async def state_of(scene: Scene, provider: str = "p") -> BreakerState:
    return (await scene.store.providers.holds()).providers[provider].state


async def test_an_unknown_provider_is_not_held(scene: Scene) -> None:
    holds = await scene.store.providers.holds()
    assert (holds.providers, holds.jobs, holds.now) == ({}, {}, START_MS)


async def test_calls_of_several_workers_open_one_breaker(scene: Scene) -> None:
    other = await scene.site.open_store()
    await scene.store.providers.observe("p", calls(scene, 0, 2), POLICY)
    assert await state_of(scene) is BreakerState.CLOSED
    change = await other.providers.observe("p", calls(scene, 0, 2), POLICY)
    assert (change.before.state, change.after.state) == (BreakerState.CLOSED, BreakerState.OPEN)
    assert await state_of(scene) is BreakerState.OPEN


async def test_calls_told_at_the_same_moment_are_all_counted(scene: Scene) -> None:
    stores = [await scene.site.open_store() for _ in range(3)]
    policy = BreakerPolicy(calls_min=30, window_calls=30)
    told = [store.providers.observe("p", calls(scene, 0, 1), policy) for store in stores * 10]
    changes = await asyncio.gather(*told)
    assert [change.after.state for change in changes].count(BreakerState.OPEN) == 1


async def test_an_open_breaker_cools_to_half_open_and_closes_by_its_probes(scene: Scene) -> None:
    await scene.store.providers.observe("p", calls(scene, 0, 4), POLICY)
    await scene.site.advance(29.999)
    assert (await scene.store.providers.cool("p", POLICY)).after.state is BreakerState.OPEN
    await scene.site.advance(0.001)
    assert (await scene.store.providers.cool("p", POLICY)).after.state is BreakerState.HALF_OPEN
    await scene.store.providers.observe("p", calls(scene, 2, 0), POLICY)
    assert await state_of(scene) is BreakerState.CLOSED


async def test_a_failed_probe_opens_it_again(scene: Scene) -> None:
    await scene.store.providers.observe("p", calls(scene, 0, 4), POLICY)
    await scene.site.advance(30)
    await scene.store.providers.cool("p", POLICY)
    await scene.store.providers.observe("p", calls(scene, 0, 1), POLICY)
    assert await state_of(scene) is BreakerState.OPEN


async def test_the_right_to_probe_goes_to_one_worker(scene: Scene) -> None:
    await scene.store.providers.observe("p", calls(scene, 0, 4), POLICY)
    assert not await scene.store.providers.take_probe("p", 60), "an open breaker is not probed"
    await scene.site.advance(30)
    await scene.store.providers.cool("p", POLICY)
    other = await scene.site.open_store()
    tries = await asyncio.gather(*(store.providers.take_probe("p", 60) for store in (scene.store, other, other)))
    assert sorted(tries) == [False, False, True]
    await scene.site.advance(60)
    assert await other.providers.take_probe("p", 60), "a worker that died with the right does not keep it"


async def test_the_right_to_probe_is_free_again_after_a_failed_probe(scene: Scene) -> None:
    await scene.store.providers.observe("p", calls(scene, 0, 4), POLICY)
    for seconds in (30, 60):
        await scene.site.advance(seconds)
        await scene.store.providers.cool("p", POLICY)
        assert await scene.store.providers.take_probe("p", 3_600)
        await scene.store.providers.observe("p", calls(scene, 0, 1), POLICY)


async def test_the_right_to_probe_can_be_given_back(scene: Scene) -> None:
    await scene.store.providers.observe("p", calls(scene, 0, 4), POLICY)
    await scene.site.advance(30)
    await scene.store.providers.cool("p", POLICY)
    assert await scene.store.providers.take_probe("p", 3_600)
    await scene.store.providers.give_probe("p")
    assert await scene.store.providers.take_probe("p", 3_600)


async def test_a_hold_lasts_until_it_is_released(scene: Scene) -> None:
    await scene.store.providers.hold("p", "no credit left")
    await scene.site.advance(1_000_000)
    change = await scene.store.providers.cool("p", POLICY)
    assert (change.after.state, change.after.reason) == (BreakerState.HELD, "no credit left")
    assert (await scene.store.providers.release("p")).after.state is BreakerState.CLOSED


async def test_a_hold_for_some_time_is_probed_when_it_is_over(scene: Scene) -> None:
    await scene.store.providers.hold("p", "quota", seconds=300)
    await scene.site.advance(300)
    assert (await scene.store.providers.cool("p", POLICY)).after.state is BreakerState.HALF_OPEN


async def test_a_refused_account_is_held_for_longer_each_time(scene: Scene) -> None:
    for seconds in (30, 60, 120):
        change = await scene.store.providers.refuse("p", "no credit", POLICY, 300)
        assert (change.after.state, change.after.reason) == (BreakerState.HELD, "no credit")
        await scene.site.advance(seconds - 0.001)
        assert (await scene.store.providers.cool("p", POLICY)).after.state is BreakerState.HELD
        await scene.site.advance(0.001)
        assert (await scene.store.providers.cool("p", POLICY)).after.state is BreakerState.HALF_OPEN


async def test_providers_do_not_share_their_breakers(scene: Scene) -> None:
    await scene.store.providers.hold("p", "why")
    await scene.store.providers.observe("q", calls(scene, 1, 0), POLICY)
    assert await state_of(scene, "q") is BreakerState.CLOSED


async def test_a_change_is_told_in_the_providers_timeline(scene: Scene) -> None:
    await scene.store.providers.hold("p", "why")
    await scene.store.providers.hold("p", "why")
    await scene.store.providers.release("p")
    told = [(event.act, event.detail) for event in await scene.store.events.oldest("provider:p")]
    assert told == [("breaker_held", "why"), ("breaker_closed", None)]


async def test_a_worker_is_seen_while_it_beats_and_gone_when_it_leaves(scene: Scene) -> None:
    await scene.store.workers.register("w1", "host", 42, "", '["echo"]')
    await scene.site.advance(80)
    await scene.store.items.extend([], 90_000, "w1")
    (worker,) = await scene.store.workers.page()
    assert (worker.handlers, worker.seen_at, worker.alive(90_000)) == (("echo",), scene.site.clock.ms, True)
    await scene.site.advance(91)
    assert not (await scene.store.workers.page())[0].alive(90_000)
    await scene.store.workers.unregister("w1")
    (worker,) = await scene.store.workers.page()
    assert (worker.stopped_at, worker.alive(90_000)) == (scene.site.clock.ms, False)


async def test_workers_not_seen_for_a_week_are_forgotten(scene: Scene) -> None:
    await scene.store.workers.register("old", "host", 1, "", "[]")
    await scene.site.advance(7 * 86_400 + 1)
    await scene.store.workers.register("new", "host", 2, "", "[]")
    assert [worker.id for worker in await scene.store.workers.page()] == ["new"]
