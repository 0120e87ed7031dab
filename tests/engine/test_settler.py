"""settler and sweeper: one bad row never keeps the others, and a lost connection never costs a result."""

import asyncio
import os
from contextlib import suppress
from typing import Any

import pytest

from backstay.core.errors import DatabaseUnreachable, Skip
from backstay.core.events import ItemsSettled, LeasesLost, Trouble
from backstay.core.failures import one_line
from backstay.core.states import JobState
from backstay.handlers.handler import Context
from tests.engine.conftest import MakeRig
from tests.engine.provider import HttpError, Provider, TaskProvider


async def test_a_result_the_database_refuses_fails_its_item_and_no_other(make_rig: MakeRig) -> None:
    rig = await make_rig()
    settle = rig.store.items.settle

    async def refuse_one(settlements: list) -> object:
        if any(s.attempt is not None and s.attempt.result == '"bad"' for s in settlements):
            raise ValueError("cannot be stored")
        return await settle(settlements)

    rig.store.items.settle = refuse_one
    rig.serves(Provider())
    job = await rig.submit(["a", "bad", "b"])
    async with rig.working():
        view = await job.wait(timeout_seconds=20)
    assert (view.succeeded, view.failed) == (2, 1)
    bad = (await rig.results(job))[1]
    assert (bad.error_code, bad.message) == ("UNKNOWN", "the result could not be stored: cannot be stored")


async def test_an_item_about_which_nothing_can_be_stored_does_not_stop_the_settler(make_rig: MakeRig) -> None:
    rig = await make_rig()
    settle = rig.store.items.settle

    async def refuse_first_item(settlements: list) -> object:
        if any(s.id & 1 == 0 for s in settlements):
            raise ValueError("cannot be stored")
        return await settle(settlements)

    rig.store.items.settle = refuse_first_item
    provider = rig.serves(Provider())
    provider.script = [KeyError("bug")] * 2
    await rig.submit(["bad", "a"])
    job = await rig.submit(["b", "c"])
    async with rig.working(grace=1):
        await rig.until(lambda: rig.told(ItemsSettled))
        provider.script = []
        await rig.in_state(job, "succeeded", position=1)
        assert rig.told(Trouble)


async def test_usage_that_is_no_number_does_not_stop_the_settler(make_rig: MakeRig) -> None:
    rig = await make_rig()

    @rig.app.handler("odd")
    async def odd(item: str, context: Context) -> str:
        context.usage(input_tokens="many", cost_micros=float("nan"))  # type: ignore[arg-type]
        if item == "bug":
            raise KeyError(item)
        return item

    job = await rig.submit(["bug", "fine"], "odd")
    rig.serves(Provider())
    async with rig.working():
        await job.wait(timeout_seconds=20)
        after = await rig.submit()
        assert (await after.wait(timeout_seconds=20)).succeeded == 1


async def test_figures_that_are_too_large_to_be_added_up_are_not_kept(make_rig: MakeRig) -> None:
    rig = await make_rig()

    @rig.app.handler("odd")
    async def odd(item: int, context: Context) -> int:
        context.usage(*((1 << 61, 3, 1 << 61) if item else (7, 3, 5)))
        return item

    job = await rig.submit([1, 0, 1, 1, 1], "odd")
    async with rig.working():
        view = await job.wait(timeout_seconds=20)
    assert (view.succeeded, view.spent_micros, view.input_tokens, view.output_tokens) == (5, 5, 7, 15)


async def test_a_worker_whose_connections_are_cut_goes_on_and_loses_no_result(make_rig: MakeRig) -> None:
    rig = await make_rig()
    if not rig.site.is_postgres:
        pytest.skip("an SQLite file has no connections to cut")
    provider = rig.serves(Provider())
    provider.gate.clear()
    job = await rig.submit(range(20))
    async with rig.working(grace=5):
        await rig.until(lambda: provider.now == 20)
        await rig.site.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        provider.gate.set()

        async def over() -> bool:
            with suppress(DatabaseUnreachable):
                return (await job.show()).ended
            return False

        await rig.until(over)
        view = await job.show()
        more = await rig.submit(range(3))
        assert (await more.wait(timeout_seconds=30)).succeeded == 3
    assert (view.state, view.succeeded, view.failed, provider.calls) == (JobState.COMPLETED, 20, 0, 23)


@pytest.mark.slow
async def test_nothing_more_is_claimed_while_what_was_done_cannot_be_stored(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider, settle, full = rig.serves(Provider()), rig.store.items.settle, asyncio.Event()
    full.set()

    async def refuse(settlements: list) -> object:
        if full.is_set():
            raise DatabaseUnreachable("the disk is full")
        return await settle(settlements)

    rig.store.items.settle = refuse
    await rig.submit(["a"])
    async with rig.working() as worker:
        await rig.until(lambda: rig.told(Trouble))
        job = await rig.submit(["b"])
        worker.wake()
        await rig.until(lambda: len(rig.told(Trouble)) >= 2)  # a second later
        assert (provider.calls, worker.refusal.message) == (1, "the disk is full")
        assert worker.refusal.last > worker.refusal.since
        full.clear()
        assert (await job.wait(timeout_seconds=20)).succeeded == 1
        assert worker.refusal is None


async def test_a_step_of_the_sweep_that_fails_does_not_keep_the_next_from_its_work(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())

    async def broken() -> None:
        raise DatabaseUnreachable("no")

    rig.store.sweeps.stop_overdue = broken
    rig.store.sweeps.stopped_jobs = broken
    job = await rig.submit(deadline_seconds=10)
    await rig.site.advance(11)
    await rig.sweep()
    assert (await job.show()).state is JobState.FAILED
    assert len(rig.told(Trouble)) == 2


@pytest.mark.parametrize("task_id", ["nul \0 byte", "lone \ud800 surrogate"])
async def test_a_task_id_no_database_takes_fails_its_item_and_no_poll(make_rig: MakeRig, task_id: str) -> None:
    rig = await make_rig()
    provider = TaskProvider()
    provider.finishes_all = True
    plain = provider.submit

    async def submit(item: str, context: Context) -> str:
        return task_id if item == "bad" else await plain(item, context)

    provider.submit = submit  # type: ignore[method-assign]
    rig.takes_tasks(provider)
    job = await rig.submit(["a", "bad", "b"], "task")
    for _ in range(3):
        await rig.tick()
        await rig.site.advance(10)
    view = await job.show()
    assert (view.state, view.succeeded, view.failed) == (JobState.COMPLETED, 2, 1)


@pytest.mark.parametrize("text", ["nul \0 byte", "lone \ud800 surrogate", "é ☃ 𝄞", "line\nbreak"])
async def test_any_text_goes_in_and_comes_out(make_rig: MakeRig, text: str) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    failing = rig.serves(Provider(), "fails")
    failing.script = [RuntimeError(text)]
    fine, bad = await rig.submit([text, {text: [text]}]), await rig.submit([text], "fails", label=text)
    await rig.tick()
    assert [(r.payload, r.value) for r in await rig.results(fine)] == [(text, text), ({text: [text]}, {text: [text]})]
    (result,) = await rig.results(bad)
    assert (result.payload, result.message) == (text, one_line(f"RuntimeError: {text}"))


async def test_an_item_whose_handler_is_cancelled_from_within_is_not_repeated_for_ever(make_rig: MakeRig) -> None:
    rig = await make_rig()
    runs: list[str] = []

    @rig.app.handler("gives_up")
    async def gives_up(item: str) -> None:
        runs.append(item)
        raise asyncio.CancelledError

    job = await rig.submit(["a"], "gives_up")
    async with rig.working():
        for tries in (1, 2):
            await rig.until(lambda tries=tries: len(runs) == tries)
            await rig.in_state(job, "queued")
            await rig.site.advance(30)
        view = await job.wait(timeout_seconds=20)
    assert (view.state, len(runs)) == (JobState.FAILED, 3)


@pytest.mark.parametrize("error", [StopIteration("empty"), SystemExit(3), KeyboardInterrupt()])
async def test_whatever_a_sync_handler_raises_ends_its_item_and_not_the_worker(
    make_sqlite_rig: MakeRig, error: BaseException
) -> None:
    rig = await make_sqlite_rig()

    @rig.app.handler("raises")
    def raises(item: str) -> None:
        raise error

    job = await rig.submit(["a"], "raises")
    async with rig.working():
        view = await job.wait(timeout_seconds=10)
    (result,) = await rig.results(job)
    assert (view.state, result.error_code, result.attempts) == (JobState.FAILED, "UNKNOWN", 1)
    assert type(error).__name__ in (result.message or "")


async def test_an_error_that_cannot_even_be_shown_ends_its_item_and_no_other(make_sqlite_rig: MakeRig) -> None:
    class Unspeakable(Skip):
        def __str__(self) -> str:
            raise SystemExit(3)

    rig = await make_sqlite_rig()
    provider = rig.serves(Provider())
    provider.script = [Unspeakable("why")]
    job = await rig.submit(["a", "b"])
    await rig.tick()
    view = await job.show()
    assert (view.failed, view.succeeded) == (1, 1)
    (message,) = [result.message for result in await rig.results(job) if result.state == "failed"]
    assert message == "Unspeakable, which could not be shown"


async def test_an_async_handler_that_exits_ends_its_item_and_not_the_worker(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()

    @rig.app.handler("exits")
    async def exits(item: str) -> None:
        raise SystemExit(3)

    job = await rig.submit(["a"], "exits")
    async with rig.working():
        view = await job.wait(timeout_seconds=10)
    assert view.state is JobState.FAILED


async def test_an_old_runs_answer_does_not_end_the_newer_run_of_the_same_worker(make_rig: MakeRig) -> None:
    rig = await make_rig(heartbeat_seconds=0.2)
    provider = rig.serves(Provider())
    provider.gate.clear()
    job = await rig.submit()
    async with rig.working(grace=5) as worker:
        await rig.until(lambda: provider.now == 1)
        old = worker.engine.flights.all()[0]
        await rig.site.rows(
            "UPDATE items SET state = 'queued', fence = fence + 1, leased_by = NULL, lease_expires_at = NULL"
        )
        await rig.until(lambda: provider.calls == 2)
        await rig.until(lambda: not old.is_running)
        assert [flight.item.fence for flight in worker.engine.flights.all()] == [old.item.fence + 2]
        provider.script = [HttpError(400)]
        provider.gate.set()
        view = await job.wait(timeout_seconds=20)
    assert (view.state, len(await rig.attempts(job))) == (JobState.FAILED, 1)


async def test_a_worker_whose_file_was_moved_away_pays_for_nothing_more_and_keeps_what_it_has(
    make_sqlite_rig: MakeRig,
) -> None:
    rig = await make_sqlite_rig()
    provider = rig.serves(Provider())
    provider.gate.clear()
    job = await rig.submit(range(5))
    async with rig.working(concurrency=1, heart=False):
        await rig.until(lambda: provider.now == 1)
        os.rename(rig.site.path, f"{rig.site.path}.away")
        provider.gate.set()

        def told() -> set[str]:
            return {t.where for t in rig.told(Trouble) if "the database file was removed or replaced" in t.message}

        await rig.until(lambda: "settle" in told())
        assert provider.calls == 1
        os.rename(f"{rig.site.path}.away", rig.site.path)
        assert (await job.wait(timeout_seconds=20)).succeeded == 5
    assert provider.calls == 5


async def test_an_error_after_a_commit_does_not_stop_the_settler(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    rig.serves(Provider())
    async with rig.working() as worker:
        sums = worker.engine.parts.sums
        add, broken = sums.add, asyncio.Event()

        def fail_once(*measured: Any) -> None:
            if not broken.is_set():
                broken.set()
                raise ArithmeticError("a bug")
            add(*measured)

        sums.add = fail_once
        first = await rig.submit(range(2))
        await rig.until(broken.is_set)
        second = await rig.submit(range(2))
        assert (await second.wait(timeout_seconds=20)).succeeded == 2
        assert (await first.wait(timeout_seconds=20)).succeeded == 2
        await asyncio.wait_for(worker.engine.settler.wait_until_committed(), 20)
    assert [trouble.message for trouble in rig.told(Trouble)] == ["ArithmeticError: a bug"]


async def test_a_late_result_that_cannot_be_kept_now_does_not_hold_up_the_others(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    provider.gate.clear()
    late, other = await rig.submit(["late"], deadline_seconds=10), await rig.submit(["other"])

    async def away(_: object) -> None:
        raise DatabaseUnreachable("no route to the database")

    rig.store.inbox.keep_late = away
    async with rig.working():
        await rig.until(lambda: provider.now == 2)
        await rig.site.rows(f"UPDATE items SET deadline_at = {rig.site.clock.now_ms()} WHERE deadline_at IS NOT NULL")
        await rig.sweep()
        provider.gate.set()
        assert (await other.wait(timeout_seconds=20)).succeeded == 1
        await rig.until(lambda: rig.told(Trouble))
    assert (await late.show()).failed == 1
    assert [(trouble.where, trouble.message) for trouble in rig.told(Trouble)] == [
        ("late results", "no route to the database")
    ]


async def test_an_item_that_is_handed_back_after_its_lease_was_lost_changes_nothing(make_rig: MakeRig) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    job = await rig.submit(["lost", "held"])
    claim = rig.store.items.claim

    async def claim_and_lose_one(*args: object) -> object:
        taken = await claim(*args)
        await rig.site.rows(f"UPDATE items SET fence = fence + 1, leased_by = 'another' WHERE id = {job.id << 28}")
        return taken

    rig.store.items.claim = claim_and_lose_one
    engine = rig.engine(heart=False)
    await engine.start()
    await engine.claim_once(5)
    engine.flights.shut_down()  # nothing has let the runs take their first step
    await engine.stop(5)
    items = [await rig.item(job, n) for n in range(2)]
    assert [(item.state, item.leased_by) for item in items] == [("submitting", "another"), ("queued", None)]
    assert (provider.calls, [event.items for event in rig.told(LeasesLost)]) == (0, [(items[0].id,)])
    assert rig.told(Trouble) == []


async def test_what_was_measured_and_cannot_be_stored_is_stored_the_next_time(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    job = await rig.submit(range(3))
    add = rig.store.measures.add

    async def away(*_: object) -> None:
        raise DatabaseUnreachable("no route to the database")

    engine = rig.engine(heart=False)
    await engine.start()
    await engine.claim_once(5)
    await rig.in_state(job, "succeeded", position=2)
    await engine.settler.wait_until_committed()
    rig.store.measures.add = away
    with pytest.raises(DatabaseUnreachable):
        await engine.write_measures()
    rig.store.measures.add = add
    await engine.stop(5)
    assert await rig.site.rows("SELECT SUM(succeeded), SUM(calls) FROM measures") == [(3, 3)]
