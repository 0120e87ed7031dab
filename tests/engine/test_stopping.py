"""Stopping a worker: what runs may finish, what cannot is handed back at no cost, nothing is started any more."""

import asyncio
import gc
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from backstay.core.errors import DatabaseUnreachable
from backstay.core.events import ItemsClaimed, LeasesLost, Trouble, WorkerStarted, WorkerStopped, WorkerStopping
from backstay.core.states import JobState
from backstay.engine.parts import drop_lost_items
from backstay.engine.worker import Worker
from backstay.store.store import Store
from tests.engine.conftest import MakeRig
from tests.engine.provider import Provider, TaskProvider


async def test_what_runs_may_finish_within_the_grace(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    provider.gate.clear()
    job = await rig.submit(["a", "b"])
    async with rig.working(grace=20):
        await rig.until(lambda: provider.now == 2)
        asyncio.get_running_loop().call_later(0.1, provider.gate.set)
    view = await job.show()
    assert (view.state, view.repeats, provider.calls) == (JobState.COMPLETED, 0, 2)


async def test_a_shutdown_costs_no_attempt(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    provider.gate.clear()
    job = await rig.submit(["a", "b"])
    async with rig.working(grace=0):
        await rig.until(lambda: provider.now == 2)
    for position in range(2):
        item = await rig.item(job, position)
        assert (item.state, item.attempt_count, item.leased_by, item.repeats) == ("queued", 0, None, 1)
    assert rig.told(WorkerStopped)[0].handed_back == 2


async def test_a_call_that_can_be_asked_about_is_left_to_be_asked_about(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), askable=True)
    provider.gate.clear()
    job = await rig.submit()
    async with rig.working(grace=0):
        await rig.until(lambda: provider.now == 1)
    item = await rig.item(job)
    assert (item.state, item.attempt_count, item.leased_by) == ("submitting", 0, None)


async def test_a_task_whose_poll_is_cut_off_is_polled_again_at_once(make_rig: MakeRig) -> None:
    rig = await make_rig(poll_interval_seconds=0.05)
    asked = asyncio.Event()

    class SilentProvider(TaskProvider):
        async def poll(self, task_ids: Sequence[str]) -> dict[str, Any]:
            asked.set()
            await asyncio.Event().wait()
            return {}

    rig.takes_tasks(SilentProvider())
    job = await rig.submit(handler="task")
    async with rig.working(grace=0):
        await asyncio.wait_for(asked.wait(), 20)
    item = await rig.item(job)
    assert (item.state, item.leased_by) == ("processing", None)
    assert item.due_at is not None
    assert item.due_at <= rig.site.clock.now_ms() + 5_000, "and not when the lease of the poll ends"


async def test_what_was_claimed_and_not_begun_goes_back_without_a_trace(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    job = await rig.submit(range(5))
    engine = rig.engine()
    await engine.start()
    assert await engine.claim_once(5) == 5
    await engine.stop(0)  # nothing has let the runs take their first step
    assert (provider.calls, engine.flights.running) == (0, 0)
    for position in range(5):
        item = await rig.item(job, position)
        assert (item.state, item.leased_by, item.attempt_count, item.repeats) == ("queued", None, 0, 0)


async def test_what_a_claim_wins_after_everything_was_cut_off_is_not_sent(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    job = await rig.submit(range(5))
    engine = rig.engine()
    await engine.start()
    engine.flights.shut_down()
    assert await engine.claim_once(5) == 5
    await engine.stop(20)
    assert provider.calls == 0
    for position in range(5):
        item = await rig.item(job, position)
        assert (item.state, item.leased_by, item.attempt_count, item.repeats) == ("queued", None, 0, 0)


async def test_a_worker_in_a_hurry_claims_nothing_more(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    async with rig.working(grace=20) as worker:
        worker.stop_now()
        job = await rig.submit(range(5))
        await asyncio.sleep(0.3)  # it looks every twentieth of a second
    assert (provider.calls, (await rig.item(job, 4)).state) == (0, "queued")
    assert rig.told(ItemsClaimed) == []


async def test_what_was_lost_before_it_began_is_not_sent_and_nothing_is_written(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    job = await rig.submit(["lost", "kept"])
    engine = rig.engine(heart=False)
    await engine.start()
    await engine.claim_once(5)
    lost = next(flight.item for flight in engine.flights.all() if flight.item.body == '"lost"')
    drop_lost_items(
        {(lost.id, lost.fence)}, engine.flights, engine.parts
    )  # nothing has let the runs take their first step
    await engine.stop(5)
    assert (provider.calls, list(provider.results.values())) == (1, ["kept"])
    states = [((item := await rig.item(job, n)).state, item.attempt_count, item.repeats) for n in range(2)]
    assert states == [("submitting", 0, 0), ("succeeded", 1, 0)]


async def test_what_was_cancelled_before_it_began_is_not_sent(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    unwanted, wanted = await rig.submit(["unwanted"]), await rig.submit(["wanted"])
    engine = rig.engine(heart=False)
    await engine.start()
    await engine.claim_once(5)
    flight = next(flight for flight in engine.flights.all() if flight.item.job_id == unwanted.id)
    flight.stop_by(rig.site.clock.monotonic() + 60)  # nothing has let the runs take their first step
    await unwanted.cancel()
    await engine.stop(5)
    await rig.sweep()
    assert (list(provider.results.values()), (await wanted.show()).succeeded) == (["wanted"], 1)
    view = await unwanted.show()
    assert (view.state, view.cancelled, view.failed) == (JobState.CANCELLED, 1, 0)


async def test_what_was_claimed_too_long_ago_is_not_sent_under_that_claim(make_rig: MakeRig) -> None:
    """A process that slept until the answer to its claim came."""
    rig = await make_rig()
    provider = rig.serves(Provider())
    job = await rig.submit(range(2))
    claim = rig.store.items.claim

    async def slow_claim(*args: object) -> object:
        taken = await claim(*args)
        await rig.site.advance(rig.limits.send_guard_seconds + 1)
        return taken

    rig.store.items.claim = slow_claim
    engine = rig.engine(heart=False)
    await engine.start()
    assert await engine.claim_once(5) == 2
    await engine.stop(5)
    assert provider.calls == 0
    states = [((item := await rig.item(job, n)).state, item.attempt_count, item.leased_by) for n in range(2)]
    assert states == [("queued", 0, None)] * 2
    rig.store.items.claim = claim
    await rig.tick()
    assert ((await job.show()).succeeded, provider.calls) == (2, 2)


async def test_a_worker_stops_though_its_last_changes_cannot_be_stored(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    job = await rig.submit()

    async def away(*_: object) -> None:
        raise DatabaseUnreachable("no route to the database")

    async with rig.working() as worker:
        await job.wait(timeout_seconds=20)
        rig.store.workers.unregister = away
    assert [(trouble.where, trouble.message) for trouble in rig.told(Trouble)] == [
        ("stop", "the worker's last changes could not be stored: no route to the database")
    ]
    assert [event.worker for event in rig.told(WorkerStopped)] == [worker.engine.parts.worker]


@pytest.mark.parametrize(("grace", "open_gate", "state"), [(20, True, "succeeded"), (0, False, "queued")])
async def test_a_worker_told_to_stop_while_it_claims_runs_nothing_unseen(
    make_rig: MakeRig, grace: float, open_gate: bool, state: str
) -> None:
    """A claim that is answered after the order to stop must not start calls that nobody will settle."""
    rig = await make_rig()
    provider = rig.serves(Provider())
    if not open_gate:
        provider.gate.clear()
    claim, asked, answer = rig.store.items.claim, asyncio.Event(), asyncio.Event()

    async def slow_claim(*args: object) -> object:
        asked.set()
        await answer.wait()
        return await claim(*args)

    rig.store.items.claim = slow_claim
    job = await rig.submit(range(3))
    worker = Worker(rig.engine(), 0.05)
    await worker.start()
    await asked.wait()
    stopping = asyncio.create_task(worker.stop(grace))
    await rig.until(lambda: rig.told(WorkerStopping))
    answer.set()
    await stopping
    items = [await rig.item(job, n) for n in range(3)]
    assert {(item.state, item.leased_by) for item in items} == {(state, None)}
    assert provider.calls == sum(item.repeats for item in items) + (3 if open_gate else 0), (
        "every call is accounted for"
    )


async def test_every_worker_has_a_name_of_its_own_life(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    rig.serves(Provider())
    for _ in range(3):
        async with rig.working():
            pass
    names = [event.worker for event in rig.told(WorkerStarted)]
    assert len(set(names)) == 3
    assert {worker.id for worker in await rig.store.workers.page()} == set(names)


async def test_a_sync_handler_that_never_returns_is_timed_out_retried_and_left_behind(make_rig: MakeRig) -> None:
    rig = await make_rig()
    started, release = [], threading.Event()

    @rig.app.handler("stuck", timeout=0.1)
    def stuck(item: str) -> None:
        started.append(item)
        release.wait(60)

    job = await rig.submit(["a"], "stuck")
    began = time.monotonic()
    async with rig.working():
        for tries in (1, 2):
            await rig.until(lambda tries=tries: len(started) == tries)
            await rig.in_state(job, "queued")
            await rig.site.advance(30)
        view = await job.wait(timeout_seconds=20)
    assert time.monotonic() - began < 20
    (result,) = await rig.results(job)
    assert (view.state, result.error_code, result.attempts, len(started)) == ("failed", "GW_TIMEOUT", 3, 3)
    release.set()


@pytest.mark.slow
async def test_a_handler_that_blocks_the_event_loop_keeps_its_items(make_rig: MakeRig) -> None:
    rig = await make_rig(lease_seconds=0.6, heartbeat_seconds=0.1, send_guard_seconds=0.5)
    runs = []

    @rig.app.handler("blocks")
    async def blocks(item: str) -> str:
        runs.append(item)
        time.sleep(2)  # noqa: ASYNC251
        return item

    ended, stolen = threading.Event(), []

    async def steal() -> None:
        store = await rig.site.lend_store()
        while not ended.is_set():
            stolen.extend((await store.items.rescue("blocks", False, 10, "thief", 90_000)).items)
            await asyncio.sleep(0.05)
        await store.close()

    thief = threading.Thread(target=lambda: asyncio.run(steal()))
    thief.start()
    job = await rig.submit(["a"], "blocks")
    async with rig.working(concurrency=1):
        view = await job.wait(timeout_seconds=20)
    ended.set()
    await asyncio.to_thread(thief.join)
    assert (view.succeeded, view.repeats, runs, stolen) == (1, 0, ["a"], [])
    assert rig.told(LeasesLost) == []


async def test_a_long_job_has_its_lease_extended_and_completes(make_rig: MakeRig) -> None:
    rig = await make_rig(lease_seconds=0.5, heartbeat_seconds=0.1, send_guard_seconds=0.4)
    provider = rig.serves(Provider())
    provider.gate.clear()
    job = await rig.submit()
    async with rig.working(grace=10):
        await rig.until(lambda: provider.now == 1)
        first = (await rig.item(job)).lease_expires_at or 0

        async def extended_past_twice_the_lease() -> bool:
            return ((await rig.item(job)).lease_expires_at or 0) > first + 1_000

        await rig.until(extended_past_twice_the_lease)
        provider.gate.set()
        view = await job.wait(timeout_seconds=20)
    assert (view.succeeded, provider.calls) == (1, 1)


async def test_a_step_of_a_worker_that_fails_is_told_of_and_repeated(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    listen, heard = rig.store.listen, asyncio.Event()

    async def deaf_at_first(wake: Any) -> None:
        if not rig.told(Trouble):
            raise DatabaseUnreachable("no route to the database")
        heard.set()
        await listen(wake)

    rig.store.listen = deaf_at_first
    async with rig.working():
        await rig.until(heard.is_set)
        job = await rig.submit(range(3))
        assert (await job.wait(timeout_seconds=20)).succeeded == 3
    message = "DatabaseUnreachable: no route to the database"
    assert [(trouble.where, trouble.message) for trouble in rig.told(Trouble)] == [("listen", message)]
    assert provider.calls == 3


@pytest.mark.slow
async def test_a_beat_that_failed_is_not_waited_for_as_long_as_one_that_came(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backstay.engine.parts.BEAT_AGAIN_SECONDS", 0.05)
    rig = await make_rig(heartbeat_seconds=2)
    provider = rig.serves(Provider())
    provider.gate.clear()
    lend, away = rig.site.lend_store, [DatabaseUnreachable("it is away")] * 3

    async def lend_later() -> Store:
        if away:
            raise away.pop()
        return await lend()

    monkeypatch.setattr(rig.site, "lend_store", lend_later)
    job = await rig.submit()
    async with rig.working(grace=10):
        await rig.until(lambda: provider.now == 1)
        first = (await rig.item(job)).lease_expires_at or 0

        async def extended() -> bool:
            return ((await rig.item(job)).lease_expires_at or 0) > first

        await rig.until(extended, seconds=5)
        assert away == []
        provider.gate.set()
        await job.wait(timeout_seconds=20)


async def test_a_worker_that_lost_its_lease_stops_the_run_and_writes_nothing(make_rig: MakeRig) -> None:
    rig = await make_rig(lease_seconds=60, heartbeat_seconds=0.1)
    provider = rig.serves(Provider())
    provider.gate.clear()
    job = await rig.submit()
    async with rig.working():
        await rig.until(lambda: provider.now == 1)
        await rig.site.rows("UPDATE items SET fence = fence + 1, leased_by = 'another'")
        await rig.until(lambda: rig.told(LeasesLost) and provider.now == 0)
    item = await rig.item(job)
    assert (item.state, item.leased_by, item.attempt_count) == ("submitting", "another", 0)
    assert await rig.attempts(job) == []


async def test_a_running_item_is_not_collected_as_garbage(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    begun: list[int] = []

    @rig.app.handler("forgets")
    async def forgets(item: int) -> int:
        begun.append(item)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.2, waiter.set_result, None)
        await waiter
        return item

    job = await rig.submit(range(50), "forgets")
    async with rig.working():
        await rig.until(lambda: len(begun) == 50)
        gc.collect()
        view = await job.wait(timeout_seconds=20)
    assert view.succeeded == 50
