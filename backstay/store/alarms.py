"""Alarms: which are raised, and since when. A change and its webhook event are one transaction."""

from typing import Final, NamedTuple

from backstay.clock import DAY_MS
from backstay.core.alarms import Alarm, AlarmReading
from backstay.store.databases.database import Database
from backstay.store.queries import Ask, Script, one, record

LOOKED_MAX: Final = 100_001  # the newest rows of each kind: one more than any threshold
RAISED: Final = "alarm.raised"
CLEARED: Final = "alarm.cleared"


@record
class AlarmRow(NamedTuple):
    name: str
    value: int
    bound: int
    raised_at: int
    cleared_at: int | None
    detail: str


class AlarmStanding(NamedTuple):
    """An alarm that was raised at some time; it is over when it has been cleared."""

    reading: AlarmReading
    raised_at: int
    cleared_at: int | None


@record
class RecentFailures(NamedTuple):
    """For the newest rows of the last day."""

    letters: int
    timeouts: int
    jobs: int
    jobs_failed: int


class Alarms:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def failures(self) -> RecentFailures:
        [found] = await self._db.read(one("lately_failed", {"span_ms": DAY_MS, "n": LOOKED_MAX}))
        return found  # type: ignore[no-any-return]

    async def keep(self, reading: AlarmReading, owner: str) -> bool:
        """Whether the alarm changed. If it did, the owner's webhooks are notified, in the same transaction."""
        return await self._db.write(lambda: _keep(reading, owner))

    async def all_known(self) -> list[AlarmStanding]:
        """The raised alarms, then the cleared ones, newest first; alarms of a newer version are left out."""
        found: list[AlarmRow] = await self._db.read(one("alarms"))
        known = [row for row in found if row.name in set(Alarm)]
        return [
            AlarmStanding(
                AlarmReading(Alarm(row.name), row.value, row.bound, row.detail), row.raised_at, row.cleared_at
            )
            for row in known
        ]

    async def all_raised(self) -> list[AlarmStanding]:
        return [standing for standing in await self.all_known() if standing.cleared_at is None]


def _keep(reading: AlarmReading, owner: str) -> Script[bool]:
    values = {
        "name": reading.alarm.value,
        "figure": reading.value,
        "bound": reading.bound,
        "detail": reading.detail,
    }
    changed = yield Ask("raise_alarm" if reading.is_raised else "clear_alarm", values)
    if not changed:
        if reading.is_raised:
            yield Ask("refresh_alarm", values)
        return False
    event = RAISED if reading.is_raised else CLEARED
    yield Ask("tell_alarm", {"owner": owner, "name": reading.alarm.value, "told": event})
    return True
