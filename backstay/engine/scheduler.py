"""Fires the schedules that are due. Every pass is bounded, and a schedule that cannot fire does not stop the others."""

import json
from datetime import UTC, datetime
from itertools import islice
from typing import Final, NamedTuple, assert_never

from backstay.client.chunks import only_chunk
from backstay.clock import DAY_MS, cron, new_incarnation
from backstay.core.errors import BackstayError, DatabaseUnreachable
from backstay.core.events import ItemsSubmitted, Trouble
from backstay.core.failures import failure_of_exception, one_line
from backstay.core.models import MissedPolicy
from backstay.engine.parts import Parts
from backstay.store.schedules import DueSchedule, Firing
from backstay.store.submissions import NewJob

FIRINGS_MAX: Final = 100  # of one schedule in one pass; the next pass continues
PASSES_MAX: Final = 20
WAIT_MS: Final = 60_000  # after an error, until the next try
ON_TIME_MS: Final = 360_000  # ticks may come every five minutes
MAKE_UP_MS: Final = 7 * DAY_MS  # how far back all missed firings are made
OVERDUE_MS: Final = 900_000  # after this time it is reported that no process has the handler
OVERDUE_LOOK_SECONDS: Final = 60.0


class DueTimes(NamedTuple):
    firings: list[int]
    next_at: int | None
    dropped: str | None = None  # says which firings are given up


class Scheduler:
    """One per worker or tick. It fires the schedules whose handlers are here; other processes fire the others."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._declared = False
        self._overdue_at = float("-inf")  # on the steady clock

    async def run_once(self) -> int | None:
        """One pass. Returns in how many milliseconds the next schedule is due (0: now), or None if there is none."""
        schedules, handlers = self._parts.store.schedules, [handler.name for handler in self._parts.registry]
        if self._parts.only_job is not None or not handlers:
            return None
        await self._declare()
        wait_ms = await schedules.next_in_ms(handlers)
        if wait_ms == 0:
            await self._fire_due(handlers)
            wait_ms = await schedules.next_in_ms(handlers)
        await self._note_overdue()
        return wait_ms

    async def run_all(self) -> None:
        """Fires everything that is due, within bounds."""
        for _ in range(PASSES_MAX):
            if await self.run_once() != 0:
                break

    async def _declare(self) -> None:
        """Writes the schedules of the code to the database, once, at the start."""
        if not self._declared:
            for new in self._parts.registry.schedules.values():
                await self._parts.store.schedules.declare(new, self._parts.owner)
            self._declared = True

    async def _fire_due(self, handlers: list[str]) -> None:
        due = await self._parts.store.schedules.due(handlers)
        self._parts.rng.shuffle(due)  # so that workers do not all try the same schedule first
        fired = [await self._fire(found) for found in due]
        if any(fired):
            await self._parts.store.notify()

    async def _fire(self, found: DueSchedule) -> int:
        """Returns how many jobs it made. An error of this schedule is stored in its row."""
        try:
            firing = self._make_firing(found)
            jobs = await self._parts.store.schedules.fire(firing)
        except DatabaseUnreachable:
            raise
        except (Exception, SystemExit) as error:
            message = error.message if isinstance(error, BackstayError) else failure_of_exception(error).message
            await self._fail(found, message, WAIT_MS)
            return 0
        if jobs is None:
            return 0
        if firing.error is not None:
            self._parts.emit(Trouble(f"schedule {found.name}", firing.error))
        for job_id in jobs:
            self._parts.emit(ItemsSubmitted(job_id, found.handler, 1))
        return len(jobs)

    def _make_firing(self, found: DueSchedule) -> Firing:
        handler = self._parts.registry[found.handler]
        handler.check(json.loads(found.payload))
        times = due_times(found)
        deadline, limits = handler.rules.deadline_seconds, self._parts.limits
        jobs = [
            NewJob(
                handler=found.handler,
                owner=found.owner,
                ref_seed=new_incarnation(),
                job_timeout_ms=int(limits.job_timeout_seconds * 1000),
                deadline_ms=None if deadline is None else int(deadline * 1000),
                idempotency_key=key_of(found.name, at),
                label=f"{found.name} {cron.show_local(at, found.timezone)}",
            )
            for at in times.firings
        ]
        last_at = times.firings[-1] if times.firings else None
        return Firing(
            found, [(job, only_chunk(job, found.payload)) for job in jobs], last_at, times.next_at, times.dropped
        )

    async def _fail(self, found: DueSchedule, error: str, wait_ms: int) -> None:
        if await self._parts.store.schedules.fail(found, one_line(error), wait_ms):
            self._parts.emit(Trouble(f"schedule {found.name}", error))

    async def _note_overdue(self) -> None:
        """Reports firings that wait because no process has their handler."""
        now = self._parts.clock.monotonic()
        if now < self._overdue_at:
            return
        self._overdue_at = now + OVERDUE_LOOK_SECONDS
        for found in await self._parts.store.schedules.overdue(OVERDUE_MS):
            if found.handler not in self._parts.registry:
                await self._fail(found, f"no worker or tick that has the handler {found.handler!r} has run", 0)


def key_of(name: str, at_ms: int) -> str:
    """The idempotency key of one firing."""
    return f"schedule:{name}:{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def due_times(found: DueSchedule) -> DueTimes:
    """Which firings a due schedule makes now, as its policy says, and the next one."""
    match found.missed:
        case MissedPolicy.ALL:
            return _all_missed(found)
        case MissedPolicy.ONCE:
            return _last_missed(found)
        case MissedPolicy.SKIP:
            return _last_missed(found, late_ms_max=ON_TIME_MS)
        case _:
            assert_never(found.missed)


def _last_missed(found: DueSchedule, late_ms_max: int | None = None) -> DueTimes:
    """The last firing that is due, unless it is too late for it."""
    line, zone, now = found.cron, found.timezone, found.now
    last = cron.last_between(line, zone, found.next_at, now)
    is_made = last is not None and (late_ms_max is None or now - last <= late_ms_max)
    return DueTimes([last] if is_made and last is not None else [], cron.next_after(line, zone, now))


def _all_missed(found: DueSchedule) -> DueTimes:
    line, zone, now = found.cron, found.timezone, found.now
    first = max(found.next_at, now - MAKE_UP_MS)
    times = list(islice(cron.firings_between(line, zone, first, now), FIRINGS_MAX + 1))
    next_at = times.pop() if len(times) > FIRINGS_MAX else cron.next_after(line, zone, now)
    dropped = None
    if first > found.next_at:
        days = MAKE_UP_MS // DAY_MS
        dropped = f"missed firings from before {cron.show_local(first, zone)} are dropped: {days} days are made up for"
    return DueTimes(times, next_at, dropped)
