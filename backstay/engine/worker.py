"""The endless worker: claims, and beside it sweeps, polls, fires schedules and listens, until it is asked to stop. And
the supervisor of several worker processes."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from backstay.clock import Clock, Tasks, cancel_until_ended, wait_for_event
from backstay.core.errors import BackstayError, SchemaBehind, SchemaNewer
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
COUNT_SECONDS = 0.5
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
        self.outdated: BackstayError | None = None  # the database was migrated: this code takes no more work from it
        self._when_outdated: Callable[[], None] = lambda: None

    def when_outdated(self, tell: Callable[[], None]) -> None:
        """Calls `tell` once the worker is outdated. Calls under way go on, and their results are stored."""
        self._when_outdated = tell
        if self.outdated is not None:
            tell()

    def wake(self) -> None:
        """Look now: there may be items to claim. Only a hint: the worker polls as well."""
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
            self._repeat(self.engine.add_up_counts, COUNT_SECONDS),
            self._repeat(self.engine.write_measures, MEASURE_SECONDS),
            self._repeat(parts.store.measures.forget, FORGET_SECONDS),
            self._repeat(self.engine.poller.start_polls, min(1.0, parts.limits.poll_interval_seconds)),
        ]
        self._loops = [parts.tasks.spawn(loop) for loop in loops]

    async def stop(self, grace_seconds: float | None = None) -> None:
        """Stops claiming at once. Running items have the grace period to finish; the others are handed back."""
        self._stopping.set()
        self._parts.emit(WorkerStopping(self._parts.worker, self.engine.flights.running))
        self.wake()
        # A claim under way may still win items, which must be finished or handed back as well.
        await asyncio.wait(self._loops[:1], timeout=LAST_WORDS_SECONDS)
        await self.engine.stop(self._parts.limits.shutdown_seconds if grace_seconds is None else grace_seconds)
        await cancel_until_ended(self._loops)

    @property
    def refusal(self) -> Refusal | None:
        """The refusal of the database that has lasted longest, if there is one now."""
        return min(self._parts.refusals.values(), default=None)

    def stop_now(self) -> None:
        """Ends the grace period: running items are cut off and handed back, and nothing more is claimed."""
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
            except (SchemaBehind, SchemaNewer) as error:
                self._note_outdated(error)
            except Exception as error:
                self._parts.note_refusal("claim", f"{type(error).__name__}: {error}")
                await wait_for_event(self.engine.wake, AGAIN_SECONDS)

    def _note_outdated(self, error: BackstayError) -> None:
        if self.outdated is None:
            self.outdated = error
            self._stopping.set()
            self._parts.emit(Trouble("schema", f"{error.message}; this worker takes no more work; {error.hint}"))
            self._when_outdated()

    async def _gather_slots(self) -> None:
        """A busy worker waits a moment and claims for several free slots at once: each claim is a transaction."""
        engine, clock = self.engine, self._parts.clock
        end = clock.monotonic() + GATHER_SECONDS
        while engine.claims_too_little and not self._stopping.is_set() and (left := end - clock.monotonic()) > 0:
            engine.wake.clear()
            await wait_for_event(engine.wake, left)

    async def _idle(self) -> None:
        """Waits until the next look: shorter when an item is due sooner, and of random length, so that workers do not
        all look at once."""
        engine, clock = self.engine, self._parts.clock
        idle = self._idle_seconds * self._parts.rng.uniform(0.8, 1.2)
        if engine.full:
            await wait_for_event(engine.wake, idle)
            return
        if (turn_at := engine.next_turn_at) is not None:
            left = turn_at - clock.monotonic()
            await wait_for_event(engine.wake, max(left, PACE_SECONDS_MIN) if left > 0 else idle)
            return
        # The next due time is read only after a quiet moment, so that items that come one by one do not wait for it.
        quiet = min(idle, PROMOTE_SECONDS)
        engine.promote_at = min(engine.promote_at, clock.monotonic() + quiet)
        if await self._quiet_for(quiet) and idle > quiet:
            due_ms = await self._parts.store.item_views.due_in_ms()
            left = idle - quiet if due_ms is None else min(idle - quiet, due_ms / 1000)
            engine.promote_at = clock.monotonic() + left
            await self._quiet_for(left)

    async def _quiet_for(self, seconds: float) -> bool:
        """Waits for a wake-up, or for the time when a provider's pace allows the next call. True if neither came in
        this time."""
        engine = self.engine
        pace = max(engine.again_at - self._parts.clock.monotonic(), PACE_SECONDS_MIN)
        await wait_for_event(engine.wake, min(seconds, pace))
        return seconds <= pace and not engine.wake.is_set()

    async def _repeat(self, step: Callable[[], Awaitable[object]], seconds: float) -> None:
        """Repeats a step until the worker ends or is outdated; a failing one is reported and tried again."""
        while self.outdated is None:
            try:
                await step()
            except (SchemaBehind, SchemaNewer) as error:
                self._note_outdated(error)
            except Exception as error:
                self._parts.emit(Trouble(step.__name__.strip("_"), f"{type(error).__name__}: {error}"))
            await self._parts.clock.sleep(seconds * self._parts.rng.uniform(0.8, 1.2))

    async def _fire_schedules(self) -> None:
        """Looks at the schedules when the next one is due, and about every second, because schedules may be added."""
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
        """Stores how far the queues have been served, and starts the jobs that waited for others."""
        await self.engine.write_turns()
        ended, self.engine.settler.job_ended = self.engine.settler.job_ended, False
        if ended and await self.engine.sweeper.follow():
            self.wake()

    async def _listen(self) -> None:
        if self.engine.next_turn_at is None:  # a hint wakes the worker as well
            await self._parts.store.listen(self.wake)


RESTART_SECONDS_FIRST = 1.0
RESTART_SECONDS_MAX = 30.0
STEADY_SECONDS = 60.0  # a process that lived this long starts with a clean record
DEATHS_MAX = 10  # in a row, each of a process that lived for a shorter time
USAGE_EXIT = 2  # an error in the command: a restart does not help


@dataclass(slots=True)
class Orders:
    """The command of a worker process, how many of them to run, and how long they may take to stop."""

    command: Sequence[str]
    environment: Mapping[str, str]
    processes: int
    stop_seconds: float


class Supervisor:
    """Keeps several worker processes alive: starts them, passes signals on, restarts those that died, and ends when all
    have ended. One life: run. The stdin of each child is a pipe from here: a child stops when the pipe is closed."""

    def __init__(
        self,
        orders: Orders,
        clock: Clock,
        emit: Callable[[Trouble], None],
        ended: Callable[[int], None] = lambda pid: None,
    ) -> None:
        self._orders = orders
        self._clock = clock
        self._emit = emit
        self._ended = ended
        self._tasks = Tasks()
        self._stopping = asyncio.Event()
        self._children: dict[int, asyncio.subprocess.Process] = {}

    async def run(self) -> int:
        """Returns the exit code when all children have ended: 0 unless one of them could not be kept alive."""
        lives = [self._tasks.spawn(self._keep(number)) for number in range(1, self._orders.processes + 1)]
        codes: list[int] = await asyncio.gather(*lives)
        return max(codes)

    def forward_signal(self, number: signal.Signals) -> None:
        """Passes a signal on to all children. The first asks them to finish; the second asks them not to wait."""
        first = not self._stopping.is_set()
        self._stopping.set()
        for child in self._children.values():
            _signal(child, number)
        if first:
            self._tasks.spawn(self._kill_unresponsive())

    async def _kill_unresponsive(self) -> None:
        await self._clock.sleep(self._orders.stop_seconds)
        for child in self._children.values():
            self._emit(Trouble("supervisor", f"process {child.pid} did not stop in time and is killed"))
            _signal(child, signal.SIGKILL)

    async def _keep(self, number: int) -> int:
        """Starts one child, again and again, until the supervisor stops or the child cannot be kept alive."""
        deaths = 0
        while not self._stopping.is_set():
            started = self._clock.monotonic()
            code = await self._live(number)
            if self._stopping.is_set():
                return 0
            deaths = 1 if self._clock.monotonic() - started >= STEADY_SECONDS else deaths + 1
            if code == USAGE_EXIT or deaths >= DEATHS_MAX:
                return self._give_up(number, code)
            seconds = min(RESTART_SECONDS_FIRST * 2 ** (deaths - 1), RESTART_SECONDS_MAX)
            died = f"worker process {number} ended with {_show_exit(code)}; a new one starts in {seconds:g} s"
            self._emit(Trouble("supervisor", died))
            await wait_for_event(self._stopping, seconds)
        return 0

    async def _live(self, number: int) -> int:
        # A session of its own: Ctrl-C on the terminal comes to us alone, and is passed on once.
        child = await asyncio.create_subprocess_exec(
            *self._orders.command,
            stdin=asyncio.subprocess.PIPE,
            env=dict(self._orders.environment),
            start_new_session=True,
        )
        self._children[number] = child
        if self._stopping.is_set():
            _signal(child, signal.SIGTERM)
        try:
            return await child.wait()
        finally:
            del self._children[number]
            self._ended(child.pid)

    def _give_up(self, number: int, code: int) -> int:
        self._emit(
            Trouble(
                "supervisor", f"worker process {number} ended with {_show_exit(code)}; all worker processes are stopped"
            )
        )
        self.forward_signal(signal.SIGTERM)
        return code if code > 0 else 1


def _signal(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        child.send_signal(number)


def _show_exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
