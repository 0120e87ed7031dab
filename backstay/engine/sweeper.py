"""Ends what time has ended and takes up what was left behind. Every pass is bounded and goes on past what fails."""

import asyncio
from collections.abc import Awaitable, Callable

from backstay.core.deadlines import timed_out
from backstay.core.events import ItemsExpired, ItemsRescued, JobEnded, JobsTimedOut, Trouble
from backstay.core.failures import ErrorCode, Failure, FailureKind, failure_of_exception
from backstay.core.models import Claimed
from backstay.core.outcomes import CannotAsk, Failed, Outcome, Stopped
from backstay.core.states import JobState, StopReason
from backstay.engine.calling import ask_provider
from backstay.engine.gate import Gate
from backstay.engine.parts import Parts
from backstay.engine.settler import Settler
from backstay.handlers.context import client_ref
from backstay.handlers.handler import Handler

RESCUE_ITEMS_MAX = 500
PASSES_MAX = 20
ASKS_AT_ONCE_MAX = 25


class Sweeper:
    def __init__(self, parts: Parts, gate: Gate, settler: Settler) -> None:
        self._parts = parts
        self._gate = gate
        self._settler = settler
        self._parked: set[int] = set()

    async def run_once(self) -> None:
        """One sweep: job limits first, then deadlines, stopped jobs and lost items."""
        steps = (self.stop_overdue, self.expire, self.end_stopped, self._gate.refresh, self.rescue, self.park)
        for step in (*steps, self._gate.heal):
            await self._past_trouble(step)

    async def _past_trouble(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except Exception as error:
            self._parts.emit(Trouble(f"sweep: {step.__name__}", failure_of_exception(error).message))

    async def stop_overdue(self) -> None:
        jobs = await self._parts.store.stop_overdue()
        if jobs:
            self._parts.emit(JobsTimedOut(tuple(jobs)))

    async def expire(self) -> None:
        for _ in range(PASSES_MAX):
            swept = await self._parts.store.expire()
            if swept.items:
                self._parts.emit(ItemsExpired(swept.items))
            self._tell_ended(swept.ended_jobs)
            if not swept.more:
                break

    async def end_stopped(self) -> None:
        """Ends the items of cancelled and overdue jobs, a chunk at a time, each job in its turn."""
        for job_id, reason in await self._parts.store.stopping():
            for _ in range(PASSES_MAX):
                swept = await self._parts.store.end_stopped(job_id, reason)
                self._tell_ended(swept.ended_jobs)
                if not swept.more:
                    break

    async def park(self) -> None:
        """Keeps paused jobs out of the claim's way, each once per pause; mends a resume that broke off."""
        store = self._parts.store
        paused = await store.paused_jobs()
        for job_id in set(paused).difference(self._parked):
            await store.park(job_id)
        self._parked = set(paused)
        for job_id in set(await store.parked_jobs()).difference(paused):
            await store.unpark(job_id)

    async def rescue(self) -> None:
        """Takes up items whose holder is gone. One that may have been sent is asked about, never sent blindly."""
        for handler in self._parts.registry:
            if handler.askable and not self._gate.may_call(handler):
                continue
            for _ in range(PASSES_MAX):
                if await self._rescue(handler) < RESCUE_ITEMS_MAX:
                    break

    async def _rescue(self, handler: Handler) -> int:
        parts = self._parts
        rescuer = f"{parts.worker}:rescue"  # not the worker's own name: it may have been sent, so it is never disowned
        taken = await parts.store.rescue(
            handler.name, handler.askable, RESCUE_ITEMS_MAX, rescuer, parts.lease_ms, parts.met()
        )
        parts.remember(taken.jobs)
        if taken.items:
            parts.emit(ItemsRescued(parts.worker, handler.name, len(taken.items)))
            started = parts.clock.monotonic()
            for first in range(0, len(taken.items), ASKS_AT_ONCE_MAX):
                some = taken.items[first : first + ASKS_AT_ONCE_MAX]
                await asyncio.gather(*(self._resolve(handler, item, started) for item in some))
        return len(taken.items)

    async def _resolve(self, handler: Handler, item: Claimed, started: float) -> None:
        parts = self._parts
        outcome = await self._ask(handler, item)
        if outcome is None:
            if not timed_out(item.queued_at, item.claimed_at, parts.limits):
                return  # not certain: its new lease runs out, and it is asked about again
            outcome = Failed(
                Failure(ErrorCode.GW_TIMEOUT, FailureKind.INFRASTRUCTURE, "the provider could not be asked")
            )
        self._settler.put(item, parts.plan(item), outcome, started)

    async def _ask(self, handler: Handler, item: Claimed) -> Outcome | None:
        if not handler.askable:
            return Stopped() if item.stop_reason == StopReason.CANCEL else CannotAsk()
        try:
            ref = client_ref(self._parts.plan(item).job, item)
            return await ask_provider(self._parts, lambda: handler.ask(ref))
        except Exception as error:
            self._parts.emit(Trouble(f"look-up at {handler.provider}", failure_of_exception(error).message))
            return None

    def _tell_ended(self, jobs: list[tuple[int, JobState]]) -> None:
        for job_id, state in jobs:
            self._parts.emit(JobEnded(job_id, state))
