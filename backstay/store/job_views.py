"""The reads of jobs: one job, pages, lists by a filter, and counts. Each read is bounded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from backstay.core.display import NextCommand, Sentence
from backstay.core.errors import NotFound
from backstay.core.ids import item_range
from backstay.core.states import JOB_ENDED, JobState
from backstay.store.databases.database import Database, reads
from backstay.store.queries import Ask, Script, one, record
from backstay.store.submissions import OpenJob

LAST_ID = (1 << 63) - 1
SHORT_JOBS_MAX = 20
FAILURES_COUNTED_MAX = 1_000  # of a job, by error
JOBS_LOOKED_MAX: Final = 2_000  # by one page
RECENT_JOBS: Final = 100
UNSENT_ITEMS: Final = 1_000

Asked = tuple[int, str]  # an id, and the owner it must belong to


@record
@dataclass(frozen=True, slots=True)
class JobView:
    id: int
    owner: str
    handler: str
    state: JobState
    stop_reason: str | None
    priority: int
    retry: str | None
    delivery: str | None
    label: str | None
    idempotency_key: str | None
    sealed: bool
    total: int
    processing: int
    succeeded: int
    failed: int
    skipped: int
    cancelled: int
    repeats: int
    created_at: int
    started_at: int | None
    finished_at: int | None
    timeout_at: int
    deadline_at: int | None
    budget_micros: int | None
    spent_micros: int
    reserved_micros: int  # set aside for calls under way
    unknown_micros: int  # of calls that may have been paid: the outcome is unknown
    short: bool  # the next item does not fit under the ceiling
    input_tokens: int
    output_tokens: int
    truncated: int  # answers that are cut off, whether they count as failures or not
    refused: int
    filtered: int
    unfinished: int
    fallback: str | None = None  # the handler for items that the first one finally fails
    waits_for: tuple[str, ...] | None = None  # the jobs that must end before it starts
    known: int = 0  # items that an earlier submit had made already
    reused: int = 0  # items that got the answer of an earlier run, at no cost

    @property
    def done(self) -> int:
        return self.succeeded + self.failed + self.skipped + self.cancelled

    @property
    def ended(self) -> bool:
        return self.state in JOB_ENDED

    @property
    def used_micros(self) -> int:
        """The money that counts against the budget: spent, set aside, and perhaps spent."""
        return self.spent_micros + self.reserved_micros + self.unknown_micros

    @property
    def held_by_budget(self) -> bool:
        """Its next item does not fit under its budget, and no money is under way that could come back."""
        return self.short and self.reserved_micros == 0 and not self.ended


@record
class Ceilings(NamedTuple):
    """The largest share of a budget that an unfinished job has used, and how many jobs wait because of their
    budgets."""

    used: float
    held: int


@record
class UnderWay(NamedTuple):
    """How many items of a job are being sent, and how many wait for another try."""

    sending: int
    waiting: int


@record
class FailureGroup(NamedTuple):
    error_code: str | None
    items: int
    example: int
    flaw: str | None = None


@record
class Backlog(NamedTuple):
    handler: str
    jobs: int
    items: int
    processing: int
    oldest_at: int


class JobFilter(NamedTuple):
    state: str | None = None
    handler: str | None = None
    text: str | None = None  # anywhere in its label, its key or its handler's name


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
class UnsentItem(NamedTuple):
    """An item that may still be sent, and the most that its call may cost, if known."""

    id: int
    cost_micros: int | None
    body: str
    handler: str


class JobViews:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def get(self, job_id: int, owner: str) -> JobView:
        rows: list[JobView] = await self._db.read(one("job", {"job_id": job_id, "owner": owner}))
        if not rows:
            raise NotFound(f"no job {job_id}", hint=Sentence("`", NextCommand("jobs"), "` lists all jobs"))
        return rows[0]

    async def at_end(self, job_id: int, owner: str) -> JobView | None:
        """The job if it has ended or may be held by its budget. A cheap read, because `wait` repeats it often."""
        rows: list[JobView] = await self._db.read(one("job_at_end", {"job_id": job_id, "owner": owner}))
        return rows[0] if rows else None

    async def page(self, owner: str, before: int = LAST_ID, n: int = 50) -> list[JobView]:
        return await self._db.read(one("jobs_page", {"owner": owner, "before": before, "n": n}))

    async def choose(
        self, owner: str, wanted: JobFilter, before: int | None, n: int
    ) -> tuple[list[JobView], int | None]:
        """Newest first, and the id before which the next page begins."""
        start = LAST_ID if before is None else before
        return await self._db.read(lambda: _choose(owner, wanted, start, n))

    async def many(self, asked: Sequence[Asked]) -> dict[Asked, JobView]:
        """The existing ones; those of another owner are left out."""
        found: list[JobView] = await self._db.read(one("jobs_seen", batch=asked))
        return {(view.id, view.owner): view for view in found}

    async def of_key(self, owner: str, key: str) -> int | None:
        """The job of an owner's idempotency key."""
        rows: list[OpenJob] = await self._db.read(one("job_of_key", {"owner": owner, "idempotency_key": key}))
        return rows[0].id if rows else None

    async def failures(self, job_id: int) -> list[FailureGroup]:
        return await self._db.read(one("job_failures", {"job_id": job_id, "n": FAILURES_COUNTED_MAX}))

    async def count_by_handler(self, job_id: int) -> list[tuple[str, int]]:
        """How many items of a job succeeded at each handler."""
        first, after = item_range(job_id)
        rows = await self._db.read(one("answered_by", {"first": first, "after": after}))
        return [(row["handler"], row["items"]) for row in rows]

    async def retries(self, job_id: int) -> int:
        """How often failed items of a job were queued again by a person."""
        [found] = await self._db.read(one("count_retries", {"subject": f"job:{job_id}"}))
        return found["retries"]  # type: ignore[no-any-return]

    async def under_way(self, job_id: int) -> UnderWay:
        first, after = item_range(job_id)
        [found] = await self._db.read(one("under_way", {"first": first, "after": after}))
        return found  # type: ignore[no-any-return]

    async def backlog(self, owner: str | None = None) -> list[Backlog]:
        """The unfinished jobs and items, by handler: of one owner, or of all."""
        return await self._db.read(one("backlog") if owner is None else one("backlog_of", {"owner": owner}))

    async def recent(self, owner: str) -> Recent:
        values = {"owner": owner, "before": LAST_ID, "n": RECENT_JOBS}
        [found] = await self._db.read(one("recent_jobs_of", values))
        return found  # type: ignore[no-any-return]

    async def open_jobs(self, owner: str, n: int) -> list[JobView]:
        return await self._db.read(one("open_jobs_of", {"owner": owner, "n": n}))

    async def ceilings(self) -> Ceilings:
        [found] = await self._db.read(one("ceilings"))
        return found  # type: ignore[no-any-return]

    async def unsealed_jobs(self, age_ms: int) -> list[tuple[int, int]]:
        """Jobs that have been taking items for longer than this, and their ages."""
        rows = await self._db.read(one("unsealed_jobs", {"age_ms": age_ms, "n": SHORT_JOBS_MAX}))
        return [(row["id"], row["age_ms"]) for row in rows]

    @reads
    def waiting_handlers(self, job_id: int, candidates: Sequence[str]) -> Script[list[str]]:
        """Which of these handlers have items of the job that wait."""
        first, after = item_range(job_id)
        found = {row["handler"] for row in (yield Ask("due_handlers", {"first": first, "after": after}))}
        for handler in candidates:
            if handler not in found:
                values = {"job_id": job_id, "handler": handler, "first": first, "after": after}
                [row] = yield Ask("waits_at", values)
                found.update([handler] if row["waits"] else [])
        return [handler for handler in candidates if handler in found]

    @reads
    def unsent_items(self, job_id: int, weighed_too: bool, cursor: int) -> Script[list[UnsentItem]]:
        """A page of items that may still be sent: those without a maximum cost, or all of them with `weighed_too`."""
        first, after = item_range(job_id)
        values = {"cursor": max(cursor, first - 1), "after": after, "weighed_too": int(weighed_too), "n": UNSENT_ITEMS}
        return (yield Ask("unsent_page", values))

    @reads
    def next_cost(self, job_id: int) -> Script[int | None]:
        """The most that the job's next item may cost, if there is one and it is known."""
        first, after = item_range(job_id)
        rows = yield Ask("next_cost", {"first": first, "after": after})
        return rows[0]["cost_micros"] if rows else None

    async def short_jobs(self) -> list[int]:
        """Jobs that wait because of their budgets."""
        return [row["id"] for row in await self._db.read(one("short_jobs", {"n": SHORT_JOBS_MAX}))]


def _choose(owner: str, wanted: JobFilter, before: int, n: int) -> Script[tuple[list[JobView], int | None]]:
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
