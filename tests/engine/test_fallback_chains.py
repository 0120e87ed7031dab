"""Handlers that make the same request at different providers: what waits in vain for one goes on to the next."""

from dataclasses import replace
from typing import Any

import pytest

from backstay.core.events import BreakerChanged
from tests.engine.conftest import MakeRig
from tests.engine.provider import HttpError, Provider, TaskProvider
from tests.engine.rig import Rig
from tests.engine.test_fallback import WAIT, finish, finish_ahead


def chained(rig: Rig, *names: str, after_seconds: float = 60) -> list[Provider]:
    """Handlers that make the same request at different providers: each is the fallback of the one before it."""
    made = []
    for name, then in zip(names, [*names[1:], None], strict=True):
        made.append(rig.serves(Provider(), name, fallback=then))
        if then is not None:
            handler: Any = rig.app.handlers[name]
            handler.rules = replace(handler.rules, fallback_after_seconds=after_seconds)
    return made


async def test_what_waits_for_a_provider_on_hold_goes_on_at_once_past_another_that_is_on_hold(
    make_rig: MakeRig,
) -> None:
    rig = await make_rig()
    first, second, third = chained(rig, "call", "second", "third")
    await rig.store.providers.hold("call", "no credit")
    await rig.store.providers.hold("second", "no credit")
    healthy = rig.serves(Provider(), "other")
    job, other = await rig.submit(["a", "b"]), await rig.submit(["c"], "other")
    async with rig.working():
        views = [await each.wait(timeout_seconds=WAIT) for each in (job, other)]
    assert [view.succeeded for view in views] == [2, 1]
    assert (first.calls, second.calls, third.calls, healthy.calls) == (0, 0, 2, 1)
    told = [event.detail for event in await rig.store.events.oldest(f"item:{job.id << 28}")]
    assert told == [
        "call: the provider is on hold, and second tries next",
        "second: the provider is on hold, and third tries next",
    ]


async def test_no_more_goes_on_than_the_next_provider_can_start(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    first, second = chained(rig, "call", "second")
    await rig.store.providers.hold("call", "no credit")
    second.gate.clear()
    job = await rig.submit(list(range(20)))
    async with rig.working(concurrency=3):
        await rig.until(lambda: second.calls == 3)
        await rig.store.providers.release("call")
        await rig.site.advance(3)  # by then the worker looks at holds again
        second.gate.set()
        await job.wait(timeout_seconds=WAIT)
    assert first.calls > 0, "what was left went on at its own provider"
    assert first.calls + second.calls == 20


async def test_a_breaker_that_stays_open_sends_what_waits_to_the_fallback(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    first, second = chained(rig, "call", "second", after_seconds=10)
    first.script = [HttpError(502)] * 10_000
    job = await rig.submit(list(range(40)))
    async with rig.working():
        await rig.until(lambda: any(isinstance(event, BreakerChanged) for event in rig.events))
        assert second.calls == 0, "it may come back soon"
        await finish_ahead(rig, job)
    assert ((await job.show()).succeeded, second.calls) == (40, 40)


async def test_a_provider_that_has_no_capacity_for_long_is_passed_over_by_what_was_never_tried(
    make_rig: MakeRig,
) -> None:
    rig = await make_rig()
    first, second = chained(rig, "call", "second")
    first.script = [HttpError(429), "fine"]
    job = await rig.submit(["a", "b"])
    engine = rig.engine(heart=False)
    await engine.start()

    async def call_one() -> None:
        await engine.claim_once(1)
        await engine.wait_for_running(WAIT)
        await engine.settler.wait_until_committed()

    async def looked_after(seconds: float) -> str:
        await rig.site.advance(seconds)
        await engine.gate.wants(1)
        return (await rig.item(job, 1)).handler

    await call_one()
    assert [await looked_after(59), await looked_after(2)] == ["call", "second"]
    for _ in range(2):  # both go well, each at its provider: the first one has capacity again
        await call_one()
    assert (first.calls, second.calls) == (2, 1)
    late = await rig.submit(["c"])
    await looked_after(61)
    await engine.stop(0)
    assert (await rig.item(late)).handler == "call"


async def test_one_item_that_never_gets_capacity_goes_on_and_the_others_stay(
    make_sqlite_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = await make_sqlite_rig()
    first, second = chained(rig, "call", "second")
    call = first.call

    async def refuse_one(item: Any, context: Any) -> Any:
        if item == "big":
            raise HttpError(429)
        return await call(item, context)

    monkeypatch.setattr(first, "call", refuse_one)
    job = await rig.submit(["a", "big", "b"])
    async with rig.working():
        await finish_ahead(rig, job)
    assert ((await job.show()).succeeded, second.calls) == (3, 1)
    message = (await rig.attempts(job, 1))[-2].message
    assert message == "the provider had no capacity for 1 min: HttpError: the answer was 429"


async def test_a_pause_that_is_longer_than_the_patience_is_not_waited_for(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    first, second = chained(rig, "call", "second")
    first.script = [HttpError(429, "3600"), "a"]
    job = await rig.submit(["x", "y"])
    view = await finish(rig, job, concurrency=1)
    assert (view.succeeded, first.calls, second.calls) == (2, 2, 1)


async def test_a_call_that_hangs_is_cut_off_when_the_share_of_its_provider_is_over(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    first, second = chained(rig, "call", "second")
    first.gate.clear()
    job = await rig.submit(deadline_seconds=60)
    async with rig.working():
        await first.entered.wait()
        await rig.site.advance(29)
        assert first.now == 1
        await rig.site.advance(2)
        view = await job.wait(timeout_seconds=WAIT)
    assert (view.succeeded, second.calls, view.repeats) == (1, 1, 1), "the call that was cut off may have been paid"


async def test_what_waits_longer_than_its_share_of_the_deadline_goes_on(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    first, second = chained(rig, "call", "second")
    first.gate.clear()
    handler: Any = rig.app.handlers["call"]
    handler.rules = replace(handler.rules, concurrency=1)
    busy, late = await rig.submit(["busy"]), await rig.submit(["late"], deadline_seconds=60)
    async with rig.working():
        await first.entered.wait()
        await rig.site.advance(31)
        view = await late.wait(timeout_seconds=WAIT)
        assert (view.succeeded, second.calls) == (1, 1)
        first.gate.set()
        assert (await busy.wait(timeout_seconds=WAIT)).succeeded == 1


async def test_a_task_whose_share_is_over_is_cancelled_and_goes_on_when_it_has_ended(make_rig: MakeRig) -> None:
    rig = await make_rig(poll_interval_seconds=1)
    tasks = TaskProvider()
    rig.takes_tasks(tasks, fallback="backup")
    handler: Any = rig.app.handlers["task"]
    handler.rules = replace(handler.rules, fallback_after_seconds=60)
    backup = rig.serves(Provider(), "backup")
    job = await rig.submit(handler="task", deadline_seconds=60)
    async with rig.working():
        await rig.in_state(job, "processing")
        await rig.site.advance(31)
        await rig.until(lambda: tasks.cancelled)
        assert backup.calls == 0
        tasks.ended["task-0"] = HttpError(500)
        await rig.site.advance(2)
        view = await job.wait(timeout_seconds=WAIT)
    assert (view.succeeded, backup.calls) == (1, 1)
