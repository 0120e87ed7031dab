"""Looks after dead letters: those beyond the bounds go into archives, and files that no archive knows are swept.

Any number of processes may do it: each look is somebody's duty for a while, and what it changes is guarded.
"""

from typing import Final

from backstay.artifacts import Artifacts
from backstay.client import Client
from backstay.core.events import LettersArchived
from backstay.observe.bus import Bus
from backstay.run.archivist import Archivist
from backstay.run.retention import Retention, bounds_of
from backstay.settings import Settings

ARCHIVE_MS: Final = 300_000  # from one pass to the next, whoever makes it
SWEEP_MS: Final = 6 * 3_600_000


class Letters:
    """`artifacts` is where archives go; without such a place nothing is archived, and so nothing is deleted."""

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
