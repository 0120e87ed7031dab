"""Failed items of all jobs of an owner, without archived ones: groups by error, pages, and selection by a filter."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from backstay.core.ids import item_id, job_of
from backstay.store.database import Database
from backstay.store.files import with_sources
from backstay.store.jobs import FailedItem
from backstay.store.listing import ItemRow, told
from backstay.store.queries import Ask, Script
from backstay.store.rows import record

JOBS_MAX: Final = 100  # that one page reads
LOOKED_MAX: Final = 20_000  # failed items that one page reads
GROUPED_MAX: Final = 10_000
CHUNK_ITEMS: Final = 2_000
LAST_JOB: Final = (1 << 35) - 1


class LetterFilter(NamedTuple):
    """A filter of failed items: by job, error code, minimum age of the failure, and flaw."""

    job_id: int | None = None
    error_code: str | None = None
    age_ms: int = 0
    flaw: str | None = None


@record
class LetterGroup(NamedTuple):
    error_code: str
    items: int
    oldest: int
    newest: int
    first_at: int
    last_at: int


@record
class FailingJob(NamedTuple):
    """A job that has failed items, and how many of them are not in an archive."""

    id: int
    total: int
    letters: int


class Groups(NamedTuple):
    """`items`: the failed, unarchived items of the jobs that were read; the groups cover the first of them."""

    groups: list[LetterGroup]
    jobs: int
    items: int
    complete: bool


class DeadLetters:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def groups(self, owner: str, job_id: int | None) -> Groups:
        found, _ = await self._db.read(lambda: groups_of(owner, job_id, GROUPED_MAX))
        return found

    async def page(
        self, owner: str, wanted: LetterFilter, before: int | None, n: int
    ) -> tuple[list[ItemRow], int | None]:
        """The last items of the newest jobs first, and the id before which the next page begins."""
        rows, end = await self._db.read(lambda: letters_page(owner, wanted, before, n, replayable=False))
        return await self._db.read(lambda: told(rows)), end


def _failing_jobs(owner: str, job_id: int | None, upto: int, replayable: bool) -> Script[list[FailingJob]]:
    span = {"upto": upto if job_id is None else min(job_id, upto), "downto": job_id or 0}
    return (yield Ask("failing_jobs", {"owner": owner, **span, "replayable": int(replayable), "n": JOBS_MAX}))


def groups_of(owner: str, job_id: int | None, n: int) -> Script[tuple[Groups, list[tuple[int]]]]:
    """The groups of the first items, up to a maximum, and the jobs that were read."""
    jobs = yield from _failing_jobs(owner, job_id, LAST_JOB, False)
    items, batch = sum(job.letters for job in jobs), [(job.id,) for job in jobs]
    groups = (yield Ask("failure_groups", {"n": n}, batch)) if jobs else []
    complete = items <= n and len(jobs) < JOBS_MAX
    return Groups(groups, len(jobs), items, complete), batch


def letters_page(
    owner: str, wanted: LetterFilter, before: int | None, n: int, replayable: bool
) -> Script[tuple[list[ItemRow], int | None]]:
    """Job by job, until the page is full or the read limit is reached."""
    upto = LAST_JOB if before is None else job_of(before - 1)
    jobs = yield from _failing_jobs(owner, wanted.job_id, upto, replayable)
    items: list[ItemRow] = []
    left = LOOKED_MAX
    for job in jobs:
        end = item_id(job.id, 0) + job.total
        end = end if before is None else min(end, before)
        if left <= 0:
            return items, end
        place = {"job_id": job.id, "before": end, "looked": left}
        chosen = {"error_code": wanted.error_code, "age_ms": wanted.age_ms, "flaw": wanted.flaw}
        items += yield Ask("failed_window", {**place, **chosen, "owner": owner, "n": n - len(items)})
        if len(items) == n:
            return items, items[-1].id
        if job.letters > left:
            [seen] = yield Ask("failed_looked", place)
            if seen["looked"] == left:
                return items, seen["last"]
        left -= job.letters
    return items, item_id(jobs[-1].id, 0) if len(jobs) == JOBS_MAX else None


def chosen_items(owner: str, wanted: LetterFilter, ids: Sequence[int]) -> Script[list[FailedItem]]:
    """Those of the items that the owner may retry."""
    items: list[FailedItem] = yield Ask(
        "failed_items_of", {"owner": owner, **wanted._asdict()}, [(one,) for one in ids]
    )
    there = (yield from with_sources(owner, [item.id for item in items])) if items else set()
    return [item for item in items if item.id in there]
