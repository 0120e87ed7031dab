"""One bounded invocation for cron or a serverless trigger: sweep, poll, submit, time out, finish."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from backstay.clock import new_id, wait_for_event
from backstay.core.errors import DatabaseUnreachable
from backstay.core.events import TickEnded
from backstay.core.failures import one_line
from backstay.engine.crew import Crew

MARGIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class TickReport:
    """What an invocation did, and whether it asks for another right away."""

    invocation: str
    depth: int
    claimed: int
    polled: int
    seconds: float
    pending: bool
    follow_up: bool

    @property
    def full(self) -> bool:
        """There is work left, but the chain is as long as it may be."""
        return self.pending and not self.follow_up


class Tick:
    """The worker's own steps, under the invocation's bounds: items, concurrency, time and chain depth."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._limits = crew.parts.limits
        self._clock = crew.parts.clock

    async def run(self, depth: int = 0) -> TickReport:
        """One invocation, which is written down before it does anything: one that was killed is known by that."""
        name, invocations = new_id(), self._crew.parts.store.invocations
        await invocations.begin(name, depth, self._limits.invocation_seconds)
        try:
            report = await self._run(name, depth)
        except BaseException as error:
            with suppress(DatabaseUnreachable):  # then nothing is written, and it counts as killed
                await invocations.fail(name, one_line(f"{type(error).__name__}: {error}"))
            raise
        await invocations.end(name, report.claimed + report.polled, report.full)
        self._crew.parts.emit(
            TickEnded(depth, report.claimed + report.polled, report.seconds, report.follow_up, report.full)
        )
        return report

    async def _run(self, name: str, depth: int) -> TickReport:
        crew, limits = self._crew, self._limits
        started = self._clock.monotonic()
        end = started + max(limits.invocation_seconds - MARGIN_SECONDS, limits.invocation_seconds / 2)
        await crew.start()
        try:
            # Polls may take half of the items' bound at most: what is paid for comes first, but new work goes on.
            polled = await self._look_after(max(limits.tick_items_max // 2, 1), end)
            claimed = await self._submit(limits.tick_items_max - polled, end)
        finally:
            await crew.stop(max(end - self._clock.monotonic(), 0.0))
        pending = await self._pending()
        seconds = self._clock.monotonic() - started
        return TickReport(name, depth, claimed, polled, seconds, pending, pending and depth < limits.chain_depth_max)

    async def _look_after(self, polls_max: int, end: float) -> int:
        """Sweeps, rescues and polls, but not past the invocation's end: a provider may be slow to answer."""
        crew, polled = self._crew, 0
        await crew.sweeper.run_once()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(end - self._clock.monotonic(), 0.0)):
                await crew.sweeper.rescue()
                await crew.settler.drained()
                polled = await crew.poller.run_once(polls_max)
        return polled

    async def _submit(self, items_max: int, end: float) -> int:
        """Claims and runs items until there are none, the items' bound is met or the time is over."""
        crew, claimed = self._crew, 0
        while claimed < items_max and self._clock.monotonic() < end:
            crew.freed.clear()
            await crew.gate.keep_pace()
            won = await crew.claim_once(items_max - claimed)
            claimed += won
            if won == 0:
                if crew.flights.running == 0:
                    break
                await wait_for_event(crew.freed, max(end - self._clock.monotonic(), 0.0))
        return claimed

    async def _pending(self) -> bool:
        """Whether another invocation would find work now; what waits for its time or for money is left alone."""
        views = self._crew.parts.store.views
        for handler in self._crew.parts.registry:
            if await views.unfinished(handler.name):
                return True
        return False
