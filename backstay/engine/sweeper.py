"""Ends items whose time is over, and takes over items of dead workers. Every pass is bounded; a step that fails does
not stop the others."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from backstay.clock import is_process_alive
from backstay.core.errors import DatabaseUnreachable
from backstay.core.events import (
    ItemsExpired,
    ItemsRescued,
    ItemsStopped,
    ItemsSubmitted,
    JobEnded,
    JobsTimedOut,
    Trouble,
)
from backstay.core.failures import ErrorCode, Failure, FailureKind, failure_of_exception
from backstay.core.limits import has_timed_out
from backstay.core.models import CannotAsk, Claimed, Failed, Outcome, Stopped
from backstay.core.states import ItemState, JobState, StopReason
from backstay.engine.gate import Gate
from backstay.engine.parts import Flights, Parts
from backstay.engine.poller import HandlerTasks, ItemQuota, ask_provider, new_call_quota
from backstay.engine.settler import Settler
from backstay.handlers.handler import Handler, client_ref

RESCUE_ITEMS_MAX = 500
PASSES_MAX = 20
PRUNE_SECONDS = 60.0


class Sweeper:
    def __init__(self, parts: Parts, flights: Flights, gate: Gate, settler: Settler) -> None:
        self._parts = parts
        self._flights = flights
        self._gate = gate
        self._settler = settler
        self._beside = HandlerTasks(parts, "rescue")
        self._parked: set[int] = set()
        self.ends_more = False  # the items of stopped jobs were too many for one sweep
        # After an outage of the database, workers need time to extend their leases and to settle their items.
        self._patient_until = float("-inf")
        self._prune_at = float("-inf")  # on the steady clock

    async def run_once(self) -> None:
        """One sweep: job limits first, then deadlines, stopped jobs, paused ones and the health of held providers."""
        for step in (
            self.stop_overdue,
            self.expire,
            self.follow,
            self.end_stopped,
            self.move_late,
            self.park,
            self.add_up_counts,
            self.prune,
        ):
            await self._try_step(step)
        for look in (self._gate.refresh, self._gate.end_holds):
            await self._try_step(look)

    async def _try_step(self, step: Callable[[], Awaitable[object]]) -> None:
        try:
            await step()
        except Exception as error:
            if isinstance(error, DatabaseUnreachable):
                self._patient_until = self._parts.clock.monotonic() + 1.5 * self._parts.limits.heartbeat_seconds
            self._parts.emit(Trouble(f"sweep: {step.__name__}", failure_of_exception(error).message))

    async def stop_overdue(self) -> None:
        while jobs := await self._parts.store.sweeps.stop_overdue():
            self._parts.emit(JobsTimedOut(tuple(jobs)))

    @property
    def _poll_ms(self) -> int:
        """The time between two polls of a task."""
        return int(self._parts.limits.poll_interval_seconds * 1000)

    async def expire(self) -> None:
        for _ in range(PASSES_MAX):
            swept = await self._parts.store.sweeps.expire()
            if swept.items:
                self._parts.emit(ItemsExpired(swept.items))
            self._tell_ended(swept.ended_jobs)
            if not swept.more:
                break

    async def end_stopped(self) -> None:
        """Ends the items of cancelled and overdue jobs, job by job, in chunks."""
        cursor, self.ends_more = 0, False
        while jobs := await self._parts.store.sweeps.stopped_jobs(cursor):
            cursor = jobs[-1][0]
            for job_id, reason in jobs:
                self.ends_more = await self._end(job_id, reason) or self.ends_more

    async def _end(self, job_id: int, reason: StopReason) -> bool:
        """Returns whether more items of this job must be ended."""
        state = ItemState.CANCELLED if reason is StopReason.CANCEL else ItemState.FAILED
        for _ in range(PASSES_MAX):
            swept = await self._parts.store.sweeps.end_stopped(job_id, reason, self._poll_ms)
            if swept.items:
                self._parts.emit(ItemsStopped(job_id, swept.items, state))
            self._tell_ended(swept.ended_jobs)
            if not swept.more:
                return False
        return True

    async def follow(self) -> bool:
        """Starts the jobs that waited for others, each by a bounded number of steps. A job that cannot start does not
        delay the others. Returns whether there were any."""
        cursor = 0
        while jobs := await self._parts.store.job_links.ready(cursor):
            cursor = jobs[-1]
            for job_id in jobs:
                try:
                    await self._follow(job_id)
                except DatabaseUnreachable:
                    raise
                except Exception as error:
                    message = f"job {job_id} cannot start: {failure_of_exception(error).message}"
                    self._parts.emit(Trouble("sweep: follow", message))
        return cursor > 0

    async def _follow(self, job_id: int) -> None:
        for _ in range(PASSES_MAX):
            step = await self._parts.store.job_links.advance(job_id)
            if step.items:
                self._parts.emit(ItemsSubmitted(job_id, step.handler, step.items))
            self._tell_ended(list(step.ended_jobs))
            if not step.more:
                break
        await self._parts.store.notify()

    async def move_late(self) -> None:
        """Moves items whose handler's time is over to the next handler."""
        for _ in range(PASSES_MAX):
            if not await self._parts.store.sweeps.move_late(self._poll_ms):
                break

    async def park(self) -> None:
        """Parks the items of paused jobs, once per pause, and completes a resume that was interrupted."""
        store = self._parts.store
        paused = await store.jobs.paused_jobs()
        for job_id in set(paused).difference(self._parked):
            await store.jobs.park(job_id)
        self._parked = set(paused)
        for job_id in set(await store.jobs.parked_jobs()).difference(paused):
            await store.jobs.unpark(job_id)

    async def add_up_counts(self) -> None:
        """Adds up counts of large jobs whose worker died before it did."""
        self._tell_ended(await self._parts.store.counters.add_up_forgotten())

    async def prune(self) -> None:
        """Deletes hints that were published, and old ones: hints may be written although no relay runs any more."""
        now = self._parts.clock.monotonic()
        if now >= self._prune_at:
            self._prune_at = now + PRUNE_SECONDS
            await self._parts.store.outbox.prune()

    async def rescue(self, asks: ItemQuota) -> None:
        """Takes over items whose worker is gone. If a provider can be asked, it is asked before an item is sent again;
        the quota limits how many questions there are.

        This is not part of the sweep, because a provider may answer slowly, and time limits must not wait for that.
        """
        handlers = await self._handlers_to_rescue()
        for handler in handlers:
            if not handler.askable:
                await self._rescue_all(handler)
        askable = [handler for handler in handlers if handler.askable]
        await asks.share_out(askable, partial(self._rescue_some, asks))

    async def start_rescues(self) -> None:
        """The same for a long-running worker: starts a rescue for every handler that has none under way."""
        for handler in await self._handlers_to_rescue():
            self._beside.start(handler, partial(self._rescue_all, handler))

    async def stop_rescues(self) -> None:
        await self._beside.stop()

    async def _handlers_to_rescue(self) -> list[Handler]:
        if self._parts.clock.monotonic() < self._patient_until:
            return []
        await self._parts.store.workers.end_dead_leases(self._parts.worker, self._parts.place, is_process_alive)
        await self._gate.refresh()
        return [each for each in self._parts.registry if not each.askable or self._gate.may_call(each)]

    async def _rescue_all(self, handler: Handler) -> None:
        most = PASSES_MAX * _at_once(handler)
        await self._rescue_some(ItemQuota(most), handler, most)

    async def _rescue_some(self, items: ItemQuota, handler: Handler, items_max: int) -> int:
        """Takes over items only as fast as providers can be asked about them. Returns how many items it took over."""
        taken = 0
        while (wanted := min(_at_once(handler), items_max - taken)) > 0:
            found = await self._rescue(handler, wanted, items.look_at)
            taken += found
            if found < wanted:
                break
        return taken

    async def _rescue(self, handler: Handler, items_max: int, look_at: Callable[[int], None]) -> int:
        parts = self._parts
        rescuer = f"{parts.worker}:rescue"
        taken = await parts.store.items.rescue(
            handler.name, handler.askable, items_max, rescuer, parts.lease_ms, parts.known_jobs()
        )
        parts.remember(taken.jobs)
        look_at(len(taken.items))
        if taken.items:
            parts.emit(ItemsRescued(parts.worker, handler.name, len(taken.items)))
            started, troubles = parts.clock.monotonic(), set[str]()
            await asyncio.gather(*(self._resolve(handler, item, started, troubles) for item in taken.items))
            for trouble in sorted(troubles):  # several items may have the same trouble
                parts.emit(Trouble(f"look-up at {handler.provider}", trouble, look_up=True))
        return len(taken.items)

    async def _resolve(self, handler: Handler, item: Claimed, started: float, troubles: set[str]) -> None:
        parts = self._parts
        outcome = await self._ask(handler, item, troubles)
        if outcome is None:
            if not has_timed_out(item.queued_at, item.claimed_at, parts.plan(item).terms.limits):
                return  # not certain: its new lease runs out, and it is asked about again
            outcome = Failed(
                Failure(ErrorCode.GW_TIMEOUT, FailureKind.INFRASTRUCTURE, "the provider could not be asked")
            )
        self._settler.put(item, parts.plan(item), outcome, started)

    async def _ask(self, handler: Handler, item: Claimed, troubles: set[str]) -> Outcome | None:
        answer: Outcome = CannotAsk()
        if handler.askable:
            ref = client_ref(self._parts.plan(item).job, item)
            since_ms = 0 if item.ask_first else item.queued_at  # a retried item may have been sent earlier
            try:
                with self._flights.keep_leases([item]):
                    turn = new_call_quota(self._parts.limits)
                    answer = await ask_provider(self._parts, lambda: handler.ask(ref, since_ms), turn)
            except Exception as error:
                troubles.add(failure_of_exception(error).message)
                return None
        cancelled = item.stop_reason == StopReason.CANCEL
        return Stopped(sent=True) if cancelled and isinstance(answer, CannotAsk) else answer

    def _tell_ended(self, jobs: list[tuple[int, JobState]]) -> None:
        for job_id, state in jobs:
            self._parts.emit(JobEnded(job_id, state))


def _at_once(handler: Handler) -> int:
    return handler.asks_at_once if handler.askable else RESCUE_ITEMS_MAX
