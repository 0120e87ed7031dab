"""A job after another: it starts once, when all that it waits for has ended, with their results as its payloads."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from backstay.core.errors import NotAllowed, NotFound, UsageError
from backstay.core.events import Trouble
from backstay.core.states import JobState
from backstay.store import job_links
from backstay.store.submissions import CHUNK_ITEMS
from backstay.sync import SyncBackstay
from tests.engine.conftest import MakeRig
from tests.engine.provider import HttpError, Provider
from tests.engine.rig import Rig

WAIT = 20


async def two_handlers(make: MakeRig, **limits: Any) -> tuple[Rig, Provider, Provider]:
    """`call` and, for the job after it, `next`."""
    rig = await make(**limits)
    return rig, rig.serves(Provider(), retry="none"), rig.serves(Provider(), "next")


async def tick_twice(rig: Rig) -> None:
    """The first tick ends the earlier job, the second starts the one after it."""
    for _ in range(2):
        await rig.tick()


async def payloads(rig: Rig, job: Any) -> list[Any]:
    return [result.payload for result in await rig.results(job)]


async def test_a_job_gets_the_results_of_the_items_that_succeeded_and_not_of_the_bad_one(make_rig: MakeRig) -> None:
    rig, first, _ = await two_handlers(make_rig, tick_concurrency=1)
    first.script = ["A", HttpError(400), "C"]
    job = await rig.submit(["a", "b", "c"])
    later = await job.then("next", label="second")
    assert await rig.store.job_links.advance(later.id) == job_links.LinkStep(later.id), "too early"
    waiting = await later.show()
    assert (waiting.state, waiting.total, waiting.waits_for, waiting.sealed) == ("queued", 0, (str(job.id),), False)
    await tick_twice(rig)
    view = await later.show()
    assert (view.state, view.succeeded, view.waits_for, view.label) == ("completed", 2, None, "second")
    assert await payloads(rig, later) == ["A", "C"]
    assert await rig.site.one("SELECT count(*) FROM job_links") == 0
    acts = [(event.act, event.detail) for event in await rig.store.events.oldest(f"job:{later.id}")]
    assert acts == [("started", f"after job {job.id}"), ("filled", "2 items from their results")]


async def test_all_ended_items_come_with_their_states_and_reasons(make_rig: MakeRig) -> None:
    rig, first, _ = await two_handlers(make_rig, tick_concurrency=1)
    first.script = [{"n": 1.50}, HttpError(400)]
    job = await rig.submit(["a", "b"])
    later = await rig.submit(None, "next", after=job.id, after_items="all")
    await tick_twice(rig)
    good, bad = await payloads(rig, later)
    assert good == {"state": "succeeded", "value": {"n": 1.5}, "error_code": None, "message": None}
    assert (bad["state"], bad["value"], bad["error_code"]) == ("failed", None, "GW_4XX")
    assert "400" in bad["message"]


async def test_results_of_several_jobs_come_in_the_order_that_names_them(make_rig: MakeRig) -> None:
    rig, _, _ = await two_handlers(make_rig)
    one, two = await rig.submit(["1", "2"]), await rig.submit(["3"])
    later = await rig.submit(None, "next", after=[two, one.id])
    await tick_twice(rig)
    assert await payloads(rig, later) == ["3", "1", "2"]


async def test_a_job_waits_until_the_last_of_several_has_ended(make_sqlite_rig: MakeRig) -> None:
    rig, first, _ = await two_handlers(make_sqlite_rig)
    first.gate.clear()
    slow = await rig.submit(["slow"])
    rig.serves(Provider(), "fast")
    fast = await rig.submit(["fast"], "fast")
    later = await rig.submit(None, "next", after=[fast, slow])
    async with rig.working():
        await fast.wait(timeout_seconds=WAIT)
        await rig.sweep()
        assert (await later.show()).total == 0
        first.gate.set()
        assert (await later.wait(timeout_seconds=WAIT)).succeeded == 2


async def test_ticks_start_a_job_and_ask_for_another_when_one_can_start(make_rig: MakeRig) -> None:
    rig, _, _ = await two_handlers(make_rig)
    job = await rig.submit(["a"])
    later = await job.then("next")
    report = await rig.tick()
    assert (report.items, report.pending, (await later.show()).total) == (1, True, 0)
    report = await rig.tick()
    assert (report.items, report.pending, (await later.show()).state) == (1, False, "completed")


async def test_a_job_after_one_that_has_ended_starts_at_once(make_rig: MakeRig) -> None:
    rig, _, _ = await two_handlers(make_rig)
    job = await rig.submit(["a"])
    await rig.tick()
    later = await job.then("next")
    await rig.tick()
    assert (await later.show()).state == "completed"


async def test_own_items_wait_and_then_run(make_rig: MakeRig) -> None:
    rig, first, following = await two_handlers(make_rig)
    job = await rig.submit(["a"])
    later = await rig.submit(["x", "y"], "next", after=job)
    first.gate.clear()
    async with rig.working():
        await first.entered.wait()
        view = await later.show()
        assert (view.total, view.sealed, view.waits_for, following.calls) == (2, True, (str(job.id),), 0)
        first.gate.set()
        await later.wait(timeout_seconds=WAIT)
    assert (await payloads(rig, later), following.calls) == (["x", "y"], 2)


async def test_every_chunk_of_own_items_waits(make_rig: MakeRig) -> None:
    rig, _, following = await two_handlers(make_rig)
    job = await rig.submit(["a"])
    await job.pause()
    later = await rig.submit(iter(range(CHUNK_ITEMS + 1)), "next", after=job)
    await rig.tick()
    assert ((await later.show()).total, following.calls) == (CHUNK_ITEMS + 1, 0)


@pytest.mark.slow
async def test_own_items_that_stream_in_while_the_wait_ends_all_run(make_rig: MakeRig) -> None:
    rig, _, following = await two_handlers(make_rig)
    job = await rig.submit(["a"])

    async def stream() -> AsyncIterator[int]:
        for n in range(2 * CHUNK_ITEMS):
            if n == CHUNK_ITEMS + 1:  # the first chunk is stored
                for _ in range(2):
                    await rig.tick()
            yield n

    later = await rig.submit(stream(), "next", after=job)
    async with rig.working(concurrency=500):
        view = await later.wait(timeout_seconds=WAIT)
    assert (view.state, view.succeeded, following.calls) == ("completed", 2 * CHUNK_ITEMS, 2 * CHUNK_ITEMS)


async def test_own_items_of_a_job_that_was_paused_while_it_waited_run_after_the_resume(make_rig: MakeRig) -> None:
    rig, _, following = await two_handlers(make_rig)
    job = await rig.submit(["a"])
    later = await rig.submit(["x"], "next", after=job)
    await later.pause()
    await rig.tick()
    assert await rig.store.job_links.ready() == []
    await rig.store.job_links.advance(later.id)  # as a process does that read it before the pause
    await rig.tick()
    assert ((await later.show()).waits_for, following.calls) == ((str(job.id),), 0)
    await later.resume()
    await rig.tick()
    assert ((await later.show()).state, following.calls) == ("completed", 1)


async def test_a_resume_does_not_start_what_still_waits(make_sqlite_rig: MakeRig) -> None:
    rig, first, following = await two_handlers(make_sqlite_rig)
    first.gate.clear()
    later = await rig.submit(["x"], "next", after=await rig.submit(["a"]))
    await later.pause()
    await later.resume()
    async with rig.working():
        await first.entered.wait()
        await rig.sweep()
        assert ((await later.show()).started_at, following.calls) == (None, 0)
        first.gate.set()
        await later.wait(timeout_seconds=WAIT)


@pytest.mark.parametrize("own", [None, ["x"]])
async def test_a_cancelled_job_cancels_those_that_wait_for_it_down_the_line(make_rig: MakeRig, own: Any) -> None:
    rig, _, following = await two_handlers(make_rig)
    job = await rig.submit(["a"])
    second = await rig.submit(own, "next", after=job, after_items="all")
    third = await second.then("next", after_items="all")
    await job.cancel()
    for _ in range(3):
        await rig.sweep()
    assert [(await one.show()).state for one in (second, third)] == ["cancelled", "cancelled"]
    assert following.calls == 0
    said = [event.detail for event in await rig.store.events.oldest(f"job:{second.id}")]
    assert said == [f"job {job.id}, which it waited for, was cancelled"]


@pytest.mark.parametrize(("takes", "state", "total"), [("succeeded", "cancelled", 0), ("all", "completed", 1)])
async def test_a_job_that_failed_cancels_the_later_one_unless_it_takes_all(
    make_rig: MakeRig, takes: str, state: str, total: int
) -> None:
    rig, first, _ = await two_handlers(make_rig)
    first.script = [HttpError(400)]
    job = await rig.submit(["a"])
    later = await job.then("next", after_items=takes)
    for _ in range(3):
        await rig.tick()
    assert ((await later.show()).state, (await later.show()).total) == (state, total)


async def test_a_waiting_job_can_be_cancelled_and_leaves_no_link(make_rig: MakeRig) -> None:
    rig, _, _ = await two_handlers(make_rig)
    job = await rig.submit(["a"])
    later = await job.then("next")
    await later.cancel()
    assert ((await later.show()).state, (await later.show()).waits_for) == ("cancelled", None)
    assert await rig.site.one("SELECT count(*) FROM job_links") == 0
    await rig.tick()
    assert (await later.show()).total == 0


async def test_the_time_limit_of_a_job_counts_from_its_start(make_rig: MakeRig) -> None:
    rig, _, _ = await two_handlers(make_rig, job_timeout_seconds=3600)
    job = await rig.submit(["a"])
    later = await job.then("next")
    await job.pause()
    await rig.site.advance(7_200)
    await rig.sweep()
    assert (await later.show()).stop_reason is None
    await job.resume()
    await rig.tick()
    await rig.tick()
    view = await later.show()
    assert view.state == "completed"
    assert 10_800_000 <= view.timeout_at - view.created_at < 11_000_000


async def test_items_take_the_turns_that_their_queue_has_reached(make_sqlite_rig: MakeRig) -> None:
    rig, _, _ = await two_handlers(make_sqlite_rig)
    job = await rig.submit(["a"])
    later = await job.then("next")
    own = await rig.submit(["x"], "next", after=job)
    await rig.tick()
    await rig.store.items.advance_turns({"next": [(9 << 52) + 500]})
    for one in (later, own):
        await rig.store.job_links.advance(one.id)
    sql = f"SELECT order_key - (9 << 52) FROM items WHERE job_id IN ({later.id}, {own.id}) ORDER BY id"
    assert await rig.site.rows(sql) == [(500,), (501,)]


async def test_a_job_that_fed_another_cannot_be_deleted_before_that_has_started(make_rig: MakeRig) -> None:
    rig, _, _ = await two_handlers(make_rig)
    job = await rig.submit(["a"])
    later = await job.then("next")
    await rig.tick()
    with pytest.raises(NotAllowed, match=f"job {later.id} waits for the results of job {job.id}"):
        await rig.store.jobs.disown(job.id, "ann")
    await rig.tick()
    assert await rig.store.jobs.disown(job.id, "ann") == 1


async def test_a_job_whose_earlier_one_was_deleted_all_the_same_is_cancelled(make_rig: MakeRig) -> None:
    rig, _, _ = await two_handlers(make_rig)
    job = await rig.submit(["a"])
    later = await job.then("next")
    await rig.tick()
    await rig.site.rows(f"UPDATE jobs SET owner = '' WHERE id = {job.id}")
    await rig.sweep()
    assert (await later.show()).state == "cancelled"
    assert [one.detail for one in await rig.store.events.oldest(f"job:{later.id}")] == [
        f"job {job.id}, which it waited for, was deleted"
    ]


async def test_steps_are_bounded_and_several_processes_at_once_take_every_result_once(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, _, _ = await two_handlers(make_rig)
    monkeypatch.setattr(job_links, "CHUNK_ITEMS", 7)
    numbers = list(range(60))
    job = await rig.submit(numbers)
    later = await job.then("next")
    async with rig.working():
        await job.wait(timeout_seconds=WAIT)
        await later.pause()
    await later.resume()
    stores = [rig.store, *[await rig.site.open_store() for _ in range(2)]]

    async def advance(store: Any) -> None:
        while (await later.show()).waits_for:
            step = await store.job_links.advance(later.id)
            assert step.items <= 7

    await asyncio.gather(*map(advance, stores))
    async with rig.working():
        await later.wait(timeout_seconds=WAIT)
    assert await payloads(rig, later) == numbers


async def test_a_job_that_cannot_start_delays_no_other(
    make_sqlite_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, _, _ = await two_handlers(make_sqlite_rig)
    job = await rig.submit(["a"])
    bad, good = await job.then("next"), await job.then("next")
    advance = rig.store.job_links.advance

    async def advance_good(job_id: int) -> Any:
        if job_id == bad.id:
            raise ValueError("a row that nobody can read")
        return await advance(job_id)

    monkeypatch.setattr(rig.store.job_links, "advance", advance_good)
    await tick_twice(rig)
    assert [(await one.show()).state for one in (bad, good)] == ["queued", "completed"]
    assert [f"job {bad.id} cannot start" in event.message for event in rig.told(Trouble)] == [True]


async def test_large_results_are_taken_a_few_at_a_time(
    make_sqlite_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, _, _ = await two_handlers(make_sqlite_rig)
    monkeypatch.setattr(job_links, "CHUNK_CHARACTERS", 100)
    job = await rig.submit(["a" * 90, "b" * 90, "c" * 500, "d"])
    later = await job.then("next")
    await rig.tick()
    taken = []
    while (await later.show()).waits_for:
        taken.append((await rig.store.job_links.advance(later.id)).items)
    assert taken == [1, 1, 1, 1]


async def test_results_that_do_not_fit_into_a_job_cancel_it_with_a_reason(
    make_sqlite_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, _, _ = await two_handlers(make_sqlite_rig)
    job = await rig.submit(["a", "b"])
    later = await job.then("next")
    await rig.tick()
    monkeypatch.setattr("backstay.store.submissions.POSITIONS_MAX", 1)
    await rig.sweep()
    assert (await later.show()).state is JobState.CANCELLED
    [said] = [event.detail for event in await rig.store.events.oldest(f"job:{later.id}")]
    assert "at most 1 items" in str(said)


@pytest.mark.parametrize(
    ("after", "kind", "said"),
    [
        (999, NotFound, "no job 999"),
        ("theirs", NotFound, "no job"),
        ("next", NotFound, "no job"),
        *((wrong, UsageError, "after must be") for wrong in (list[int](), "text", True)),
        ([1, 1], UsageError, "each of them once"),
        *((wrong, UsageError, "out of range") for wrong in (10**30, -1)),
    ],
)
async def test_a_job_that_cannot_be_waited_for_is_refused_and_nothing_is_written(
    make_rig: MakeRig, after: Any, kind: type[Exception], said: str
) -> None:
    rig, _, _ = await two_handlers(make_rig)
    await rig.submit(["a"])
    if after == "theirs":
        await rig.site.rows("UPDATE jobs SET owner = 'bob' WHERE id = 1")
    named = {"theirs": 1, "next": 2}.get(after, after) if isinstance(after, str) else after
    for items in (None, ["x"]):
        with pytest.raises(kind, match=said):
            await rig.submit(items, "next", after=named)
    assert await rig.site.one("SELECT count(*) FROM jobs") == 1
    assert await rig.site.one("SELECT count(*) FROM items") == 1


async def test_neither_items_nor_after_is_refused(make_sqlite_rig: MakeRig) -> None:
    rig, _, _ = await two_handlers(make_sqlite_rig)
    with pytest.raises(UsageError, match="no items"):
        await rig.submit(None, "next")
    with pytest.raises(UsageError, match="after_items must be"):
        await rig.submit(None, "next", after=1, after_items="some")


async def test_the_same_key_finds_the_waiting_job_and_another_wait_is_a_conflict(make_rig: MakeRig) -> None:
    rig, _, _ = await two_handlers(make_rig)
    one, two = await rig.submit(["a"]), await rig.submit(["b"])
    later = await one.then("next", idempotency_key="k")
    assert (await one.then("next", idempotency_key="k")).id == later.id
    with pytest.raises(Exception, match="different items"):
        await two.then("next", idempotency_key="k")
    assert await rig.site.one("SELECT count(*) FROM jobs") == 3
    assert await rig.site.one("SELECT count(*) FROM job_links") == 1


def test_a_program_without_asyncio_can_start_a_job_after_another(sqlite_file_url: str) -> None:
    with SyncBackstay(sqlite_file_url) as backstay:

        @backstay.app.handler()
        def double(item: int) -> int:
            return item * 2

        with backstay.working():
            later = backstay.submit(double, [1, 2]).then(double)
            again = backstay.submit(double, after=later)
            again.wait(timeout_seconds=WAIT)
        assert [result.value for result in again.results()] == [8, 16]
