"""Looks after dead letters, beside a worker or a service: the alarm every minute, archives every few minutes.

Any number of processes may do it: each look is somebody's duty for a while, and what it changes is guarded.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from backstay.artifacts import Artifacts
from backstay.client import Client
from backstay.clock import Tasks
from backstay.core.errors import BackstayError
from backstay.core.events import LettersAlarm, LettersArchived, Trouble
from backstay.observe.bus import Bus
from backstay.run.archivist import Archivist
from backstay.run.retention import Retention, bounds_of
from backstay.settings import Settings
from backstay.store.archives import DAY_MS
from backstay.store.store import Store

LOOK_SECONDS: Final = 60.0
ARCHIVE_MS: Final = 300_000  # from one pass to the next, whoever makes it
SWEEP_MS: Final = 6 * 3_600_000
ALARM: Final = "letters alarm"
RAISED: Final = "raised"


class Letters:
    """`artifacts` is where archives go; without such a place nothing is archived, and so nothing is deleted."""

    def __init__(self, client: Client, artifacts: Artifacts | None, settings: Settings, bus: Bus) -> None:
        self._store = client.store
        self._bus = bus
        self._alarm = settings.dead_letter_alarm
        self._archivist = self._retention = None
        if artifacts is not None:
            self._archivist = Archivist(client.store.archives, artifacts, client.clock)
            self._retention = Retention(client.store.archives, artifacts, client.clock, bounds_of(settings))

    async def run_once(self) -> None:
        await self.look()
        duties = self._store.duties
        if self._retention is not None and await duties.take("letters archive", ARCHIVE_MS):
            gone = await self._retention.run_once()
            if gone:
                self._bus.emit(LettersArchived(gone))
        if self._archivist is not None and await duties.take("letters sweep", SWEEP_MS):
            await self._archivist.sweep()

    async def look(self) -> None:
        """Tells when the alarm is raised, and when it is over: once each, whoever notices."""
        items = await lately(self._store, self._alarm)
        raised = items > self._alarm
        if await self._store.duties.tell(ALARM, RAISED if raised else ""):
            self._bus.emit(LettersAlarm(raised, items, self._alarm))


async def lately(store: Store, alarm: int) -> int:
    """How many items failed for good within a day; no more are counted than it takes to raise the alarm."""
    return await store.archives.lately(DAY_MS, alarm + 1)


@asynccontextmanager
async def looked_after(
    client: Client, artifacts: Artifacts | None, settings: Settings, bus: Bus
) -> AsyncIterator[None]:
    letters, tasks = Letters(client, artifacts, settings, bus), Tasks()

    async def look_on() -> None:
        while True:
            await client.clock.sleep(LOOK_SECONDS)
            try:
                await letters.run_once()
            except BackstayError as error:
                bus.emit(Trouble("dead letters", str(error)))

    tasks.spawn(look_on())
    try:
        yield
    finally:
        await tasks.stop()
