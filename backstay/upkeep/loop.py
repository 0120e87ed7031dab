"""The loop of upkeep in workers, ticks and services: check the alarms, archive dead letters above their limits, delete
old jobs, and files without an archive. Any number of processes may run it: one of them at a time does each check.

Retention is per owner: dead letters are archived by age, number and size; old jobs are deleted by age and number, with
an archive before, in small steps.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from backstay.artifacts import Artifacts, file_of
from backstay.client import Client
from backstay.clock import DAY_MS, HOUR_MS, Clock, Tasks, wait_for_event
from backstay.core.alarms import INVOCATIONS_MIN, JOBS_MIN, Alarm, AlarmReading, percent
from backstay.core.errors import BackstayError, DatabaseUnreachable, NotAllowed, UsageError
from backstay.core.events import AlarmChanged, JobsPruned, LettersArchived, Trouble
from backstay.observe.bus import Bus
from backstay.settings import Settings
from backstay.store.archives import AFTER_ALL, BEFORE_ALL, Archives, Candidate, Place
from backstay.store.dead_letters import LetterFilter
from backstay.store.jobs import FinishedJob, JobArchive
from backstay.store.outbox import MESSAGES, WEBHOOKS, WORK
from backstay.store.store import Store
from backstay.upkeep.archivist import ARCHIVE_ITEMS_MAX, Archivist, JobArchivist, zstd

PAGE_ITEMS: Final = 500
WALK_ITEMS_MAX: Final = 1_000_000  # that one pass reads
PASS_ITEMS_MAX: Final = 50_000  # that one pass archives
PASS_SECONDS_MAX: Final = 60.0  # after this time a pass begins no further file
HELD_ITEMS_MAX: Final = 20_000  # that wait for more letters of their owner
LETTER_QUIET_MS: Final = 60_000  # after its end a job's results may still be written
# Above a limit, a little more than necessary is archived: otherwise every pass would write a file of a few letters.
SLACK: Final = 20  # 1/n of the limit
AGE_SLACK: Final = 168  # of seven days, an hour


class RetentionBounds(NamedTuple):
    """What an owner may hold. Archives are each owner's own, so the bounds are as well."""

    age_ms: int
    items: int
    bytes: int


def bounds_of(settings: Settings) -> RetentionBounds:
    age_ms = int(settings.dead_letter_days * DAY_MS)
    return RetentionBounds(age_ms, settings.dead_letter_items, settings.dead_letter_bytes)


Rule = Callable[[Candidate], bool]


class _Held(NamedTuple):
    items: int
    bytes: int
    low: Place | None  # letters from here backwards are archived if a limit is exceeded


class Retention:
    def __init__(self, archives: Archives, artifacts: Artifacts, clock: Clock, bounds: RetentionBounds) -> None:
        self._archives = archives
        self._archivist = Archivist(archives, artifacts, clock)
        self._clock = clock
        self._bounds = bounds

    async def run_once(self, *, exact: bool = False, owner: str | None = None) -> int:
        """One bounded pass; returns how many items were archived. With `exact` it archives no more than necessary; with
        `owner` only that owner's items."""
        cutoffs = await self._cutoffs(exact)
        age_ms = self._bounds.age_ms if exact or await self._is_any_overdue() else None

        def goes(one: Candidate) -> bool:
            if owner not in (None, one.owner):
                return False
            return (age_ms is not None and one.age_ms >= age_ms) or one.place <= cutoffs.get(one.owner, BEFORE_ALL)

        last = max(cutoffs.values(), default=BEFORE_ALL)
        return await self._archive(goes, lambda one: age_ms is None or one.age_ms < age_ms, last, LETTER_QUIET_MS)

    async def archive(self, owner: str, wanted: LetterFilter) -> int:
        """One bounded pass over what a person chooses."""

        def goes(one: Candidate) -> bool:
            chosen = wanted.job_id in (None, one.job_id) and wanted.error_code in (None, one.error_code)
            return one.owner == owner and chosen and one.age_ms >= wanted.age_ms

        return await self._archive(goes, lambda one: one.age_ms < wanted.age_ms, BEFORE_ALL, 0)

    async def _is_any_overdue(self) -> bool:
        """Whether any letter that can be archived is old enough for a new file."""
        page = await self._archives.oldest(BEFORE_ALL, PAGE_ITEMS, LETTER_QUIET_MS)
        limit = self._bounds.age_ms + self._bounds.age_ms // AGE_SLACK
        return any(one.free and one.age_ms >= limit for one in page)

    async def _cutoffs(self, exact: bool) -> dict[str, Place]:
        """By owner: the newest letter that exceeds the limits. Owners within their limits are left out."""
        held: dict[str, _Held] = {}
        found: dict[str, Place] = {}
        before, looked = AFTER_ALL, 0
        while looked < WALK_ITEMS_MAX and (page := await self._archives.newest(before, PAGE_ITEMS)):
            own = [(place, owner) for place, owner in page if owner and owner not in found]
            sizes = await self._archives.sizes([place[1] for place, _ in own]) if own else {}
            for place, owner in own:
                if owner not in found:
                    now = held[owner] = self._add(held.get(owner), place, sizes.get(place[1], 0), exact)
                    if now.items > self._bounds.items or now.bytes > self._bounds.bytes:
                        found[owner] = now.low or place
            before, looked = page[-1][0], looked + len(page)
        return found

    def _add(self, before: _Held | None, place: Place, size: int, exact: bool) -> _Held:
        items, size, low = (1, size, None) if before is None else (before.items + 1, before.bytes + size, before.low)
        slack = 0 if exact else 1
        over = items > self._bounds.items - slack * (self._bounds.items // SLACK)
        over = over or size > self._bounds.bytes - slack * (self._bounds.bytes // SLACK)
        return _Held(items, size, low if low is not None else (place if over else None))

    async def _archive(self, goes: Rule, is_young: Rule, last: Place, quiet_ms: int) -> int:
        """Each owner's items go into files of their own, the oldest first."""
        waiting: dict[str, list[Candidate]] = {}
        gone, held, end = 0, 0, self._clock.monotonic() + PASS_SECONDS_MAX
        async for one in self._choose(goes, is_young, last, quiet_ms):
            mine = waiting.setdefault(one.owner, [])
            mine.append(one)
            held += 1
            if len(mine) >= ARCHIVE_ITEMS_MAX or held >= HELD_ITEMS_MAX:
                fullest = max(waiting, key=lambda owner: len(waiting[owner]))
                held -= len(waiting[fullest])
                gone += await self._archivist.archive(waiting.pop(fullest))
            if gone + held >= PASS_ITEMS_MAX or self._clock.monotonic() >= end:
                break
        for rest in waiting.values():
            gone += await self._archivist.archive(rest)
        return gone

    async def _choose(self, goes: Rule, is_young: Rule, last: Place, quiet_ms: int) -> AsyncIterator[Candidate]:
        after, looked = BEFORE_ALL, 0
        while looked < WALK_ITEMS_MAX and (page := await self._archives.oldest(after, PAGE_ITEMS, quiet_ms)):
            for one in page:
                if one.place > last and is_young(one):
                    return
                if one.free and one.owner and goes(one):
                    yield one
            after, looked = page[-1].place, looked + len(page)


PAGE_JOBS: Final = 50  # of one owner before the next owner's turn
STEP_ITEMS: Final = 500  # deleted by one transaction
REST: Final = 4  # after a step, the pause is this many times as long as the step
JOB_QUIET_MS: Final = 3_600_000  # after its end a job's results may still be read
HELD: Final = "another job waits for it, or the results of its batch are being written"
_NO_PLACE: Final = "its dead letters are in archives, and BACKSTAY_DATA does not say where archives are"


class PruneRules(NamedTuple):
    """What each owner keeps; both rules name the oldest jobs. `owner`: only this one's jobs are touched."""

    age_ms: int | None
    keep: int | None
    archive: bool
    owner: str | None = None
    quiet_ms: int = JOB_QUIET_MS


class PrunedJob(NamedTuple):
    """A job that was deleted, or why it was not."""

    job_id: int
    owner: str
    items: int
    archive: str | None = None  # the file
    skipped: str | None = None
    held: bool = False  # skipped for a reason that passes by itself


def rules_of(settings: Settings) -> PruneRules | None:
    """None if every job is kept."""
    if settings.job_days is None and settings.job_count is None:
        return None
    age_ms = None if settings.job_days is None else int(settings.job_days * DAY_MS)
    return PruneRules(age_ms, settings.job_count, settings.job_archive)


class Pruner:
    """Any number of processes may prune at once; whatever stops one of them, the next run continues."""

    def __init__(self, store: Store, artifacts: Artifacts | None, clock: Clock, rules: PruneRules) -> None:
        if rules.archive:
            if artifacts is None:
                hint = "set BACKSTAY_DATA to a folder or s3://bucket/prefix, or delete jobs without an archive"
                raise UsageError("jobs cannot be archived: there is no place for files", hint=hint)
            zstd()  # says what to install
        self._store = store
        self._artifacts = artifacts
        self._clock = clock
        self._rules = rules
        self._last_owner = ""  # whose turn was last

    async def run(self, seconds: float | None = None) -> AsyncIterator[PrunedJob]:
        """Deletes what the rules name, and the rest of jobs whose deletion was interrupted. After `seconds` it begins
        with no further job."""
        end = None if seconds is None else self._clock.monotonic() + seconds
        for job_id in await self._store.jobs.disowned_jobs():
            if skipped := await self._finish_left(job_id):
                yield PrunedJob(job_id, "", 0, skipped=skipped)
        async for job in self.chosen_jobs():
            if end is not None and self._clock.monotonic() >= end:
                return
            yield await self._prune(job)

    async def chosen_jobs(self) -> AsyncIterator[FinishedJob]:
        """The jobs that the rules name: of each owner the oldest first, a page of each owner in turn."""
        rules, pruning = self._rules, self._store.pruning
        owners = await pruning.owners() if rules.owner is None else [rules.owner]
        owners.sort(key=lambda owner: (owner <= self._last_owner, owner))
        places: dict[str, Place] = dict.fromkeys(owners, BEFORE_ALL)
        until = {owner: await pruning.until(owner, rules.age_ms, rules.keep, rules.quiet_ms) for owner in owners}
        while places:
            for owner in list(places):
                page = await pruning.page(owner, places[owner], until[owner], PAGE_JOBS)
                self._last_owner = owner
                for job in page:
                    yield job
                if len(page) < PAGE_JOBS:
                    del places[owner]
                else:
                    places[owner] = page[-1].place

    async def _prune(self, job: FinishedJob) -> PrunedJob:
        """Deletes one job. If that is not possible, the others are deleted all the same."""
        pruned = PrunedJob(job.id, job.owner, job.total)
        if job.held:
            return pruned._replace(skipped=HELD, held=True)
        if job.archived and self._artifacts is None:
            return pruned._replace(skipped=_NO_PLACE)
        try:
            archive = await self._remove(job)
            await self._finish(job.id)
        except DatabaseUnreachable:
            raise
        except BackstayError as error:
            return pruned._replace(skipped=error.message)
        return pruned._replace(archive=archive and archive.blob)

    async def _remove(self, job: FinishedJob) -> JobArchive | None:
        """The file first; then one transaction registers it and makes the job disappear. After a kill between the two
        the job is still there, and the file is deleted after a day."""
        archive = None
        if self._rules.archive and self._artifacts is not None:
            archive = await JobArchivist(self._store, self._artifacts, self._clock).write(job)
        try:
            await self._store.pruning.remove(job, archive)
        except BackstayError as error:
            if archive is not None and self._artifacts is not None and not isinstance(error, DatabaseUnreachable):
                await self._artifacts.delete(archive.blob)
            raise
        return archive

    async def _finish_left(self, job_id: int) -> str | None:
        """Finishes a deletion that a dead process had begun; returns why it could not."""
        try:
            await self._finish(job_id)
        except DatabaseUnreachable:
            raise
        except BackstayError as error:
            return error.message
        return None

    async def _finish(self, job_id: int) -> None:
        """Deletes the rows of a job that has disappeared, in small steps with a rest after each."""
        if self._artifacts is not None:
            await delete_artifacts(self._store, self._artifacts, self._clock, job_id)
        elif await self._store.archives.of_job(job_id):
            raise NotAllowed(f"job {job_id} cannot be deleted completely: {_NO_PLACE}")
        while True:
            began = self._clock.monotonic()
            if not await self._store.jobs.purge_some(job_id, STEP_ITEMS):
                return
            await self._clock.sleep(REST * (self._clock.monotonic() - began))


async def delete_artifacts(store: Store, artifacts: Artifacts, clock: Clock, job_id: int) -> None:
    """Before the job's rows: while they exist, another process can find and delete the rest. Files of results that an
    archive names stay until they expire."""
    async for name in artifacts.names(f"logs/{job_id}"):
        await artifacts.delete(name)
    if await store.pruning.archive(job_id) is None:
        async for name in artifacts.names(f"results/{job_id}"):
            await store.files.drop(file_of(name))  # before its bytes, which name it
            await artifacts.delete(name)
    await Archivist(store.archives, artifacts, clock).forget(job_id)


LOOK_MS: Final = 50_000  # between two checks, by any process


class AlarmWatch:
    """Any number of processes may have one; one of them checks for all. The owner in the settings is notified by
    webhook."""

    def __init__(self, store: Store, settings: Settings, bus: Bus) -> None:
        self._store = store
        self._settings = settings
        self._bus = bus

    async def run_once(self) -> None:
        if await self._store.duties.take("alarms", LOOK_MS):
            await self.look()

    async def look(self) -> None:
        async for reading in self._readings():
            if await self._store.alarms.keep(reading, self._settings.owner):
                self._bus.emit(AlarmChanged(reading))

    async def _readings(self) -> AsyncIterator[AlarmReading]:
        bounds = self._settings
        failed = await self._store.alarms.failures()
        yield AlarmReading(Alarm.DEAD_LETTERS, failed.letters, bounds.dead_letter_alarm)
        yield AlarmReading(Alarm.ITEM_TIMEOUTS, failed.timeouts, bounds.alarm_timeouts)
        share = percent(failed.jobs_failed, failed.jobs, JOBS_MIN)
        yield AlarmReading(Alarm.FAILED_JOBS, share, bounds.alarm_failed_jobs_percent)
        invoked = await self._store.invocations.lately(DAY_MS)
        share = percent(invoked.failed, invoked.ticks, INVOCATIONS_MIN)
        yield AlarmReading(Alarm.INVOCATION_ERRORS, share, bounds.alarm_invocation_errors_percent)
        invoked = await self._store.invocations.lately(HOUR_MS)
        yield AlarmReading(Alarm.CHAIN_DEPTH, invoked.chains_full, bounds.alarm_chains)
        lags = [await self._store.outbox.lag(sink) for sink in (WORK, WEBHOOKS, MESSAGES)]
        yield AlarmReading(Alarm.OUTBOX_LAG, max(lag.age_ms for lag in lags) // 1000, bounds.alarm_outbox_seconds)
        old, bound = await self._store.workers.oldest_transaction(), bounds.alarm_transaction_seconds
        seconds = 0 if old is None else old.age_ms // 1000
        where = "" if old is None or seconds <= bound else old.words
        yield AlarmReading(Alarm.OLD_TRANSACTION, seconds if where else 0, bound, where)


LOOK_SECONDS: Final = 60.0
ARCHIVE_MS: Final = 300_000  # between two passes, by any process
SWEEP_MS: Final = 6 * 3_600_000


class DeadLetterUpkeep:
    """`artifacts` is the place for archives; without one nothing is archived, and so nothing is deleted."""

    def __init__(self, client: Client, artifacts: Artifacts | None, settings: Settings, bus: Bus) -> None:
        self._store = client.store
        self._bus = bus
        self._archivist = self._retention = None
        if artifacts is not None:
            self._archivist = Archivist(client.store.archives, artifacts, client.clock)
            self._retention = Retention(client.store.archives, artifacts, client.clock, bounds_of(settings))

    async def run_once(self) -> None:
        duties = self._store.duties
        if self._retention is not None and await duties.take("letters archive", ARCHIVE_MS):
            gone = await self._retention.run_once()
            if gone:
                self._bus.emit(LettersArchived(gone))
        if self._archivist is not None and await duties.take("letters sweep", SWEEP_MS):
            await self._archivist.sweep()


PRUNE_MS: Final = 300_000  # between two passes, by any process
PRUNE_SECONDS_MAX: Final = 60.0  # after this time a pass begins with no further job
STOP_SECONDS: Final = 2.0  # that a pass may go on when its process stops


class JobUpkeep:
    """Deletes old jobs, if a setting says which."""

    def __init__(self, client: Client, artifacts: Artifacts | None, settings: Settings, bus: Bus) -> None:
        self._duties = client.store.duties
        self._bus = bus
        rules = rules_of(settings)
        self._pruner = None if rules is None else Pruner(client.store, artifacts, client.clock, rules)
        self._idle = asyncio.Event()

    async def run_once(self) -> None:
        self._idle.clear()
        try:
            if self._pruner is not None and await self._duties.take("jobs prune", PRUNE_MS):
                await self._pass(self._pruner)
        finally:
            self._idle.set()

    async def _pass(self, pruner: Pruner) -> None:
        jobs = items = skipped = 0
        async for one in pruner.run(PRUNE_SECONDS_MAX):
            if one.skipped is None:
                jobs, items = jobs + 1, items + one.items
                continue
            skipped += 1
            if not one.held:
                self._bus.emit(Trouble("old jobs", f"job {one.job_id} was not deleted: {one.skipped}"))
        if jobs:
            self._bus.emit(JobsPruned(jobs, items, skipped))

    async def give_time(self) -> None:
        """A tick may end at once: the pass that it has begun gets a moment. The rest is for the next process."""
        if self._pruner is not None:
            await wait_for_event(self._idle, STOP_SECONDS)


@asynccontextmanager
async def upkeep(client: Client, artifacts: Artifacts | None, settings: Settings, bus: Bus) -> AsyncIterator[None]:
    """Runs every minute while the block runs. Alarms and old jobs are also looked at when it starts: a tick may end
    within the minute."""
    alarms, letters = AlarmWatch(client.store, settings, bus), DeadLetterUpkeep(client, artifacts, settings, bus)
    jobs = JobUpkeep(client, artifacts, settings, bus)
    tasks = Tasks()

    async def look(part: AlarmWatch | DeadLetterUpkeep | JobUpkeep, name: str) -> None:
        try:
            await part.run_once()
        except Exception as error:
            bus.emit(Trouble(name, f"{type(error).__name__}: {error}"))

    async def look_on() -> None:
        while True:
            await client.clock.sleep(LOOK_SECONDS)
            await look(alarms, "alarms")
            await look(letters, "dead letters")

    async def prune_on() -> None:
        while True:
            await look(jobs, "old jobs")
            await client.clock.sleep(LOOK_SECONDS)

    await look(alarms, "alarms")
    tasks.spawn(look_on())
    tasks.spawn(prune_on())
    try:
        yield
    finally:
        await jobs.give_time()
        await tasks.stop()
