"""The loop of upkeep in workers, ticks and services: check the alarms, archive dead letters above their limits, delete
old jobs, and files without an archive. Any number of processes may run it: one of them at a time does each check."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from backstay.artifacts import Artifacts
from backstay.client import Client
from backstay.clock import DAY_MS, HOUR_MS, Tasks, wait_for_event
from backstay.core.alarms import INVOCATIONS_MIN, JOBS_MIN, Alarm, AlarmReading, percent
from backstay.core.events import AlarmChanged, JobsPruned, LettersArchived, Trouble
from backstay.observe.bus import Bus
from backstay.settings import Settings
from backstay.store.outbox import MESSAGES, WEBHOOKS, WORK
from backstay.store.store import Store
from backstay.upkeep.archivist import Archivist
from backstay.upkeep.retention import Pruner, Retention, bounds_of, rules_of

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
