"""Pages of jobs and items for the API: filters, cursors, and a bound on the rows that one page reads."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from backstay.core.errors import NotFound
from backstay.core.ids import POSITIONS_MAX, item_range, show_item
from backstay.core.states import ItemState
from backstay.store.database import Database
from backstay.store.queries import Ask, Script, one, record
from backstay.store.views import LAST_ID, Backlog, JobView

JOBS_LOOKED_MAX: Final = 2_000  # by one page
ITEMS_LOOKED_MAX: Final = 10_000
RECENT_JOBS: Final = 100


@record
class ItemRow(NamedTuple):
    """An item as lists show it, without its bodies."""

    id: int
    owner: str
    fence: int
    handler: str
    state: str
    attempt_count: int
    calls: int
    repeats: int
    progress: int
    error_code: str | None
    created_at: int
    queued_at: int
    last_attempt_at: int | None
    finished_at: int | None
    timed_out_at: int | None
    deadline_at: int | None
    due_at: int | None
    provider_task_id: str | None
    archive_id: int | None
    flaw: str | None
    message: str | None = None


class JobFilter(NamedTuple):
    state: str | None = None
    handler: str | None = None
    text: str | None = None  # anywhere in its label, its key or its handler's name


class ItemFilter(NamedTuple):
    """Positions count from 0; `position_to` is included."""

    state: str | None = None
    error_code: str | None = None
    position_from: int = 0
    position_to: int = POSITIONS_MAX - 1


@record
class Recent(NamedTuple):
    """The item counts of the last jobs."""

    jobs: int
    total: int
    succeeded: int
    failed: int
    skipped: int
    cancelled: int
    repeats: int
    spent_micros: int
    unknown_micros: int


@record
class Bodies(NamedTuple):
    payload: str | None
    result: str | None


class Listing:
    """A page may be short, even empty, and still have a next one: it reads a bounded number of rows."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def jobs(self, owner: str, wanted: JobFilter, before: int | None, n: int) -> tuple[list[JobView], int | None]:
        """Newest first, and the id before which the next page begins."""
        start = LAST_ID if before is None else before
        return await self._db.read(lambda: _jobs(owner, wanted, start, n))

    async def items(
        self, job_id: int, owner: str, wanted: ItemFilter, after: int | None, n: int
    ) -> tuple[list[ItemRow], int | None]:
        """In submit order, and the id after which the next page begins."""
        return await self._db.read(lambda: _items(job_id, owner, wanted, after, n))

    async def item(self, item_id: int, owner: str) -> ItemRow:
        rows = await self._db.read(one("item_shown", {"item_id": item_id, "owner": owner}))
        if not rows:
            raise NotFound(f"no item {show_item(item_id)}")
        return rows[0]  # type: ignore[no-any-return]

    async def bodies(self, item_id: int, owner: str) -> Bodies:
        rows = await self._db.read(one("item_bodies", {"item_id": item_id, "owner": owner}))
        if not rows:
            raise NotFound(f"no item {show_item(item_id)}")
        return rows[0]  # type: ignore[no-any-return]

    async def backlog(self, owner: str) -> list[Backlog]:
        return await self._db.read(one("backlog_of", {"owner": owner}))

    async def recent(self, owner: str) -> Recent:
        values = {"owner": owner, "before": LAST_ID, "n": RECENT_JOBS}
        [found] = await self._db.read(one("recent_jobs_of", values))
        return found  # type: ignore[no-any-return]


def _jobs(owner: str, wanted: JobFilter, before: int, n: int) -> Script[tuple[list[JobView], int | None]]:
    place = {"owner": owner, "before": before}
    if wanted == JobFilter():
        jobs: list[JobView] = yield Ask("jobs_page", {**place, "n": n + 1})
        return jobs[:n], jobs[n - 1].id if len(jobs) > n else None
    chosen = {"state": wanted.state, "handler": wanted.handler, "pattern": _pattern(wanted.text)}
    found: list[JobView] = yield Ask("jobs_chosen", {**place, **chosen, "looked": JOBS_LOOKED_MAX, "n": n})
    if len(found) == n:
        return found, found[-1].id
    [seen] = yield Ask("jobs_looked", {**place, "looked": JOBS_LOOKED_MAX})
    return found, seen["last"] if seen["looked"] == JOBS_LOOKED_MAX else None


def _pattern(text: str | None) -> str | None:
    """A pattern for LIKE, with its special characters escaped."""
    if not text:
        return None
    plain = "".join(f"!{letter}" if letter in "!%_" else letter for letter in text.lower())
    return f"%{plain}%"


def _items(
    job_id: int, owner: str, wanted: ItemFilter, after: int | None, n: int
) -> Script[tuple[list[ItemRow], int | None]]:
    counted = yield Ask("job_counters", {"job_id": job_id, "owner": owner})
    if not counted:
        raise NotFound(f"no job {job_id}")
    first = item_range(job_id)[0]
    last = first + min(counted[0]["total"] - 1, wanted.position_to)
    cursor = max(first + wanted.position_from - 1, -1 if after is None else after)
    if cursor >= last or _has_none(counted[0], wanted.state):
        return [], None
    if wanted.state == ItemState.FAILED and wanted.error_code is None:
        failed: list[ItemRow] = yield Ask("failed_page", {"job_id": job_id, "owner": owner, "cursor": cursor, "n": n})
        rows, upto = [item for item in failed if item.id <= last], last if len(failed) < n else failed[-1].id
    else:
        upto = min(cursor + (ITEMS_LOOKED_MAX if wanted.state or wanted.error_code else n), last)
        span = {"cursor": cursor, "upto": upto, "state": wanted.state, "error_code": wanted.error_code}
        rows = yield Ask("items_page", {**span, "owner": owner, "n": n})
        upto = rows[-1].id if len(rows) == n else upto
    return (yield from add_last_errors(rows)), upto if upto < last else None


def _has_none(counters: Mapping[str, int], state: str | None) -> bool:
    """Whether the job's counters show that no item has a state."""
    return state is not None and state in tuple(counters.keys()) and counters[state] == 0


def add_last_errors(items: Sequence[ItemRow]) -> Script[list[ItemRow]]:
    """The items with the errors of their last attempts."""
    rows = (yield Ask("messages_of", batch=[(item.id, item.fence) for item in items])) if items else []
    messages = {row["item_id"]: row["message"] for row in rows}
    return [item._replace(message=messages.get(item.id)) for item in items]
