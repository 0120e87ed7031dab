"""Failed items over all jobs of an owner: groups by error, pages, and queueing them afresh by a filter."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from backstay.core.ids import item_range, job_of
from backstay.store.control import RETRIED
from backstay.store.listing import ItemRow, told
from backstay.store.queries import Ask, Script
from backstay.store.sources import with_sources

if TYPE_CHECKING:
    from backstay.store.store import Database

JOBS_MAX: Final = 100  # that one page visits
LOOKED_MAX: Final = 20_000  # failed items that one page looks at
GROUPED_MAX: Final = 10_000
CHUNK_ITEMS: Final = 2_000
REPLAY_ITEMS_MAX: Final = 100_000  # by one call; whoever has more calls again
LAST_JOB: Final = (1 << 35) - 1


class Wanted(NamedTuple):
    """Which failed items: of one job, with one error code, failed at least so long ago."""

    job_id: int | None = None
    error_code: str | None = None
    age_ms: int = 0


class Group(NamedTuple):
    error_code: str
    items: int
    oldest: int
    newest: int
    first_at: int
    last_at: int


class Groups(NamedTuple):
    """`items` are all failed ones of the jobs looked at; the groups are of the first of them."""

    groups: list[Group]
    jobs: int
    items: int
    complete: bool


class Replay(NamedTuple):
    """`more` may be left: the same call again goes on."""

    items: int
    more: bool


class DeadLetters:
    def __init__(self, database: "Database") -> None:
        self._db = database

    async def groups(self, owner: str, job_id: int | None) -> Groups:
        return await self._db.read(lambda: _groups(owner, job_id))

    async def page(self, owner: str, wanted: Wanted, before: int | None, n: int) -> tuple[list[ItemRow], int | None]:
        """The newest jobs' last items first, and before which id the next page begins."""
        rows, end = await self._db.read(lambda: _page(owner, wanted, before, n, replayable=False))
        return await self._db.read(lambda: told(rows)), end

    async def replay(self, owner: str, wanted: Wanted, dry_run: bool) -> Replay:
        """Queues what the filter chooses afresh, chunk by chunk, each item once; or only counts it."""
        items, before = 0, None
        while items < REPLAY_ITEMS_MAX:
            found = await self._db.read(lambda at=before: _page(owner, wanted, at, CHUNK_ITEMS, True))  # type: ignore[misc]
            ids = [row[0] for row in found[0]]
            items += (await self.replay_some(owner, wanted, ids, dry_run)).items
            before = found[1]
            if before is None:
                return Replay(items, more=False)
        return Replay(items, more=True)

    async def replay_some(self, owner: str, wanted: Wanted, ids: Sequence[int], dry_run: bool) -> Replay:
        """The same for some named items; those that are another's, or did not fail, are passed over."""
        items, named = 0, sorted(set(ids))
        for start in range(0, len(named), CHUNK_ITEMS):
            chunk = named[start : start + CHUNK_ITEMS]
            if dry_run:
                items += len(await self._db.read(lambda some=chunk: _chosen(owner, wanted, some)))  # type: ignore[misc]
            else:
                items += await self._queue(owner, wanted, chunk)
        return Replay(items, more=False)

    async def _queue(self, owner: str, wanted: Wanted, ids: Sequence[int]) -> int:
        return await self._db.write(lambda: _retry(owner, wanted, ids)) if ids else 0


def _failing_jobs(owner: str, job_id: int | None, upto: int, replayable: bool) -> Script[list[Any]]:
    span = {"upto": upto if job_id is None else min(job_id, upto), "downto": job_id or 0}
    return (yield Ask("failing_jobs", {"owner": owner, **span, "replayable": int(replayable), "n": JOBS_MAX}))


def _groups(owner: str, job_id: int | None) -> Script[Groups]:
    jobs = yield from _failing_jobs(owner, job_id, LAST_JOB, False)
    items = sum(row[2] for row in jobs)
    rows = (yield Ask("failure_groups", {"n": GROUPED_MAX}, [(row[0],) for row in jobs])) if jobs else []
    return Groups([Group(*row) for row in rows], len(jobs), items, items <= GROUPED_MAX and len(jobs) < JOBS_MAX)


def _page(
    owner: str, wanted: Wanted, before: int | None, n: int, replayable: bool
) -> Script[tuple[list[Any], int | None]]:
    """Job by job, until the page is full or enough was looked at."""
    upto = LAST_JOB if before is None else job_of(before - 1)
    jobs = yield from _failing_jobs(owner, wanted.job_id, upto, replayable)
    rows: list[Any] = []
    left = LOOKED_MAX
    for job_id, total, failed in jobs:
        end = item_range(job_id)[0] + total
        end = end if before is None else min(end, before)
        if left <= 0:
            return rows, end
        place = {"job_id": job_id, "before": end, "looked": left}
        chosen = {"error_code": wanted.error_code, "age_ms": wanted.age_ms, "n": n - len(rows)}
        rows += yield Ask("failed_window", {**place, **chosen})
        if len(rows) == n:
            return rows, rows[-1][0]
        if failed > left:
            last, looked = (yield Ask("failed_looked", place))[0]
            if looked == left:
                return rows, last
        left -= failed
    return rows, item_range(jobs[-1][0])[0] if len(jobs) == JOBS_MAX else None


def _chosen(owner: str, wanted: Wanted, ids: Sequence[int]) -> Script[list[Any]]:
    values = {"owner": owner, "job_id": wanted.job_id, "error_code": wanted.error_code, "age_ms": wanted.age_ms}
    rows = yield Ask("failed_items_of", values, [(one,) for one in ids])
    return (yield from with_sources(owner, rows)) if rows else []


def _retry(owner: str, wanted: Wanted, ids: Sequence[int]) -> Script[int]:
    """As `control.retry_items`, for items of several jobs: the fence lets one of two replays have each."""
    chosen = yield from _chosen(owner, wanted, ids)
    rows = (yield Ask("retry_items", batch=[tuple(row)[:3] for row in chosen])) if chosen else []
    again = {row[0]: row[2] for row in chosen}
    retried = sorted(row[0] for row in rows)
    for job_id in sorted({job_of(item) for item in retried}):
        mine = [item for item in retried if job_of(item) == job_id]
        counts = {"retried": len(mine), "repeated": sum(again[item] for item in mine)}
        yield Ask("reopen_job", {"job_id": job_id, **counts})
    if retried:
        yield Ask("write_events", batch=[(f"item:{item}", "retried", RETRIED[again[item]]) for item in retried])
    return len(retried)
