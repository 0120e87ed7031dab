"""What an operator looks at first: unfinished jobs, what is stuck, leases, paces, tasks at providers. All bounded."""

from typing import Final, NamedTuple

from backstay.core.pace import Pace
from backstay.store.database import Database
from backstay.store.dead_letters import Groups, groups_of
from backstay.store.inbox import LateResult
from backstay.store.queries import Ask, Script, one
from backstay.store.views import EventView, JobView, job_view

DEAD_LOOKED_MAX: Final = 50_000  # failed items of all owners
UNKNOWN_COUNTED_MAX: Final = 1_000
GROUPED_FIRST: Final = 250  # failed items: a page is to be as quick with many as with few
LEASES_LOOKED_MAX: Final = 20_000
TASKS_LOOKED_MAX: Final = 1_000
LATE_MAX: Final = 5
DAY_MS: Final = 86_400_000


class Lease(NamedTuple):
    """Items that one claim of a worker is sending."""

    handler: str
    leased_by: str | None
    items: int

    @property
    def worker(self) -> str:
        return (self.leased_by or "").partition(":")[0]


class Tasks(NamedTuple):
    account: str
    items: int
    example: int
    task: str | None


class Dead(NamedTuple):
    """What failed for good, by error, and what it has cost; without the cost of those of which no call said it."""

    found: Groups
    costs: dict[str, int]


class Overview:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def open_jobs(self, owner: str, n: int) -> list[JobView]:
        return [job_view(row) for row in await self._db.read(one("open_jobs_of", {"owner": owner, "n": n}))]

    async def stuck(self, owner: str) -> int:
        return int((await self._db.read(one("stuck_of", {"owner": owner})))[0][0])

    async def dead_since(self, owner: str, counted_max: int, age_ms: int = DAY_MS) -> int:
        """How many of the owner's items failed in that time, as far as is counted."""
        looked = max(DEAD_LOOKED_MAX, counted_max)  # a bound that could not be reached would be none
        values = {"owner": owner, "age_ms": age_ms, "looked": looked, "n": counted_max}
        return int((await self._db.read(one("dead_since", values)))[0][0])

    async def unknown(self, owner: str) -> int:
        """How many of the owner's failed items may have been done and paid, as far as is counted."""
        values = {"owner": owner, "looked": DEAD_LOOKED_MAX, "n": UNKNOWN_COUNTED_MAX}
        return int((await self._db.read(one("unknown_of", values)))[0][0])

    async def dead_groups(self, owner: str, job_id: int | None, n: int = GROUPED_FIRST) -> Dead:
        """Of as many of the owner's failed items as are looked at."""
        return await self._db.read(lambda: _dead_groups(owner, job_id, n))

    async def oldest_waiting(self, owner: str, handler: str) -> int | None:
        rows = await self._db.read(one("oldest_waiting", {"owner": owner, "handler": handler}))
        return None if rows[0][0] is None else int(rows[0][0])

    async def events(self, subject: str, n: int) -> list[EventView]:
        """The last acts, the last first."""
        return [EventView(*row) for row in await self._db.read(one("events_last", {"subject": subject, "n": n}))]

    async def paces(self) -> dict[str, Pace]:
        return {row[0]: Pace(*row) for row in await self._db.read(one("paces"))}

    async def leases(self) -> list[Lease]:
        return [Lease(*row) for row in await self._db.read(one("leases", {"n": LEASES_LOOKED_MAX}))]

    async def tasks(self, owner: str, handler: str) -> list[Tasks]:
        values = {"owner": owner, "handler": handler, "n": TASKS_LOOKED_MAX}
        return [Tasks(*row) for row in await self._db.read(one("tasks_of", values))]

    async def late(self, item_id: int, owner: str) -> list[LateResult]:
        values = {"item_id": item_id, "owner": owner, "n": LATE_MAX}
        return [LateResult(*row) for row in await self._db.read(one("late_of", values))]


def _dead_groups(owner: str, job_id: int | None, n: int) -> Script[Dead]:
    found, jobs = yield from groups_of(owner, job_id, n)
    costs = (yield Ask("dead_costs", {"n": n}, jobs)) if jobs else []
    return Dead(found, {row[0]: row[1] for row in costs if row[1] is not None})
