"""The endless worker: claims, and beside it sweeps, polls, fires schedules and listens, until it is asked to stop."""

import asyncio
from collections.abc import Awaitable, Callable

from backstay.clock import cancel_until_ended, wait_for_event
from backstay.core.events import Trouble, WorkerStopping
from backstay.engine.engine import LAST_WORDS_SECONDS, PROMOTE_SECONDS, Engine
from backstay.engine.gate import REFRESH_SECONDS
from backstay.engine.parts import Refusal

SWEEP_SECONDS = 5.0
PROGRESS_SECONDS = 1.0
GATHER_SECONDS = 0.003  # a call to a provider takes far longer, so that this delays hardly anything
AGAIN_SECONDS = 1.0
PACE_SECONDS = 0.25
PACE_SECONDS_MIN = 0.005
TURNS_SECONDS = 1.0
MEASURE_SECONDS = 10.0
FORGET_SECONDS = 3_600.0
SCHEDULE_SECONDS, SCHEDULE_SECONDS_MIN = 1.0, 0.01


class Worker:
    """One life: start, stop."""

    def __init__(self, engine: Engine, idle_seconds: float) -> None:
        self.engine = engine
        self._parts = engine.parts
        self._idle_seconds = idle_seconds
        self._loops: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    def wake(self) -> None:
        """Look now: there may be something to claim. Only a hint: the worker polls as well."""
        self.engine.wake.set()

    async def start(self) -> None:
        parts = self._parts
        if self.engine.turns is not None:
            self.engine.turns.hints.listen(self.wake)
        await self.engine.start()
        self.engine.gate.claim_age_seconds = 4 * REFRESH_SECONDS  # they are read beside the claims, not before each
        loops = [
            self._claims(),
            self._fire_schedules(),
            self._repeat(self.engine.gate.refresh, REFRESH_SECONDS),
            self._repeat(self._sweep, SWEEP_SECONDS),
            self._repeat(self.engine.sweeper.start_rescues, SWEEP_SECONDS),
            self._repeat(self.engine.executor.store_progress, PROGRESS_SECONDS),
            self._repeat(self._listen, AGAIN_SECONDS),
            self._repeat(self.engine.gate.keep_pace, PACE_SECONDS),
            self._repeat(self._follow, TURNS_SECONDS),
            self._repeat(self.engine.write_measures, MEASURE_SECONDS),
            self._repeat(parts.store.measures.forget, FORGET_SECONDS),
            self._repeat(self.engine.poller.start_polls, min(1.0, parts.limits.poll_interval_seconds)),
        ]
        self._loops = [parts.tasks.spawn(loop) for loop in loops]

    async def stop(self, grace_seconds: float | None = None) -> None:
        """Stops claiming at once; what runs gets the grace to finish, the rest is handed back."""
        self._stopping.set()
        self._parts.emit(WorkerStopping(self._parts.worker, self.engine.flights.running))
        self.wake()
        # A claim under way may still win items: they must be there to be finished or handed back.
        await asyncio.wait(self._loops[:1], timeout=LAST_WORDS_SECONDS)
        await self.engine.stop(self._parts.limits.shutdown_seconds if grace_seconds is None else grace_seconds)
        await cancel_until_ended(self._loops)

    @property
    def refusal(self) -> Refusal | None:
        """What the database has refused for the longest time, if it refuses anything now."""
        return min(self._parts.refusals.values(), default=None)

    def stop_now(self) -> None:
        """Ends the grace: what still runs is cut off and handed back, and nothing more is claimed."""
        self._stopping.set()
        self.engine.flights.shut_down()

    async def _claims(self) -> None:
        while not self._stopping.is_set():
            await self._gather_slots()
            self.engine.wake.clear()
            try:
                claimed = await self.engine.claim_once(self._parts.limits.claim_items_max)
                self._parts.note_success("claim")
                if not self.engine.passed_over and not (claimed and self.engine.wanting):
                    await self._idle()
            except Exception as error:
                self._parts.note_refusal("claim", f"{type(error).__name__}: {error}")
                await wait_for_event(self.engine.wake, AGAIN_SECONDS)

    async def _gather_slots(self) -> None:
        """A busy worker waits a moment and claims for several free slots at once: each claim is a transaction."""
        engine, clock = self.engine, self._parts.clock
        end = clock.monotonic() + GATHER_SECONDS
        while engine.claims_too_little and not self._stopping.is_set() and (left := end - clock.monotonic()) > 0:
            engine.wake.clear()
            await wait_for_event(engine.wake, left)

    async def _idle(self) -> None:
        """Waits until the next look: sooner when a waiting item is due, and never in step with other workers."""
        engine, clock = self.engine, self._parts.clock
        idle = self._idle_seconds * self._parts.rng.uniform(0.8, 1.2)
        if engine.full:
            await wait_for_event(engine.wake, idle)
            return
        if (turn_at := engine.next_turn_at) is not None:
            left = turn_at - clock.monotonic()
            await wait_for_event(engine.wake, max(left, PACE_SECONDS_MIN) if left > 0 else idle)
            return
        # When an item is due is asked only after a quiet moment: items that come one by one need not wait for that.
        quiet = min(idle, PROMOTE_SECONDS)
        engine.promote_at = min(engine.promote_at, clock.monotonic() + quiet)
        if await self._quiet_for(quiet) and idle > quiet:
            due_ms = await self._parts.store.item_views.due_in_ms()
            left = idle - quiet if due_ms is None else min(idle - quiet, due_ms / 1000)
            engine.promote_at = clock.monotonic() + left
            await self._quiet_for(left)

    async def _quiet_for(self, seconds: float) -> bool:
        """Waits so long for a wake-up, or for the moment when a provider's pace allows the next call. Whether neither
        came."""
        engine = self.engine
        pace = max(engine.again_at - self._parts.clock.monotonic(), PACE_SECONDS_MIN)
        await wait_for_event(engine.wake, min(seconds, pace))
        return seconds <= pace and not engine.wake.is_set()

    async def _repeat(self, step: Callable[[], Awaitable[object]], seconds: float) -> None:
        """Repeats a step until the worker ends; a failing one is reported and tried again."""
        while True:
            try:
                await step()
            except Exception as error:
                self._parts.emit(Trouble(step.__name__.strip("_"), f"{type(error).__name__}: {error}"))
            await self._parts.clock.sleep(seconds * self._parts.rng.uniform(0.8, 1.2))

    async def _fire_schedules(self) -> None:
        """Looks at the schedules when the next one is due, and at least every second or so: others may be added."""
        while not self._stopping.is_set():
            idle = SCHEDULE_SECONDS
            try:
                due_ms = await self.engine.scheduler.run_once()
                idle = idle if due_ms is None else min(idle, max(due_ms / 1000, SCHEDULE_SECONDS_MIN))
            except Exception as error:
                self._parts.emit(Trouble("schedules", f"{type(error).__name__}: {error}"))
            await self._parts.clock.sleep(idle)

    async def _sweep(self) -> None:
        await self.engine.sweeper.run_once()
        self.wake()

    async def _follow(self) -> None:
        """Tells how far the queues have come, and starts the jobs that waited for others."""
        await self.engine.write_turns()
        ended, self.engine.settler.job_ended = self.engine.settler.job_ended, False
        if ended and await self.engine.sweeper.follow():
            self.wake()

    async def _listen(self) -> None:
        if self.engine.next_turn_at is None:  # a hint wakes the worker as well
            await self._parts.store.listen(self.wake)
