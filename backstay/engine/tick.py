"""One bounded invocation for cron or a serverless trigger: sweep, fire schedules, poll, submit, time out, finish."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass

from backstay.clock import cancel_until_ended, new_id, wait_for_event
from backstay.core.errors import BackstayError, DatabaseUnreachable
from backstay.core.events import TickEnded, Trouble
from backstay.core.failures import one_line
from backstay.engine.engine import Engine
from backstay.engine.poller import ItemQuota, run_side_by_side

MARGIN_SECONDS = 5.0
AGAIN_SECONDS = 1.0  # while a slow provider is asked, others may bring back items


@dataclass(frozen=True, slots=True)
class TickReport:
    """The work of one invocation, and whether another should follow at once."""

    invocation: str
    depth: int
    claimed: int
    polled: int
    seconds: float
    pending: bool
    follow_up: bool
    asked: int = 0  # lost requests that were looked up at their provider

    @property
    def items(self) -> int:
        return self.claimed + self.polled + self.asked

    @property
    def full(self) -> bool:
        """There is work left, but the chain is as long as it may be."""
        return self.pending and not self.follow_up


class LookQuota:
    """How many items an invocation may look up or poll: at most half of its bound, so that new items get the other
    half. Half of these are for polls only."""

    def __init__(self, items_max: int) -> None:
        self._items_max = max(items_max // 2, 1)
        self.asks = ItemQuota(max(self._items_max // 2, 1))
        self.polls = ItemQuota(self._items_max - self.asks.items_max)
        self._rest = ItemQuota(0)
        self.over = False

    def rest(self) -> ItemQuota:
        """The quota that the look-ups and the first polls have left, for further polls."""
        self._rest = ItemQuota(self._items_max - self.asks.items_used - self.polls.items_used)
        return self._rest

    @property
    def polled(self) -> int:
        return self.polls.looked_at + self._rest.looked_at

    @property
    def items_used(self) -> int:
        """How many items are not available for new work: until the looks are over, all that they may need."""
        taken = self.asks.items_used + self.polls.items_used + self._rest.items_used
        return taken if self.over else self._items_max


class Tick:
    """The same steps as a worker's, within the limits of an invocation: items, concurrency, time and chain depth."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._limits = engine.parts.limits
        self._clock = engine.parts.clock

    async def run(self, depth: int = 0) -> TickReport:
        """One invocation. It is stored before it does anything, so that a killed one is noticed."""
        name, invocations = new_id(), self._engine.parts.store.invocations
        await invocations.begin(name, depth, self._limits.invocation_seconds)
        try:
            report = await self._run(name, depth)
        except BaseException as error:
            with suppress(DatabaseUnreachable):  # then nothing is written, and it counts as killed
                await invocations.fail(name, one_line(f"{type(error).__name__}: {error}"))
            raise
        await invocations.end(name, report.items, report.full)
        self._engine.parts.emit(TickEnded(depth, report.items, report.seconds, report.follow_up, report.full))
        return report

    async def _run(self, name: str, depth: int) -> TickReport:
        engine, limits = self._engine, self._limits
        started = self._clock.monotonic()
        end = started + max(limits.invocation_seconds - MARGIN_SECONDS, limits.invocation_seconds / 2)
        await engine.start()
        looks = LookQuota(limits.tick_items_max)
        try:
            await self._until(
                end, engine.sweeper.run_once()
            )  # first of all: an item whose time is over must not be sent
            await self._until(end, self._fire_schedules())
            claimed = await self._work(looks, end)
        finally:
            await engine.stop(max(end - self._clock.monotonic(), 0.0))
        pending = await self._has_work_left()
        seconds = self._clock.monotonic() - started
        follow_up = pending and depth < limits.chain_depth_max
        return TickReport(name, depth, claimed, looks.polled, seconds, pending, follow_up, looks.asks.looked_at)

    async def _until(self, end: float, step: Awaitable[None]) -> None:
        """Runs a step, but not beyond the invocation's end: a provider may be slow; the next invocation continues."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(end - self._clock.monotonic(), 0.0)):
                await step

    async def _fire_schedules(self) -> None:
        try:
            await self._engine.scheduler.run_all()
        except BackstayError as error:  # the next invocation fires them
            self._engine.parts.emit(Trouble("schedules", error.message))

    async def _work(self, looks: LookQuota, end: float) -> int:
        """Polls and looks up earlier items while it claims new ones: neither waits for the provider of the other."""
        looking = self._engine.parts.tasks.spawn(self._until(end, self._look_after(looks)))
        try:
            claimed = await self._submit(looks, end)
            await looking
        finally:
            await cancel_until_ended([looking])
        return claimed

    async def _look_after(self, looks: LookQuota) -> None:
        engine = self._engine
        try:
            await run_side_by_side(engine.sweeper.rescue(looks.asks), engine.poller.run_once(looks.polls))
            await engine.poller.run_once(looks.rest())
            await engine.settler.wait_until_committed()
            while engine.sweeper.ends_more:
                await engine.sweeper.end_stopped()
        finally:
            looks.over = True
            engine.freed.set()

    async def _submit(self, looks: LookQuota, end: float) -> int:
        """Claims and runs items until there are none left, the limit of items is reached or the time is over."""
        engine, claimed, last = self._engine, 0, False
        while self._clock.monotonic() < end:
            engine.freed.clear()
            await engine.gate.keep_pace()
            if looks.over and not last:  # until then, looked-up items may come back into the queue
                last = True
                engine.parts.store.items.forget_fronts()
            room = self._limits.tick_items_max - looks.items_used - claimed
            won = await engine.claim_once(room)
            claimed += won
            if engine.passed_over:
                continue
            if won == 0 and last and (room <= 0 or engine.flights.running == 0):
                break
            if won == 0:
                left = max(end - self._clock.monotonic(), 0.0)
                await wait_for_event(engine.freed, left if last else min(left, AGAIN_SECONDS))
        return claimed

    async def _has_work_left(self) -> bool:
        """Whether another invocation would find work now. Items that wait for a time or for money do not count."""
        views = self._engine.parts.store.item_views
        for handler in self._engine.parts.registry:
            if await views.is_unfinished(handler.name):
                return True
        return bool(await self._engine.parts.store.job_links.ready())  # jobs that waited for others
