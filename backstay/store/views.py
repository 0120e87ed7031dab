"""The one read side: what commands, pages, metrics and the API see."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from backstay.core.errors import NotFound
from backstay.core.ids import item_range, show_item
from backstay.core.states import JOB_ENDED, ItemState, JobState
from backstay.store.result_views import ResultRow, ResultViews

LAST_ID = (1 << 63) - 1
SHORT_JOBS_MAX = 20
FAILURES_COUNTED_MAX = 1_000  # of a job, by error
NAMED_ITEMS = 2_000  # that are looked up by one statement


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
    unknown_micros: int  # of calls that may have been paid, for all anyone knows
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
    flaw: str | None  # what is wrong with its end, beyond the state


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


class EventView(NamedTuple):
    at: int
    act: str
    detail: str | None


class Backlog(NamedTuple):
    handler: str
    jobs: int
    items: int
    processing: int
    oldest_at: int


class Ceilings(NamedTuple):
    """The largest share of a budget that an unfinished job has used, and how many jobs stand still by their budgets."""

    used: float
    held: int


class NamedItem(NamedTuple):
    """How it stands with an item that a message names: it may name any, whoever owns them."""

    state: ItemState
    handler: str
    owner: str


class UnderWay(NamedTuple):
    """Of one job's items: those being sent, and those that wait for another try."""

    sending: int
    waiting: int


class FailureGroup(NamedTuple):
    error_code: str | None
    items: int
    example: int
    flaw: str | None = None


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
    providers: Mapping[str, str]  # handler -> the provider behind it, as far as the worker told

    def alive(self, lease_ms: int) -> bool:
        return self.stopped_at is None and self.seen_at + lease_ms > self.now


class HeldLeases(NamedTuple):
    """What one worker holds now. A worker that nobody knows any more counts as stopped."""

    worker: str
    items: int
    until_at: int
    host: str
    pid: int
    place: str
    stopped: int
    now: int


class Views(ResultViews):
    """Reads, each bounded; where an owner is given, a job or item of another is not found."""

    async def jobs(self, owner: str, before: int = LAST_ID, n: int = 50) -> list[JobView]:
        return [job_view(row) for row in await self._rows("jobs_page", owner=owner, before=before, n=n)]

    async def job(self, job_id: int, owner: str) -> JobView:
        rows = await self._rows("job", job_id=job_id, owner=owner)
        if not rows:
            raise NotFound(f"no job {job_id}", hint="backstay jobs lists what there is")
        return job_view(rows[0])

    async def job_of_key(self, owner: str, key: str) -> int | None:
        """The job that an owner's idempotency key stands for."""
        rows = await self._rows("job_of_key", owner=owner, idempotency_key=key)
        return rows[0][0] if rows else None

    async def job_failures(self, job_id: int) -> list[FailureGroup]:
        rows = await self._rows("job_failures", job_id=job_id, n=FAILURES_COUNTED_MAX)
        return [FailureGroup(*row) for row in rows]

    async def item(self, item_id: int, owner: str) -> ItemView:
        rows = await self._rows("item", item_id=item_id, owner=owner)
        if not rows:
            raise NotFound(f"no item {show_item(item_id)}")
        row = list(rows[0])
        row[3], row[22], row[24] = ItemState(row[3]), JobState(row[22]), bool(row[24])
        return ItemView(*row)

    async def named_items(self, ids: Iterable[int]) -> dict[int, NamedItem]:
        """Those of the items that there are, of all owners."""
        named = sorted(set(ids))
        found: dict[int, NamedItem] = {}
        for start in range(0, len(named), NAMED_ITEMS):
            batch = [(item,) for item in named[start : start + NAMED_ITEMS]]
            for item, state, handler, owner in await self._rows("named_items", batch):
                found[item] = NamedItem(ItemState(state), handler, owner)
        return found

    async def attempts(self, item_id: int) -> list[AttemptView]:
        return [AttemptView(*row) for row in await self._rows("attempts", item_id=item_id)]

    async def events(self, subject: str, n: int = 500) -> list[EventView]:
        return [EventView(*row) for row in await self._rows("events", subject=subject, n=n)]

    async def results(self, job_id: int, owner: str, cursor: int | None = None) -> AsyncIterator[ResultRow]:
        """All ended items of a job, in the order they were submitted, a page at a time."""
        await self.job(job_id, owner)
        async for page in self.result_pages(job_id, cursor):
            for row in page:
                yield row

    async def under_way(self, job_id: int) -> UnderWay:
        first, after = item_range(job_id)
        return UnderWay(*(await self._rows("under_way", first=first, after=after))[0])

    async def backlog(self) -> list[Backlog]:
        return [Backlog(*row) for row in await self._rows("backlog")]

    async def waiting_since(self, handler: str) -> int | None:
        """When the oldest of the items that could be started now was queued."""
        queued_at: int | None = (await self._rows("waiting_since", handler=handler))[0][0]
        return queued_at

    async def ceilings(self) -> Ceilings:
        return Ceilings(*(await self._rows("ceilings"))[0])

    async def unfinished(self, handler: str) -> bool:
        """Whether anything of a handler could be worked on now or soon."""
        return any((await self._rows("unfinished_here", handler=handler))[0])

    async def stuck(self) -> dict[str, int]:
        """How many items wait in vain to be taken up after their worker was lost, by handler."""
        return {handler: items for handler, items in await self._rows("stuck")}

    async def leases(self) -> list[HeldLeases]:
        """Who holds leases that are not over."""
        return [HeldLeases(*row) for row in await self._rows("leases_held")]

    async def unsealed(self, age_ms: int) -> list[tuple[int, int]]:
        """Jobs that have been taking items for longer than this, and their ages."""
        return [(job_id, age) for job_id, age in await self._rows("unsealed_jobs", age_ms=age_ms, n=SHORT_JOBS_MAX)]

    async def short_jobs(self) -> list[int]:
        """Jobs that their budgets hold."""
        return [row[0] for row in await self._rows("short_jobs", n=SHORT_JOBS_MAX)]

    async def due_in_ms(self) -> int | None:
        """How long until the first waiting item is due."""
        due_at, now = (await self._rows("next_due"))[0]
        return None if due_at is None else max(due_at - now, 0)

    async def ahead(self, item_id: int) -> int:
        return int((await self._rows("ahead", item_id=item_id))[0][0])

    async def workers(self, n: int = 100) -> list[WorkerView]:
        rows = await self._rows("workers", n=n)
        return [_worker(list(row)) for row in rows]


def _worker(row: list[Any]) -> WorkerView:
    told = json.loads(row[3])
    row[3] = tuple(told)
    row.append(told if isinstance(told, dict) else {})
    return WorkerView(*row)


def job_view(row: Any) -> JobView:
    values = list(row)
    values[3], values[10], values[27] = JobState(values[3]), bool(values[10]), bool(values[27])
    return JobView(*values)
