"""Schedules: their rows, and firings, which create their jobs in the transaction that advances the schedule."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from backstay.clock import cron
from backstay.core.display import NextCommand, Sentence
from backstay.core.errors import NotAllowed, NotFound
from backstay.core.models import MissedPolicy, NewSchedule
from backstay.store.databases.database import Database, reads, writes
from backstay.store.queries import Ask, Script, one, record
from backstay.store.submissions import Chunk, NewJob, open_job

SCHEDULES_MAX: Final = 10_000  # of one owner
DUE_MAX: Final = 100  # read by one look
_NO_NAME: Final = ""  # comes before all names


@record
@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as people see it. All times are milliseconds since 1970, UTC."""

    name: str
    handler: str
    cron: str
    timezone: str
    payload: str
    missed: MissedPolicy
    paused_at: int | None
    next_at: int | None
    last_at: int | None  # the time of the last firing
    last_job: int | None
    error: str | None
    error_at: int | None
    declared_at: int | None  # when a program that has it in its code was last started
    created_at: int
    now: int


@record
class DueSchedule(NamedTuple):
    owner: str
    name: str
    handler: str
    cron: str
    timezone: str
    payload: str
    missed: MissedPolicy
    next_at: int
    version: int
    now: int


class Firing(NamedTuple):
    """The firings of a schedule that is due: their jobs, and when it fires next."""

    schedule: DueSchedule
    jobs: Sequence[tuple[NewJob, Chunk]]
    last_at: int | None  # the time of the last of them
    next_at: int | None
    error: str | None = None


class Schedules:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, owner: str, past: str = _NO_NAME, n: int = 100) -> list[Schedule]:
        return await self._db.read(one("schedules", {"owner": owner, "past": past, "n": n}))

    @reads
    def get(self, name: str, owner: str) -> Script[Schedule]:
        _refuse_nul(name)
        return _first_schedule(name, (yield Ask("schedule", {"owner": owner, "name": name})))

    @writes
    def add(self, new: NewSchedule, owner: str) -> Script[Schedule]:
        """Raises `NotAllowed` if the owner has a schedule of this name, or too many."""
        [now] = yield Ask("now")
        next_at = cron.next_after(new.cron, new.timezone, now["now"])
        if not (yield from _add(new, owner, next_at, declared=False)):
            if (yield Ask("schedule", {"owner": owner, "name": new.name})):
                hint = Sentence("`", NextCommand(f"schedule remove {new.name}"), "` removes it")
                raise NotAllowed(f"a schedule named {new.name} exists already", hint=hint)
            raise NotAllowed(f"an owner can have at most {SCHEDULES_MAX:,} schedules")
        return _first_schedule(new.name, (yield Ask("schedule", {"owner": owner, "name": new.name})))

    @writes
    def declare(self, new: NewSchedule, owner: str) -> Script[None]:
        """Stores a schedule that stands in a program's code. A changed cron line or time zone counts from now on."""
        values = {"owner": owner, "name": new.name}
        [now] = yield Ask("now")
        found: list[Schedule] = yield Ask("lock_schedule", values)
        next_at = cron.next_after(new.cron, new.timezone, now["now"])
        if not found:
            yield from _add(new, owner, next_at, declared=True)
        elif _are_same(found[0], new):
            yield Ask("confirm_schedule", values)
        else:
            [old] = found
            same_times = (old.cron, old.timezone) == (new.cron, new.timezone)
            if old.paused_at is not None or same_times:
                next_at = old.next_at
            yield Ask("declare_schedule", {**_values(new, owner), "next_at": next_at})

    @writes
    def pause(self, name: str, owner: str) -> Script[Schedule]:
        """A paused schedule has no firings, so none are missed."""
        _refuse_nul(name)
        yield Ask("pause_schedule", {"owner": owner, "name": name})
        return _first_schedule(name, (yield Ask("schedule", {"owner": owner, "name": name})))

    @writes
    def resume(self, name: str, owner: str) -> Script[Schedule]:
        _refuse_nul(name)
        values = {"owner": owner, "name": name}
        found = _first_schedule(name, (yield Ask("lock_schedule", values)))
        if found.paused_at is not None:
            next_at = cron.next_after(found.cron, found.timezone, found.now)
            yield Ask("resume_schedule", {**values, "next_at": next_at})
        return _first_schedule(name, (yield Ask("schedule", values)))

    async def remove(self, name: str, owner: str) -> None:
        """Its jobs stay. A schedule that stands in the code is there again when its program starts."""
        _refuse_nul(name)
        if not await self._db.write(one("remove_schedule", {"owner": owner, "name": name})):
            raise _no_schedule(name)

    # for workers and ticks

    @reads
    def next_in_ms(self, handlers: Sequence[str]) -> Script[int | None]:
        """How long until the first schedule of these handlers is due; 0: it is due."""
        rows = yield Ask("schedules_next", batch=[(handler,) for handler in handlers])
        waits = [row["due_at"] - row["now"] for row in rows if row["due_at"] is not None]
        return max(min(waits), 0) if waits else None

    async def due(self, handlers: Sequence[str]) -> list[DueSchedule]:
        batch = [(handler,) for handler in handlers]
        return await self._db.read(one("schedules_due", {"n": DUE_MAX}, batch))

    async def overdue(self, late_ms: int) -> list[DueSchedule]:
        """Schedules of any handler that have been due for longer than this."""
        return await self._db.read(one("schedules_overdue", {"late_ms": late_ms, "n": DUE_MAX}))

    @writes
    def fire(self, firing: Firing) -> Script[list[int] | None]:
        """Creates the jobs of a firing, all or none. None: another process was faster, or the schedule was changed."""
        found = firing.schedule
        values = {"owner": found.owner, "name": found.name}
        moments = {"next_at": firing.next_at, "last_at": firing.last_at, "error": firing.error}
        if not (yield Ask("advance_schedule", {**values, **moments, "version": found.version})):
            return None
        jobs = []
        for job, chunk in firing.jobs:
            jobs.append((yield from open_job(job, chunk)).id)
        if jobs:
            yield Ask("note_last_job", {**values, "job_id": jobs[-1]})
        return jobs

    async def fail(self, found: DueSchedule, error: str, wait_ms: int) -> bool:
        """Stores why it could not fire; its firings wait for `wait_ms`. With 0, other processes may try at once."""
        values = {"owner": found.owner, "name": found.name, "version": found.version}
        return bool(await self._db.write(one("fail_schedule", {**values, "error": error, "wait_ms": wait_ms})))


def _values(new: NewSchedule, owner: str) -> dict[str, object]:
    return {"owner": owner, **{name: getattr(new, name) for name in NewSchedule.__slots__}, "missed": new.missed.value}


def _add(new: NewSchedule, owner: str, next_at: int | None, declared: bool) -> Script[bool]:
    values = {**_values(new, owner), "next_at": next_at, "declared": int(declared), "most": SCHEDULES_MAX}
    return bool((yield Ask("add_schedule", values)))


def _first_schedule(name: str, rows: list[Schedule]) -> Schedule:
    if not rows:
        raise _no_schedule(name)
    return rows[0]


def _refuse_nul(name: str) -> None:
    """PostgreSQL takes no NUL in a text; no schedule has such a name."""
    if "\0" in name:
        raise _no_schedule(name.replace("\0", ""))


def _no_schedule(name: str) -> NotFound:
    return NotFound(f"no schedule {name[:100]}", hint=Sentence("`", NextCommand("schedule list"), "` shows them"))


def _are_same(found: Schedule, new: NewSchedule) -> bool:
    return all(getattr(found, name) == getattr(new, name) for name in NewSchedule.__slots__)
