"""Calling a provider without paying twice: what was sent is asked about, never sent blindly."""

import asyncio

import pytest

from backstay.core.errors import OutcomeUnknown
from backstay.core.events import Trouble
from backstay.core.models import CannotAsk
from backstay.core.states import JobState
from tests.engine.conftest import MakeRig
from tests.engine.provider import AskableTaskProvider, HttpError, Provider, TaskProvider
from tests.engine.rig import Rig

MINUTES_10 = 600


async def killed_after_sending(rig: Rig, provider: Provider, handler: str = "call") -> None:
    """A worker that sent its call and died before it wrote down what came of it."""
    settle = rig.store.items.settle

    async def never(_: object) -> None:
        await asyncio.Event().wait()

    rig.store.items.settle = never  # type: ignore[assignment, method-assign]
    worker = rig.engine(heart=False)
    await worker.start()
    await worker.claim_once(10)
    await rig.until(lambda: provider.calls > 0 and provider.now == 0)
    rig.store.items.settle = settle  # type: ignore[method-assign]


async def test_a_call_that_can_be_asked_about_is_found_and_not_paid_again(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), askable=True)
    job = await rig.submit(["a", "b"])
    await killed_after_sending(rig, provider)
    await rig.site.advance(MINUTES_10)
    await rig.tick()
    view = await job.show()
    assert (view.state, view.succeeded, view.repeats) == (JobState.COMPLETED, 2, 0)
    assert [result.value for result in await rig.results(job)] == ["a", "b"]
    assert provider.paid_twice == []


async def test_a_call_that_never_arrived_is_sent_again(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), askable=True)
    job = await rig.submit()
    await rig.abandon()
    await rig.site.advance(MINUTES_10)
    await rig.tick()
    assert ((await job.show()).succeeded, provider.calls, (await rig.item(job)).rescues) == (1, 1, 1)


@pytest.mark.parametrize(("limits", "seconds"), [({}, 300), ({"submitting_seconds": 120}, 120)])
async def test_an_item_stuck_in_submitting_is_taken_up_when_its_time_there_is_over(
    make_rig: MakeRig, limits: dict[str, float], seconds: float
) -> None:
    rig = await make_rig(**limits)
    rig.serves(Provider(), askable=True)
    job = await rig.submit()
    await rig.abandon()
    await rig.site.advance(seconds - 5)
    await rig.tick()
    assert (await rig.item(job)).state == "submitting"
    await rig.site.advance(6)
    await rig.tick()
    assert (await rig.item(job)).state == "succeeded"


async def test_it_is_not_asked_about_while_its_request_may_still_be_on_the_way(make_rig: MakeRig) -> None:
    rig = await make_rig(lease_seconds=20, heartbeat_seconds=5)
    provider = rig.serves(Provider(), askable=True, timeout=300)
    job = await rig.submit()
    await rig.abandon()
    await rig.site.advance(100)
    await rig.tick()
    assert (await rig.item(job)).state == "submitting"
    assert provider.calls == 0


async def test_a_call_that_cannot_be_asked_about_is_repeated_and_the_repeat_is_recorded(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), delivery="at_least_once")
    job = await rig.submit()
    await killed_after_sending(rig, provider)
    await rig.site.advance(MINUTES_10)
    await rig.tick()
    view = await job.show()
    assert (view.succeeded, view.repeats, provider.calls) == (1, 1, 2)
    (result,) = await rig.results(job)
    events = await rig.store.events.oldest(f"item:{job.id << 28}")
    assert (result.repeats, [event.act for event in events]) == (1, ["repeat"])


async def test_at_most_once_leaves_an_unknown_outcome_to_a_person(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), delivery="at_most_once")
    job = await rig.submit()
    await killed_after_sending(rig, provider)
    await rig.site.advance(MINUTES_10)
    await rig.tick()
    (result,) = await rig.results(job)
    assert (result.state, result.error_code, provider.calls) == ("failed", "UNKNOWN", 1)


async def test_the_delivery_of_a_job_wins_over_its_handlers(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    provider = rig.serves(Provider(), delivery="at_least_once")
    job = await rig.submit(delivery="at_most_once")
    provider.script = [OutcomeUnknown("cut off")]
    await rig.tick()
    (result,) = await rig.results(job)
    assert (result.state, result.error_code) == ("failed", "UNKNOWN")


async def test_an_unknown_outcome_is_asked_about_before_the_next_try(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), askable=True)
    provider.script = [TimeoutError()]
    job = await rig.submit()
    await rig.tick()
    assert (await rig.item(job)).state == "submitting"
    (ref,) = provider.bill
    provider.results[ref] = "it had been done"
    await rig.site.advance(MINUTES_10)
    await rig.tick()
    (result,) = await rig.results(job)
    assert (result.value, provider.calls) == ("it had been done", 1)


async def test_a_call_that_never_ends_is_cut_off_and_asked_about(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider(), askable=True, timeout=0.2)
    provider.gate.clear()
    job = await rig.submit()
    async with rig.working():
        await rig.until(lambda: provider.calls == 1 and provider.now == 0)
        await rig.until(lambda: rig.attempts(job))
    assert [attempt.outcome for attempt in await rig.attempts(job)] == ["unknown"]


@pytest.mark.parametrize("error", [OutcomeUnknown("cut off"), TimeoutError()])
async def test_a_task_the_provider_took_before_the_answer_was_lost_is_found(
    make_rig: MakeRig, error: Exception
) -> None:
    rig = await make_rig()
    provider = AskableTaskProvider()
    provider.finishes_all = True
    provider.after_submit = error
    rig.takes_tasks(provider)
    job = await rig.submit(["a"], "task")
    await rig.tick()
    assert (await rig.item(job)).state == "submitting"
    provider.after_submit = None
    await rig.site.advance(MINUTES_10)
    await rig.tick()
    assert (await rig.item(job)).provider_task_id == "task-0"
    await rig.site.advance(10)
    await rig.tick()
    assert (await job.show()).succeeded == 1
    assert list(provider.bill.values()) == [1]


async def test_a_task_of_a_provider_that_cannot_be_asked_is_submitted_again_and_told(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = TaskProvider()
    provider.finishes_all = True
    rig.takes_tasks(provider)
    job = await rig.submit(["a"], "task")
    await rig.abandon(handler="task")
    await rig.site.advance(MINUTES_10)
    await rig.tick()
    await rig.site.advance(10)
    await rig.tick()
    view = await job.show()
    assert (view.succeeded, view.repeats) == (1, 1)


async def test_a_look_up_that_fails_is_no_answer_and_nothing_is_sent(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig(call_retries_max=0)
    provider = rig.serves(Provider(), askable=True)

    async def find(_: str) -> None:
        raise HttpError(503)

    rig.app.handlers["call"]._find = find
    job = await rig.submit()
    await rig.abandon()
    await rig.site.advance(MINUTES_10)
    await rig.tick()
    assert ((await rig.item(job)).state, provider.calls) == ("submitting", 0)
    assert any(trouble.look_up for trouble in rig.told(Trouble))


async def test_an_item_that_can_never_be_looked_up_does_not_escape_its_timeout(make_rig: MakeRig) -> None:
    rig = await make_rig(call_retries_max=0)
    provider = rig.serves(Provider(), askable=True)

    async def find(_: str) -> None:
        raise HttpError(503)

    rig.app.handlers["call"]._find = find
    job = await rig.submit()
    await rig.abandon()
    await rig.site.advance(7_300)
    await rig.tick()
    (result,) = await rig.results(job)
    assert (result.state, result.error_code, provider.calls) == ("failed", "GW_TIMEOUT", 0)
    assert (await rig.item(job)).timed_out_at is not None


async def test_a_poison_item_that_kills_its_worker_is_not_repeated_for_ever(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig(rescues_max=3)
    rig.serves(Provider())
    job = await rig.submit()
    for _ in range(4):
        assert len(await rig.abandon()) == 1
        await rig.site.advance(MINUTES_10)
        await rig.sweep()
        await rig.site.advance(MINUTES_10)  # from the second time on such items are spread out in time
    (result,) = await rig.results(job)
    assert (result.state, result.error_code, result.repeats) == ("failed", "UNKNOWN", 3)


@pytest.mark.parametrize(("delivery", "calls"), [("at_least_once", 1), ("at_most_once", 0)])
async def test_where_a_provider_turns_out_to_have_no_look_up_the_delivery_decides(
    make_sqlite_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, delivery: str, calls: int
) -> None:
    rig = await make_sqlite_rig()
    provider = rig.serves(Provider(), askable=True, delivery=delivery)

    async def ask(_: str, __: int = 0) -> CannotAsk:
        return CannotAsk()

    monkeypatch.setattr(rig.app.handlers["call"], "ask", ask)
    job = await rig.submit()
    await rig.abandon()
    await rig.site.advance(MINUTES_10)
    await rig.tick()
    (result,) = await rig.results(job)
    assert (result.state, provider.calls) == ("succeeded" if calls else "failed", calls)
    assert (result.error_code, result.repeats) == ((None, 1) if calls else ("UNKNOWN", 0))


async def test_a_person_s_retry_is_sent_where_the_provider_has_no_look_up(
    make_sqlite_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = await make_sqlite_rig()
    provider = rig.serves(Provider(), askable=True, delivery="at_most_once")

    async def ask(_: str, __: int = 0) -> CannotAsk:
        return CannotAsk()

    monkeypatch.setattr(rig.app.handlers["call"], "ask", ask)
    job = await rig.submit()
    await rig.abandon()
    await rig.site.advance(MINUTES_10)
    await rig.tick()
    await job.retry()
    await rig.site.advance(MINUTES_10)
    await rig.tick()
    assert ((await job.show()).succeeded, provider.calls) == (1, 1)


async def test_a_retry_whose_look_up_fails_sends_nothing_and_says_that_it_was_a_look_up(make_rig: MakeRig) -> None:
    rig = await make_rig(call_retries_max=0)
    provider = rig.serves(Provider(), askable=True)
    find = rig.app.handlers["call"]._find

    async def away(_: str) -> None:
        raise HttpError(503)

    rig.app.handlers["call"]._find = away
    job = await rig.submit()
    await rig.abandon()
    await rig.site.advance(7_300)
    await rig.tick()
    await job.retry()
    rig.events.clear()
    await rig.tick()
    assert ((await rig.item(job)).state, provider.calls) == ("queued", 0)
    assert [(trouble.where, trouble.look_up) for trouble in rig.told(Trouble)] == [("look-up at call", True)]
    rig.app.handlers["call"]._find = find
    await rig.site.advance(MINUTES_10)
    await rig.tick()
    assert ((await job.show()).succeeded, provider.calls) == (1, 1)
