"""What an operator checks first: unfinished jobs, stuck items, leases, paces, tasks at providers. All reads are
bounded."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from backstay.core.pace import Pace
from backstay.store.database import Database
from backstay.store.dead_letters import Groups, groups_of
from backstay.store.inbox import LateResult
from backstay.store.queries import Ask, Script, one
from backstay.store.rows import record
from backstay.store.views import EventView, JobView

DEAD_LOOKED_MAX: Final = 50_000  # failed items of all owners
UNKNOWN_COUNTED_MAX: Final = 1_000
GROUPED_FIRST: Final = 250  # failed items: a page must be as fast with many as with few
LEASES_LOOKED_MAX: Final = 20_000
TASKS_LOOKED_MAX: Final = 1_000
LATE_MAX: Final = 5
DAY_MS: Final = 86_400_000


@record
class Lease(NamedTuple):
    """The items that one claim of a worker is sending."""

    handler: str
    leased_by: str | None
    items: int

    @property
    def worker(self) -> str:
        return (self.leased_by or "").partition(":")[0]


@record
class ProviderTasks(NamedTuple):
    account: str
    items: int
    example: int
    task: str | None


class Dead(NamedTuple):
    """Permanently failed items, by error, and their cost, as far as it is known."""

    found: Groups
    costs: dict[str, int]


class Overview:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def open_jobs(self, owner: str, n: int) -> list[JobView]:
        return await self._db.read(one("open_jobs_of", {"owner": owner, "n": n}))

    async def stuck(self, owner: str) -> int:
        return await self._count("stuck_of", {"owner": owner})

    async def dead_since(self, owner: str, counted_max: int, age_ms: int = DAY_MS) -> int:
        """How many of the owner's items failed in that time, counted up to a bound."""
        looked = max(DEAD_LOOKED_MAX, counted_max)  # a bound above the rows that are read could never be reached
        values = {"owner": owner, "age_ms": age_ms, "looked": looked, "n": counted_max}
        return await self._count("dead_since", values)

    async def unknown(self, owner: str) -> int:
        """How many of the owner's failed items may have been processed and paid, counted up to a bound."""
        values = {"owner": owner, "looked": DEAD_LOOKED_MAX, "n": UNKNOWN_COUNTED_MAX}
        return await self._count("unknown_of", values)

    async def _count(self, name: str, values: Mapping[str, object]) -> int:
        [found] = await self._db.read(one(name, values))
        return int(found["items"])

    async def dead_groups(self, owner: str, job_id: int | None, n: int = GROUPED_FIRST) -> Dead:
        """For the owner's failed items, up to a bound."""
        return await self._db.read(lambda: _dead_groups(owner, job_id, n))

    async def oldest_waiting(self, owner: str, handler: str) -> int | None:
        [found] = await self._db.read(one("oldest_waiting", {"owner": owner, "handler": handler}))
        return found["queued_at"]  # type: ignore[no-any-return]

    async def events(self, subject: str, n: int) -> list[EventView]:
        """The latest acts, newest first."""
        return await self._db.read(one("events_last", {"subject": subject, "n": n}))

    async def paces(self) -> dict[str, Pace]:
        found: list[Pace] = await self._db.read(one("paces"))
        return {pace.provider: pace for pace in found}

    async def leases(self) -> list[Lease]:
        return await self._db.read(one("leases", {"n": LEASES_LOOKED_MAX}))

    async def tasks(self, owner: str, handler: str) -> list[ProviderTasks]:
        values = {"owner": owner, "handler": handler, "n": TASKS_LOOKED_MAX}
        return await self._db.read(one("tasks_of", values))

    async def late(self, item_id: int, owner: str) -> list[LateResult]:
        values = {"item_id": item_id, "owner": owner, "n": LATE_MAX}
        return await self._db.read(one("late_of", values))


def _dead_groups(owner: str, job_id: int | None, n: int) -> Script[Dead]:
    found, jobs = yield from groups_of(owner, job_id, n)
    costs = (yield Ask("dead_costs", {"n": n}, jobs)) if jobs else []
    known = {row["error_code"]: row["cost_micros"] for row in costs if row["cost_micros"] is not None}
    return Dead(found, known)
