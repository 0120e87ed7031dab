"""A fallback handler gets what the first one finally fails, once, and nothing that might then be paid twice."""

from typing import Any

import pytest

from backstay import Job
from backstay.core.errors import UsageError
from backstay.core.events import ItemsSettled
from backstay.core.models import Act
from backstay.store.job_views import JobView
from tests.engine.conftest import MakeRig
from tests.engine.provider import HttpError, Provider, TaskProvider
from tests.engine.rig import Rig

WAIT = 20


def two_providers(rig: Rig, **rules: Any) -> tuple[Provider, Provider]:
    """The handler `call`, whose fallback is `backup`."""
    first = rig.serves(Provider(), fallback="backup", **rules)
    return first, rig.serves(Provider(), "backup")


async def finish(rig: Rig, job: Job[Any], **working: Any) -> JobView:
    """Works until the job has ended."""
    async with rig.working(**working):
        return await job.wait(timeout_seconds=WAIT)


async def finish_ahead(rig: Rig, job: Job[Any], step_seconds: float = 5) -> JobView:
    """The same while the clock runs ahead, for items that wait. Within `rig.working()`.

    It stands still while a call is under way: on a slow machine the lease of the call would end.
    """

    async def ended() -> bool:
        calls = f"SELECT count(*) FROM items WHERE job_id = {job.id} AND state = 'submitting'"
        if await rig.site.one(calls) == 0:
            await rig.site.advance(step_seconds)
        return (await job.show()).ended

    await rig.until(ended)
    return await job.show()


async def test_one_item_that_finally_fails_is_done_by_the_fallback_and_the_others_are_not(make_rig: MakeRig) -> None:
    rig = await make_rig()
    first, backup = two_providers(rig)
    first.script = [HttpError(400)]
    job = await rig.submit(["a", "b", "c"])
    view = await finish(rig, job, concurrency=1)
    results = await rig.results(job)
    assert (view.state, view.succeeded, view.failed, view.fallback) == ("completed", 3, 0, "backup")
    assert (first.calls, backup.calls) == (3, 1)
    assert [result.value for result in results] == ["a", "b", "c"], "with the same payload"
    assert [(await rig.item(job, n)).handler for n in range(3)] == ["backup", "call", "call"]
    assert [(one.number, one.outcome, one.error_code) for one in await rig.attempts(job)] == [
        (1, "retry", "GW_4XX"),
        (2, "succeeded", None),
    ]
    [told] = await rig.store.events.oldest(f"item:{job.id << 28}")
    assert (told.act, told.detail) == ("fallback", "handler call failed, and backup tries next")


async def test_retries_are_used_up_first_and_the_fallback_has_its_own(make_rig: MakeRig) -> None:
    rig = await make_rig()
    first, backup = two_providers(rig)
    first.script, backup.script = [HttpError(502)] * 3, [HttpError(502)]
    job = await rig.submit()
    async with rig.working():
        view = await finish_ahead(rig, job)
    assert (view.state, first.calls, backup.calls) == ("completed", 3, 2)
    assert (await rig.item(job)).calls == 5
    assert not set(first.bill) & set(backup.bill), "another provider gets another reference"


async def test_what_the_fallback_fails_too_is_a_dead_letter_and_no_third_handler_gets_it(make_rig: MakeRig) -> None:
    rig = await make_rig()
    third = rig.serves(Provider(), "third")
    first, backup = rig.serves(Provider(), fallback="backup"), rig.serves(Provider(), "backup", fallback="call")
    first.script, backup.script = [HttpError(400)], [HttpError(400)]
    job = await rig.submit(["a", "b"])
    view = await finish(rig, job, concurrency=1)
    assert (view.state, view.succeeded, view.failed) == ("completed", 1, 1)
    assert (first.calls, backup.calls, third.calls) == (2, 1, 0)
    backup.script = [HttpError(400)]
    assert await job.retry() == 1
    await finish(rig, job)
    assert (first.calls, backup.calls) == (2, 2), "a person's retry stays with the handler that it ended with"


async def test_an_item_goes_from_fallback_to_fallback_and_to_no_handler_twice(make_rig: MakeRig) -> None:
    rig = await make_rig()
    names = ["call", "second", "third"]
    providers = [
        rig.serves(Provider(), name, fallback=then)
        for name, then in zip(names, ["second", "third", "call"], strict=True)
    ]
    for provider in providers:
        provider.script = [HttpError(400)]
    job = await rig.submit(["a", "b"])
    view = await finish(rig, job, concurrency=1)
    assert (view.succeeded, view.failed) == (1, 1)
    assert [provider.calls for provider in providers] == [2, 1, 1]
    assert [(await rig.item(job, n)).handler for n in range(2)] == ["third", "call"]
    assert [(one.number, one.outcome) for one in await rig.attempts(job)] == [(1, "retry"), (2, "retry"), (3, "failed")]


async def test_a_submit_names_a_fallback_for_its_own_job(make_rig: MakeRig) -> None:
    rig = await make_rig()
    first, backup = rig.serves(Provider()), rig.serves(Provider(), "backup")
    first.script = [HttpError(400), HttpError(400)]
    plain, safe = await rig.submit(), await rig.submit(fallback=rig.app.handlers["backup"])
    async with rig.working(concurrency=1):
        states = [(await job.wait(timeout_seconds=WAIT)).state for job in (plain, safe)]
    assert (states, backup.calls) == (["failed", "completed"], 1)


@pytest.mark.parametrize(("delivery", "calls"), [("at_most_once", 0), ("at_least_once", 1)])
async def test_a_call_that_may_have_been_paid_goes_to_the_fallback_only_if_repeats_are_allowed(
    make_sqlite_rig: MakeRig, delivery: str, calls: int
) -> None:
    rig = await make_sqlite_rig()
    first, backup = two_providers(rig, delivery=delivery, retry="none")
    first.script = [ConnectionResetError("cut off")]
    job = await rig.submit()
    view = await finish(rig, job)
    assert (view.succeeded, backup.calls, view.repeats) == (calls, calls, calls)
    acts = [one.act for event in rig.told(ItemsSettled) for one in event.settlements if one.act]
    assert acts == [Act.REPEAT] * calls


async def test_an_item_past_its_deadline_is_not_given_to_the_fallback(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    first, backup = two_providers(rig, retry="none")
    first.gate.clear()
    first.script = [HttpError(502)]
    job = await rig.submit(deadline_seconds=30)
    async with rig.working():
        await first.entered.wait()
        await rig.site.advance(31)
        first.gate.set()
        view = await job.wait(timeout_seconds=WAIT)
    assert (view.state, backup.calls) == ("failed", 0)
    assert (await rig.item(job)).timed_out_at is not None


async def test_a_deadline_goes_on_counting_while_the_fallback_has_the_item(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    first, backup = two_providers(rig)
    first.script, backup.script = [HttpError(400)], [HttpError(502)] * 9
    job = await rig.submit(deadline_seconds=30)
    async with rig.working():
        await rig.until(lambda: backup.calls == 1)
        await rig.in_state(job, "queued")
        await rig.site.advance(31)
        await rig.sweep()
        view = await job.wait(timeout_seconds=WAIT)
    assert (view.state, (await rig.item(job)).error_code) == ("failed", "GW_TIMEOUT")


async def test_a_cancelled_job_gives_nothing_to_the_fallback(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    first, backup = two_providers(rig)
    first.gate.clear()
    first.script = [HttpError(400)]
    job = await rig.submit()

    async def given_back() -> bool:  # and the worker's own sweep may have ended it by then
        return (await rig.item(job)).state in ("queued", "cancelled")

    async with rig.working():
        await first.entered.wait()
        await job.cancel()
        first.gate.set()
        await rig.until(given_back)
        await rig.sweep()
        view = await job.wait(timeout_seconds=WAIT)
    assert (view.state, backup.calls) == ("cancelled", 0)


async def test_a_second_refusal_counts_anew_at_the_fallback(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    first, backup = two_providers(rig)
    first.script, backup.script = [HttpError(403)] * 2, [HttpError(403)]
    job = await rig.submit()
    async with rig.working():
        view = await finish_ahead(rig, job)
    assert (view.state, first.calls, backup.calls) == ("completed", 2, 2)


async def test_an_item_takes_its_turn_in_the_queue_of_its_fallback(make_rig: MakeRig) -> None:
    rig = await make_rig()
    first, _ = two_providers(rig)
    await rig.store.items.advance_turns({"backup": [(9 << 52) + 500]})
    first.script = [HttpError(400)]
    job = await rig.submit()
    engine = rig.engine(heart=False)
    await engine.start()
    await engine.claim_once(1)
    await engine.wait_for_running(5)
    await engine.settler.wait_until_committed()
    [(key,)] = await rig.site.rows(f"SELECT order_key FROM items WHERE job_id = {job.id}")
    await engine.stop(0)
    assert key == (9 << 52) + 500


async def test_a_task_that_went_wrong_leaves_nothing_of_its_provider_with_the_item(make_rig: MakeRig) -> None:
    rig = await make_rig(poll_interval_seconds=1)
    tasks = TaskProvider()
    rig.takes_tasks(tasks, retry="none", fallback="backup")
    backup = rig.serves(Provider(), "backup")
    job = await rig.submit(handler="task")
    async with rig.working():
        await rig.until(lambda: tasks.tasks)
        tasks.ended["task-0"] = ValueError("it went wrong")
        await finish_ahead(rig, job, step_seconds=2)
    item = await rig.item(job)
    assert (item.state, item.handler, backup.calls) == ("succeeded", "backup", 1)
    assert (item.provider_task_id, item.account) == (None, None)


async def test_a_result_that_cannot_be_stored_was_paid_and_goes_to_no_fallback(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    settle = rig.store.items.settle

    async def refuse_one(settlements: list[Any]) -> object:
        if any(one.attempt is not None and one.attempt.result == '"bad"' for one in settlements):
            raise ValueError("cannot be stored")
        return await settle(settlements)

    rig.store.items.settle = refuse_one
    _, backup = two_providers(rig)
    job = await rig.submit(["a", "bad", "b"])
    view = await finish(rig, job)
    assert (view.succeeded, view.failed, backup.calls) == (2, 1, 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"fallback": "nobody"}, "there is no handler 'nobody'"), ({"fallback": "call"}, "cannot be its own fallback")],
)
async def test_a_fallback_that_cannot_be_is_refused_and_nothing_is_written(
    make_sqlite_rig: MakeRig, options: dict[str, str], said: str
) -> None:
    rig = await make_sqlite_rig()
    rig.serves(Provider())
    with pytest.raises(UsageError, match=said):
        await rig.submit(**options)
    assert await rig.site.one("SELECT count(*) FROM jobs") == 0


async def test_a_worker_refuses_to_start_with_a_fallback_that_does_not_exist(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    rig.serves(Provider(), fallback="nobody")
    with pytest.raises(UsageError, match="there is no handler 'nobody'"):
        async with rig.app.working():
            pytest.fail("it started")
