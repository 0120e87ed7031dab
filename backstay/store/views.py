"""All reads of commands, pages, metrics and the API."""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from backstay.core.display import NextCommand, Sentence
from backstay.core.errors import NotFound
from backstay.core.ids import item_range, show_item
from backstay.core.states import JOB_ENDED, ItemState, JobState
from backstay.store.queries import record
from backstay.store.result_views import ResultRow, ResultViews
from backstay.store.submissions import OpenJob

LAST_ID = (1 << 63) - 1
SHORT_JOBS_MAX = 20
FAILURES_COUNTED_MAX = 1_000  # of a job, by error
NAMED_ITEMS = 2_000  # looked up by one statement


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

    @property
    def done(self) -> int:
        return self.succeeded + self.failed + self.skipped + self.cancelled

    @property
    def ended(self) -> bool:
        return self.state in JOB_ENDED

    @property
    def used_micros(self) -> int:
        """What counts against the budget: spent, set aside, and perhaps spent."""
        return self.spent_micros + self.reserved_micros + self.unknown_micros

    @property
    def held_by_budget(self) -> bool:
        """Its next item does not fit under its budget, and no money is under way that could come back."""
        return self.short and self.reserved_micros == 0 and not self.ended


@record
@dataclass(frozen=True, slots=True)
class ItemView:
    id: int
    job_id: int
    handler: str
    state: ItemState
    due_at: int | None
    leased_by: str | None
    lease_expires_at: int | None
    reconcile_after: int | None
    fence: int
    attempt_count: int
    rescues: int
    repeats: int
    progress: int
    created_at: int
    queued_at: int
    last_attempt_at: int | None
    finished_at: int | None
    timed_out_at: int | None
    deadline_at: int | None
    error_code: str | None
    provider_task_id: str | None
    account: str | None
    job_state: JobState
    stop_reason: str | None
    job_short: bool
    now: int
    body: str | None
    archive_id: int | None
    calls: int
    flaw: str | None  # what is wrong with its result, besides the state


@record
@dataclass(frozen=True, slots=True)
class AttemptView:
    number: int
    outcome: str
    started_at: int
    ended_at: int
    error_code: str | None
    message: str | None
    provider_status: int | None
    result: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_micros: int | None


@record
class EventView(NamedTuple):
    at: int
    act: str
    detail: str | None


@record
class Backlog(NamedTuple):
    handler: str
    jobs: int
    items: int
    processing: int
    oldest_at: int


@record
class Ceilings(NamedTuple):
    """The largest share of a budget that an unfinished job has used, and how many jobs wait because of their
    budgets."""

    used: float
    held: int


@record
class NamedItem(NamedTuple):
    """The state of an item that a message names; a message may name items of any owner."""

    id: int
    state: ItemState
    handler: str
    owner: str


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
@dataclass(frozen=True, slots=True)
class WorkerView:
    id: str
    host: str
    pid: int
    handlers: tuple[str, ...]
    started_at: int
    seen_at: int
    stopped_at: int | None
    now: int
    providers: Mapping[str, str]  # handler -> its provider, as far as the worker reported it

    def alive(self, lease_ms: int) -> bool:
        return self.stopped_at is None and self.seen_at + lease_ms > self.now


@record
class HeldLeases(NamedTuple):
    """What one worker holds now. An unknown worker counts as stopped."""

    worker: str
    items: int
    until_at: int
    host: str
    pid: int
    place: str
    stopped: int
    now: int


class Views(ResultViews):
    """Bounded reads; if an owner is given, jobs and items of other owners are not found."""

    async def jobs(self, owner: str, before: int = LAST_ID, n: int = 50) -> list[JobView]:
        return await self._rows("jobs_page", owner=owner, before=before, n=n)

    async def job(self, job_id: int, owner: str) -> JobView:
        rows: list[JobView] = await self._rows("job", job_id=job_id, owner=owner)
        if not rows:
            raise NotFound(f"no job {job_id}", hint=Sentence("`", NextCommand("jobs"), "` lists all jobs"))
        return rows[0]

    async def job_of_key(self, owner: str, key: str) -> int | None:
        """The job of an owner's idempotency key."""
        rows: list[OpenJob] = await self._rows("job_of_key", owner=owner, idempotency_key=key)
        return rows[0].id if rows else None

    async def job_failures(self, job_id: int) -> list[FailureGroup]:
        return await self._rows("job_failures", job_id=job_id, n=FAILURES_COUNTED_MAX)

    async def item(self, item_id: int, owner: str) -> ItemView:
        rows: list[ItemView] = await self._rows("item", item_id=item_id, owner=owner)
        if not rows:
            raise NotFound(f"no item {show_item(item_id)}")
        return rows[0]

    async def named_items(self, ids: Iterable[int]) -> dict[int, NamedItem]:
        """The existing ones of these items, of all owners."""
        named = sorted(set(ids))
        found: dict[int, NamedItem] = {}
        for start in range(0, len(named), NAMED_ITEMS):
            batch = [(item,) for item in named[start : start + NAMED_ITEMS]]
            page: list[NamedItem] = await self._rows("named_items", batch)
            found |= {item.id: item for item in page}
        return found

    async def attempts(self, item_id: int) -> list[AttemptView]:
        return await self._rows("attempts", item_id=item_id)

    async def events(self, subject: str, n: int = 500) -> list[EventView]:
        return await self._rows("events", subject=subject, n=n)

    async def retries(self, job_id: int) -> int:
        """How often failed items of a job were queued again by a person."""
        [found] = await self._rows("count_retries", subject=f"job:{job_id}")
        return found["retries"]  # type: ignore[no-any-return]

    async def results(self, job_id: int, owner: str, cursor: int | None = None) -> AsyncIterator[ResultRow]:
        """All ended items of a job, in the order they were submitted, a page at a time."""
        await self.job(job_id, owner)
        async for page in self.result_pages(job_id, cursor):
            for row in page:
                yield row

    async def under_way(self, job_id: int) -> UnderWay:
        first, after = item_range(job_id)
        [found] = await self._rows("under_way", first=first, after=after)
        return found  # type: ignore[no-any-return]

    async def backlog(self) -> list[Backlog]:
        return await self._rows("backlog")

    async def waiting_since(self, handler: str) -> int | None:
        """When the oldest of the items that could be started now was queued."""
        [found] = await self._rows("waiting_since", handler=handler)
        return found["queued_at"]  # type: ignore[no-any-return]

    async def ceilings(self) -> Ceilings:
        [found] = await self._rows("ceilings")
        return found  # type: ignore[no-any-return]

    async def unfinished(self, handler: str) -> bool:
        """Whether anything of a handler could be worked on now or soon."""
        return any((await self._rows("unfinished_here", handler=handler))[0])

    async def stuck(self) -> dict[str, int]:
        """How many items of lost workers no worker has taken over, by handler."""
        return {row["handler"]: row["items"] for row in await self._rows("stuck")}

    async def leases(self) -> list[HeldLeases]:
        """The workers that hold valid leases."""
        return await self._rows("leases_held")

    async def unsealed(self, age_ms: int) -> list[tuple[int, int]]:
        """Jobs that have been taking items for longer than this, and their ages."""
        rows = await self._rows("unsealed_jobs", age_ms=age_ms, n=SHORT_JOBS_MAX)
        return [(row["id"], row["age_ms"]) for row in rows]

    async def short_jobs(self) -> list[int]:
        """Jobs that wait because of their budgets."""
        return [row["id"] for row in await self._rows("short_jobs", n=SHORT_JOBS_MAX)]

    async def due_in_ms(self) -> int | None:
        """How long until the first waiting item is due."""
        [found] = await self._rows("next_due")
        return None if found["due_at"] is None else max(found["due_at"] - found["now"], 0)

    async def ahead(self, item_id: int) -> int:
        [found] = await self._rows("ahead", item_id=item_id)
        return int(found["items"])

    async def workers(self, n: int = 100) -> list[WorkerView]:
        return await self._rows("workers", n=n)
