"""Checks the figures of alarms, and reports when one is raised and when it is over."""

from collections.abc import AsyncIterator
from typing import Final

from backstay.core.alarms import INVOCATIONS_MIN, JOBS_MIN, Alarm, AlarmReading, percent
from backstay.core.events import AlarmChanged
from backstay.observe.bus import Bus
from backstay.settings import Settings
from backstay.store.alarms import DAY_MS
from backstay.store.outbox import WEBHOOKS, WORK
from backstay.store.store import Store

HOUR_MS: Final = 3_600_000
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
        lags = [await self._store.outbox.lag(sink) for sink in (WORK, WEBHOOKS)]
        yield AlarmReading(Alarm.OUTBOX_LAG, max(lag.age_ms for lag in lags) // 1000, bounds.alarm_outbox_seconds)
