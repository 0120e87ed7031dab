"""Runs a claimed item: send guard, handler, outcome, and on to the settler. It does not decide about the outcome."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from backstay.core.errors import Skip
from backstay.core.events import ItemLogged, Trouble
from backstay.core.failures import ErrorCode, Failure, FailureKind, failure_of_exception, one_line
from backstay.core.models import (
    CannotAsk,
    Claimed,
    Failed,
    HandedBack,
    Interrupted,
    NeverArrived,
    Outcome,
    Skipped,
    Stopped,
)
from backstay.engine.parts import Cut, Flight, Flights, Parts
from backstay.engine.poller import ask_provider, new_call_quota
from backstay.engine.settler import Settler
from backstay.handlers.handler import Context, Handler, OpenItems, Surroundings, client_ref

APART_CHECK_SECONDS = 0.02
SHARE_MS_MIN = 1_000  # a call that begins less than this before the next provider's turn is not cut off by it


class Executor:
    def __init__(self, parts: Parts, flights: Flights, settler: Settler, freed: Callable[[], None]) -> None:
        self._parts = parts
        self._flights = flights
        self._settler = settler
        self._freed = freed
        self._progress: dict[int, tuple[int, int]] = {}  # item -> (fence, percent), not yet stored
        self._last_chance: Flight | None = None
        guard = parts.limits.send_guard_seconds
        last_invalid = parts.store.item_views.last_invalid
        sinks = (self._note_progress, self._note_log)
        self._around = Surroundings(parts.clock, guard, *sinks, last_invalid, self._open_items)

    async def _open_items(self, job_id: int, owner: str) -> OpenItems:
        job = await self._parts.store.job_views.get(job_id, owner)
        return OpenItems(job.total - job.done, job.processing, not job.sealed)

    def start(self, items: list[Claimed], started: float, is_probe: Callable[[Handler], bool]) -> None:
        """Starts the runs of claimed items. `started` is the time before the claim was sent: if the process slept until
        the answer came, the claim must count as too old to send anything."""
        parts = self._parts
        for item in items:
            plan = parts.plan(item)
            seconds = plan.run_seconds
            if item.deadline_at is not None:  # a call under way at the deadline is paid for, so it may finish
                left = max(item.deadline_at - item.claimed_at, 0) / 1000
                seconds = min(seconds, left + parts.limits.cancel_grace_seconds)
                share_ends_at = plan.terms.share_ends_at(item)
                if share_ends_at is not None and share_ends_at - item.claimed_at >= SHARE_MS_MIN:
                    seconds = min(seconds, (share_ends_at - item.claimed_at) / 1000)
            context = Context(item, plan.job, self._around, started, seconds)
            flight = Flight(item, plan, context, started)
            flight.probe = is_probe(plan.handler)
            if parts.bus.tracing is not None:
                parts.bus.tracing.record_claim(item, plan.job, parts.clock.monotonic() - started)
            if item.rescues and item.rescues >= plan.terms.limits.rescues_max:
                self._keep_apart(flight)
            self._flights.add(flight)
            self._flights.running += 1
            flight.task = parts.tasks.start(self._fly(flight))

    def _keep_apart(self, flight: Flight) -> None:
        """For an item that may have killed its workers: it fails if this run kills the worker too. Only one such item
        runs here at a time, and the others go back to the queue first, so that they do not die with it."""
        running = self._last_chance
        if running is None or not self._flights.holds(running.item.id, running.item.fence):
            self._last_chance = flight
        else:
            flight.cut_off(Cut.APART)

    async def _wait_for_others(self) -> None:
        while any(flight.cut is Cut.APART for flight in self._flights.all()):
            await self._parts.clock.sleep(APART_CHECK_SECONDS)

    async def _fly(self, flight: Flight) -> None:
        try:
            outcome = await self._outcome(flight)
        finally:
            self._flights.running -= 1
            self._freed()
        if outcome is None:
            self._flights.drop(flight.item)
            if self._parts.bus.tracing is not None:
                self._parts.bus.tracing.record_drop(flight.item)
        else:
            self._settler.put(flight.item, flight.plan, outcome, flight.started)

    async def _outcome(self, flight: Flight) -> Outcome | None:
        """The outcome of the run; None if the worker has lost the item's lease."""
        context = flight.context
        if flight is self._last_chance:
            await self._wait_for_others()
        flight.begun = True
        if flight.cut is not None:
            return self._outcome_of_unsent(flight.cut)
        try:
            if flight.item.ask_first and flight.plan.handler.askable and (found := await self._ask(flight)):
                return found
            if context.too_late_to_send:  # no await between this and the handler's first step
                return HandedBack("the claim is too old to send")
            outcome = await self._run(flight)
            if flight.probe and isinstance(outcome, Failed) and outcome.flaw is None:
                outcome = replace(outcome, probe=True)
            return outcome
        except asyncio.CancelledError:
            return self._outcome_of_cut(flight)
        except BaseException as error:  # a handler that exits the process must not end the worker
            return self._outcome_of_error(error, flight)

    async def _run(self, flight: Flight) -> Outcome:
        """Calls the handler; with tracing, inside the span of the call."""
        item, (handler, job, *_), context = flight.item, flight.plan, flight.context
        tracing = self._parts.bus.tracing
        if tracing is None:
            return await handler.run(item.body, context)
        with tracing.calling(item, job, handler.provider, handler) as carried:
            context.traceparent, context.outside_traceparent = carried
            return await handler.run(item.body, context)

    def _outcome_of_error(self, error: BaseException, flight: Flight) -> Outcome:
        """The outcome of any exception that a handler raised, even of one whose text cannot be read."""
        try:
            if isinstance(error, Skip):
                return Skipped(one_line(str(error)), flight.context.used)
            failure = failure_of_exception(error, self._parts.clock.now_ms())
        except BaseException:
            message = f"{type(error).__name__}, which could not be shown"
            failure = Failure(ErrorCode.UNKNOWN, FailureKind.BUSINESS, message)
        return Failed(failure, flight.context.used, probe=flight.probe)

    async def _ask(self, flight: Flight) -> Outcome | None:
        """The outcome of an earlier call; None if the provider certainly never received it, or keeps no list.

        In these cases the request is sent again: a person has decided to retry it.
        """
        try:
            ref = client_ref(flight.plan.job, flight.item)
            turn = new_call_quota(self._parts.limits)
            answer = await ask_provider(self._parts, lambda: flight.plan.handler.ask(ref), turn, spare=1)
        except Exception as error:  # not certain, so nothing is sent
            failure = failure_of_exception(error)
            self._parts.emit(Trouble(f"look-up at {flight.plan.handler.provider}", failure.message, look_up=True))
            return Failed(Failure(failure.code, FailureKind.THROTTLED, f"the look-up failed: {failure.message}"))
        return None if isinstance(answer, NeverArrived | CannotAsk) else answer

    def _outcome_of_unsent(self, cut: Cut) -> Outcome | None:
        """The outcome of a run that was cut off before its first step, so it has sent nothing."""
        match cut:
            case Cut.LOST:
                return None
            case Cut.STOPPED:
                return Stopped()
            case Cut.APART:
                return HandedBack(
                    "another item may have killed its worker; this one waits until it has run", apart=True
                )
            case Cut.TIMEOUT | Cut.SHUTDOWN:
                return HandedBack("the call was cut off before it began")
            case _:
                assert_never(cut)

    def _outcome_of_cut(self, flight: Flight) -> Outcome | None:
        match flight.cut:
            case Cut.LOST | Cut.APART:
                return None
            case Cut.STOPPED:
                return Stopped(sent=True)
            case Cut.TIMEOUT:
                message = f"no answer within {flight.context.seconds_given:g} s"
                failure = Failure(ErrorCode.GW_TIMEOUT, FailureKind.UNKNOWN, message)
                return Failed(failure, flight.context.used, probe=flight.probe)
            case Cut.SHUTDOWN:
                return Interrupted()
            case None:  # not cut off by the worker: something that the handler awaited was cancelled
                message = "the handler was cancelled from within"
                return Failed(Failure(ErrorCode.UNKNOWN, FailureKind.UNKNOWN, message), flight.context.used)
            case _:
                assert_never(flight.cut)

    def _note_progress(self, item_id: int, fence: int, percent: int) -> None:
        self._progress[item_id] = (fence, percent)

    def _note_log(self, item_id: int, text: str) -> None:
        self._parts.emit(ItemLogged(item_id, one_line(text, 2_000)))

    async def store_progress(self) -> None:
        """Stores the progress that handlers reported since the last time, with one statement."""
        reported, self._progress = self._progress, {}
        if reported:
            rows = [(item_id, fence, percent) for item_id, (fence, percent) in reported.items()]
            stored = await self._parts.store.items.report_progress(rows)
            for item_id, (fence, percent) in reported.items():
                if item_id not in stored and self._flights.holds(item_id, fence):  # its row was locked at that time
                    self._progress.setdefault(item_id, (fence, percent))
