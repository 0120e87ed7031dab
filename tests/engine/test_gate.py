"""Breaker, holds and limits: a sick provider costs nothing, and nobody has to say when it is well again."""

import asyncio
from typing import Any

from backstay.core.breaker import BreakerPolicy
from backstay.core.errors import DatabaseUnreachable, ProviderHeld
from backstay.core.events import BreakerChanged, ItemsSettled, Trouble
from backstay.core.failures import failure_of_exception
from backstay.core.models import Failed
from backstay.core.pace import Answers
from backstay.handlers.function import FunctionHandler
from backstay.handlers.handler import Context, Rules
from tests.engine.conftest import MakeRig
from tests.engine.provider import HttpError, Provider, TaskProvider
from tests.engine.rig import Rig

POLICY = BreakerPolicy(calls_min=4, window_calls=10, open_ms=30_000, probes_max=2)


def changes(rig: Rig) -> list[str]:
    return [event.after.state.value for event in rig.told(BreakerChanged)]


async def broken(rig: Rig, retry_after: str | None = None) -> Provider:
    """A provider whose breaker is open, by a job of four items that wait for their retry."""
    provider = rig.serves(Provider(), breaker=POLICY)
    provider.script = [HttpError(502, retry_after)] * 4
    await rig.submit(range(4), label="spoilt")
    await rig.tick()
    await rig.until(lambda: changes(rig) == ["open"])
    return provider


async def test_under_an_open_breaker_the_queue_is_held_and_no_attempt_is_burnt(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = await broken(rig)
    job = await rig.submit(range(10))
    await rig.site.advance(20)
    report = await rig.tick()
    assert (report.claimed, provider.calls) == (0, 4)
    assert [(await rig.item(job, n)).attempt_count for n in range(10)] == [0] * 10


async def test_a_held_queue_flows_again_by_itself(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = await broken(rig)
    job = await rig.submit(range(10))
    async with rig.working(concurrency=10):
        await rig.site.advance(31)
        view = await job.wait(timeout_seconds=20)
    assert view.succeeded == 10
    assert changes(rig) == ["open", "half_open", "closed"]
    assert provider.calls >= 14


async def test_however_long_an_outage_lasts_its_probes_cost_no_attempt(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = await broken(rig)
    provider.script = [HttpError(502)] * 20
    (view,) = await rig.store.job_views.page("ann")
    for _ in range(10):
        await rig.site.advance(31)
        await rig.tick()
    assert provider.calls > 4
    job = await rig.app.job(view.id)
    assert [(await rig.item(job, n)).attempt_count for n in range(4)] == [1] * 4
    assert (await job.show()).failed == 0


class Answering(FunctionHandler[Any, Any, Any]):
    """Returns what went wrong, where a function could only raise it."""

    async def run(self, body: str, context: Context) -> Any:
        try:
            return await super().run(body, context)
        except HttpError as error:
            return Failed(failure_of_exception(error))


async def test_a_probe_whose_failure_is_returned_costs_no_attempt_either(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = Provider()
    rig.app.handlers.add(Answering(provider.call, "call", "p", Rules(breaker=POLICY)))
    provider.script = [HttpError(502)] * 24
    job = await rig.submit(range(4))
    for _ in range(10):
        await rig.tick()
        await rig.site.advance(31)
    assert provider.calls > 4
    assert [(await rig.item(job, n)).attempt_count for n in range(4)] == [1] * 4


async def test_a_breaker_half_open_with_nothing_to_try_waits_for_nobody(make_rig: MakeRig) -> None:
    """The worker that found nothing to probe with must not keep the right to probe from the next item."""
    rig = await make_rig()
    await broken(rig, retry_after="60")
    (view,) = await rig.store.job_views.page("ann")
    job = await rig.app.job(view.id)
    async with rig.working():
        await rig.site.advance(31)
        await rig.until(lambda: changes(rig) == ["open", "half_open"])
        await rig.site.advance(30)
        assert (await job.wait(timeout_seconds=20)).succeeded == 4


async def test_a_tick_without_items_leaves_the_probe_to_the_next(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider(), breaker=POLICY)
    await rig.store.providers.hold("call", "why", seconds=1)
    await rig.site.advance(2)
    await rig.tick()
    job = await rig.submit()
    await rig.tick()
    assert (await job.show()).succeeded == 1


async def test_one_probe_at_a_time_closes_the_breaker_too(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider(), breaker=POLICY)
    await rig.store.providers.hold("call", "why", seconds=1)
    await rig.site.advance(2)
    async with rig.working():
        for _ in range(3):
            job = await rig.submit()
            await job.wait(timeout_seconds=10)
    assert changes(rig)[-1] == "closed"


async def test_business_errors_never_open_a_breaker(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    provider = rig.serves(Provider(), breaker=POLICY)
    provider.script = [HttpError(400)] * 20
    await rig.submit(range(20))
    await rig.tick()
    assert changes(rig) == []


async def test_without_credit_the_provider_is_held_and_no_item_fails(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    provider.script = [HttpError(402)] * 50
    job = await rig.submit(range(20))
    async with rig.working(concurrency=5):
        await rig.until(lambda: changes(rig) == ["held"])
        await rig.until(lambda: provider.now == 0)
    view = await job.show()
    assert (view.failed, view.processing, view.done) == (0, 0, 0)
    called = provider.calls
    assert called <= 10, "those under way, and those being claimed, when it first refused"
    await rig.tick()
    assert provider.calls == called
    assert {(await rig.item(job, n)).attempt_count for n in range(20)} == {0}
    provider.script = []
    await rig.store.providers.release("call")
    await rig.site.advance(60)  # the first that was refused might have been refused alone, and waits before it is tried
    await rig.tick()
    assert (await job.show()).succeeded == 20


async def test_a_hold_says_what_the_provider_said_even_before_the_refused_items_are_settled(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    await rig.submit(range(2))
    engine, handler = rig.engine(heart=False), rig.app.handlers["call"]
    taken = await rig.store.items.claim(await engine.gate.wants(2), engine.parts.worker, engine.parts.lease_ms)
    for item in taken.items:
        refused = Failed(failure_of_exception(ProviderHeld("Your credit balance is too low")))
        engine.gate.judge(item, handler, refused, item.claimed_at)
    assert await engine.gate.wants(2) == []
    [held] = rig.told(BreakerChanged)
    assert held.after.reason == "Your credit balance is too low"


async def test_a_held_provider_does_not_block_another(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider(), "sick")
    rig.serves(Provider(), "well")
    await rig.store.providers.hold("sick", "why")
    await rig.submit(range(50), "sick")
    job = await rig.submit(range(5), "well")
    async with rig.working(concurrency=2):
        view = await job.wait(timeout_seconds=20)
    assert view.succeeded == 5


async def test_a_provider_that_is_held_is_not_polled(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    provider = TaskProvider()
    rig.takes_tasks(provider)
    await rig.submit(["a"], "task")
    await rig.tick()
    await rig.store.providers.hold("task", "why")
    await rig.site.advance(60)
    await rig.tick()
    assert provider.polls == 0


async def test_in_plain_hold_mode_a_health_probe_closes_the_breaker_even_between_ticks(make_rig: MakeRig) -> None:
    rig = await make_rig()
    asked: list[bool] = []

    async def health() -> None:
        asked.append(len(asked) > 0)
        if not asked[-1]:
            raise ConnectionError

    provider = rig.serves(Provider(), breaker=BreakerPolicy(calls_min=4, window_calls=10, mode="hold"), health=health)
    provider.script = [HttpError(502)] * 4
    await rig.submit(range(4))
    await rig.tick()
    await rig.until(lambda: changes(rig) == ["open"])
    await rig.site.advance(20)
    await rig.tick()
    assert asked == [], "not before its time"
    await rig.site.advance(300)
    await rig.tick()
    assert (asked, changes(rig)) == ([False], ["open"])
    assert (await rig.tick()).claimed == 4
    assert changes(rig) == ["open", "closed"]


async def test_a_limit_of_one_never_runs_two(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), concurrency=1)
    provider.script = [HttpError(400) if n % 3 else n for n in range(30)]
    job = await rig.submit(range(30))
    async with rig.working(concurrency=50):
        await job.wait(timeout_seconds=20)
    assert (provider.peak, provider.calls) == (1, 30)


async def test_handlers_share_the_slots(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    loud, quiet = rig.serves(Provider(), "loud"), rig.serves(Provider(), "quiet")
    loud.gate.clear()
    await rig.submit(range(100), "loud")
    job = await rig.submit(range(3), "quiet")
    async with rig.working(concurrency=10):
        view = await job.wait(timeout_seconds=20)
        loud.gate.set()
    assert (view.succeeded, quiet.calls) == (3, 3)


async def test_a_pause_that_a_provider_asks_for_holds_for_the_next_claim(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    handler = rig.app.handlers["call"]
    handler.answers, handler.pace_name = Answers(), "paced"
    await rig.store.providers.set_pace("paced", (None, None), 100)
    engine = rig.engine(heart=False)
    await engine.start()
    await rig.submit(range(4))
    handler.answers.add(0.1, throttled=False, exhausted_ms=30_000)
    assert await engine.claim_once(1000) == 0
    await rig.site.advance(31)
    assert await engine.claim_once(1000) == 4
    await engine.stop(5)


async def test_in_plain_hold_mode_without_a_health_probe_the_breaker_closes_by_time(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    policy = BreakerPolicy(calls_min=4, window_calls=10, open_ms=30_000, mode="hold")
    provider = rig.serves(Provider(), breaker=policy)
    provider.script = [HttpError(502)] * 4
    await rig.submit(range(4))
    await rig.tick()
    await rig.until(lambda: changes(rig) == ["open"])
    await rig.site.advance(29)
    assert (await rig.tick()).claimed == 0
    await rig.site.advance(2)
    assert (await rig.tick()).claimed == 4
    assert changes(rig) == ["open", "closed"]


async def test_one_bad_item_among_the_probes_does_not_open_the_breaker_again(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = await broken(rig)
    (view,) = await rig.store.job_views.page("ann")
    well, probes = asyncio.Event(), []

    async def call(item: Any, context: Context) -> Any:
        probes.append(item)
        if len(probes) == 1:
            raise HttpError(502)
        await well.wait()
        return item

    provider.call = call  # type: ignore[method-assign]
    async with rig.working() as worker:
        settled = len(rig.told(ItemsSettled))
        await rig.site.advance(31)
        await rig.until(lambda: len(probes) == 2 and len(rig.told(ItemsSettled)) > settled)
        await asyncio.gather(*worker.engine._observing)
        well.set()
        await rig.until(lambda: changes(rig) == ["open", "half_open", "closed"])
        await rig.site.advance(60)
        assert (await (await rig.app.job(view.id)).wait(timeout_seconds=20)).succeeded == 4


async def test_a_worker_whose_handler_is_full_leaves_the_probe_to_another(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), breaker=POLICY, concurrency=1)
    provider.gate.clear()
    await rig.submit(range(3))
    busy, idle = rig.engine(heart=False), rig.engine(heart=False)
    await busy.start()
    assert await busy.claim_once(10) == 1
    await rig.until(lambda: provider.now == 1)
    await rig.store.providers.hold("call", "why", seconds=1)
    await rig.site.advance(2)
    await busy.gate.refresh(max_age_seconds=0)
    assert await busy.claim_once(10) == 0
    assert [want.items for want in await idle.gate.wants(10)] == [1]
    provider.gate.set()
    await busy.stop(5)


async def test_a_worker_that_cannot_tell_how_a_provider_is_goes_on(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), breaker=BreakerPolicy(calls_min=1, window_calls=10))
    provider.script = [HttpError(502)]

    async def away(*_: object) -> None:
        raise DatabaseUnreachable("no route to the database")

    rig.store.providers.observe = away
    async with rig.working():
        await rig.submit(["bad"])
        await rig.until(lambda: rig.told(Trouble))
        job = await rig.submit(range(3))
        assert (await job.wait(timeout_seconds=20)).succeeded == 3
    assert {(trouble.where, trouble.message) for trouble in rig.told(Trouble)} == {
        ("observe", "no route to the database")
    }
