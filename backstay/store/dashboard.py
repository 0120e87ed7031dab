"""What the dashboard reads: the overview of all work, and the story of one item or job."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from backstay.core.breaker import Breaker, without_words
from backstay.core.pace import Pace
from backstay.core.states import ItemState
from backstay.core.why_waiting import Reason, Standing, why_job_waits, why_not_running
from backstay.store.batches import Batch
from backstay.store.database import Database
from backstay.store.dead_letters import Groups, groups_of
from backstay.store.inbox import LateResult
from backstay.store.jobs import NEVER_MS
from backstay.store.listing import ItemRow
from backstay.store.providers import HeldWork
from backstay.store.queries import Ask, Script, one, record
from backstay.store.views import AttemptView, EventView, ItemView, JobView, WorkerView

if TYPE_CHECKING:
    from backstay.store.store import Store


Asked = tuple[int, str]  # an id, and the owner it must belong to


class Snapshots:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def jobs(self, asked: Sequence[Asked]) -> dict[Asked, JobView]:
        """The existing ones; those of another owner are left out."""
        found: list[JobView] = await self._db.read(one("jobs_seen", batch=asked))
        return {(view.id, view.owner): view for view in found}

    async def items(self, asked: Sequence[Asked]) -> dict[Asked, ItemRow]:
        """Items as in lists, each with the error of its last attempt."""
        found: list[ItemRow] = await self._db.read(one("items_seen", batch=asked))
        return {(item.id, item.owner): item for item in found}

    async def batches(self, asked: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Batch]:
        found: list[Batch] = await self._db.read(one("batches_seen", batch=asked))
        return {(batch.id, batch.owner): batch for batch in found}


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


class Shown(NamedTuple):
    view: ItemView
    attempts: list[AttemptView]
    events: list[EventView]
    reasons: list[Reason]


class Moment(NamedTuple):
    """A line of a timeline."""

    at: int
    what: str
    detail: str | None


async def look(store: "Store", item_id: int, owner: str, lease_ms: int, *, shows_words: bool = False) -> Shown:
    """`shows_words`: with the provider's message when it was held, which only operators may see."""
    views = store.views
    view = show_due_time(await views.item(item_id, owner))
    attempts = await views.attempts(item_id)
    workers = await views.workers()
    live = sum(view.handler in worker.handlers and worker.alive(lease_ms) for worker in workers)
    breaker = breaker_of(await store.providers.holds(), view.handler, workers, shows_words)
    ahead = await views.ahead(item_id) if view.state == "queued" else 0
    is_request = view.handler in dict(await store.providers.endpoints(open_only=False))
    standing = _standing(view, attempts, breaker=breaker, live_workers=live, ahead=ahead, is_request=is_request)
    return Shown(view, attempts, await views.events(f"item:{item_id}"), why_not_running(standing))


async def look_at_job(
    store: "Store", job_id: int, owner: str, lease_ms: int, *, shows_words: bool = False
) -> tuple[JobView, list[Reason]]:
    """The job, and what keeps its waiting items from being started. `shows_words`: as for an item."""
    view = await store.views.job(job_id, owner)
    if view.ended or view.done + view.processing >= view.total:
        return view, []
    workers, holds = await store.views.workers(), await store.providers.holds()
    standing = Standing(
        now=holds.now,
        job_id=view.id,
        job_state=view.state,
        stop_reason=view.stop_reason,
        state=ItemState.QUEUED,
        handler=view.handler,
        breaker=breaker_of(holds, view.handler, workers, shows_words),
        job_short=view.held_by_budget,
        live_workers=sum(view.handler in worker.handlers and worker.alive(lease_ms) for worker in workers),
        is_request=view.handler in dict(await store.providers.endpoints(open_only=False)),
    )
    return view, why_job_waits(standing)


def show_due_time(view: ItemView) -> ItemView:
    """The due time to show: a parked item of a paused job has none."""
    return view if view.due_at is None or view.due_at < NEVER_MS else replace(view, due_at=None)


def provider_of(handler: str, workers: list[WorkerView]) -> str:
    """The provider behind a handler, as its workers report it; without workers, the handler's name."""
    told = (worker.providers[handler] for worker in workers if handler in worker.providers)
    return next(told, handler)


def breaker_of(holds: HeldWork, handler: str, workers: list[WorkerView], shows_words: bool) -> Breaker | None:
    found = holds.providers.get(provider_of(handler, workers))
    return found if found is None or shows_words else without_words(found)


def _standing(view: ItemView, attempts: list[AttemptView], **around: Any) -> Standing:
    """The facts that decide whether an item runs."""
    own = {field.name: getattr(view, field.name) for field in fields(Standing) if field.name in view.__slots__}
    return Standing(**own, last_message=attempts[-1].message if attempts else None, **around)


def is_no_try(attempt: AttemptView, before: AttemptView | None) -> bool:
    """Whether the attempt stands for an item that a time limit or its job ended while it waited: it has the number and
    start of the last call."""
    if attempt.outcome == ItemState.SUCCEEDED:  # a late result that was accepted
        return False
    return attempt.number == 0 or (before is not None and attempt.started_at == before.started_at)


def timeline(view: ItemView, attempts: list[AttemptView], events: list[EventView]) -> list[Moment]:
    """The item's submission, tries and rare acts in the order of time."""
    moments = [Moment(view.created_at, "submitted", None)]
    for attempt, before in zip(attempts, [None, *attempts], strict=False):
        status = None if attempt.provider_status is None else f"provider status {attempt.provider_status}"
        took = f"{(attempt.ended_at - attempt.started_at) / 1000:.3f} s"
        detail = ", ".join(part for part in (took, status, attempt.error_code, attempt.message) if part)
        # An item that time ended before its first try has an attempt without a time.
        at = attempt.ended_at or view.finished_at or view.created_at
        if is_no_try(attempt, before):
            said = ", ".join(part for part in (attempt.error_code, attempt.message) if part)
            moments.append(Moment(at, f"ended without another try: {attempt.outcome}", said))
        else:
            moments.append(Moment(at, f"call {attempt.number} ended: {attempt.outcome}", detail))
    moments += [Moment(event.at, event.act, event.detail) for event in events]
    return sorted(moments, key=lambda moment: moment.at)
