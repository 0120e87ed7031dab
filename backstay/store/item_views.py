"""The reads of items: one item, pages, many by their ids, their attempts, and what they wait for. Each read is
bounded. The story of an item or job is its timeline, and why it waits.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from backstay.core.breaker import Breaker, hide_reason
from backstay.core.errors import NotFound
from backstay.core.ids import POSITIONS_MAX, item_range, show_item
from backstay.core.models import AttemptOutcome
from backstay.core.pace import Pace, pace_name_of
from backstay.core.states import ItemState, JobState
from backstay.core.why_waiting import Reason, Standing, why_job_waits, why_not_running
from backstay.store.databases.database import Database, reads
from backstay.store.job_views import Asked, JobView
from backstay.store.jobs import NEVER_MS
from backstay.store.providers import HeldWork
from backstay.store.queries import Ask, Script, one, record
from backstay.store.workers import WorkerView

if TYPE_CHECKING:
    from backstay.store.store import Store


ITEMS_LOOKED_MAX: Final = 10_000  # by one page
NAMED_ITEMS: Final = 2_000  # looked up by one statement
TASKS_LOOKED_MAX: Final = 1_000
STRANGERS_MAX: Final = 1_000
_OF_ATTEMPTS: Final = ("message", "first_attempt_at", "attempt_ended_at")


@record
@dataclass(frozen=True, slots=True)
class ItemDetail:
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
    waits_for: tuple[str, ...] | None  # the jobs that must end before its job starts
    reused_from: int | None  # the item of an earlier run whose answer it got


@record
class ItemView(NamedTuple):
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
    reused_from: int | None  # the item of an earlier run whose answer it got
    message: str | None = None
    first_attempt_at: int | None = None
    attempt_ended_at: int | None = None  # of the last one

    @property
    def started_at(self) -> int | None:
        """When the first call of the item began."""
        return self.last_attempt_at if self.first_attempt_at is None else self.first_attempt_at

    @property
    def updated_at(self) -> int:
        """When the item last changed its state."""
        moments = (self.queued_at, self.last_attempt_at, self.attempt_ended_at, self.finished_at)
        return max(self.created_at, *(at for at in moments if at is not None))

    @property
    def retry_after(self) -> int | None:
        """When the item is tried again, if it waits for that."""
        waits = self.state == ItemState.QUEUED and self.attempt_ended_at is not None
        return self.due_at if waits and self.due_at is not None and self.due_at < NEVER_MS else None


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
class InvalidAnswer(NamedTuple):
    """An answer that did not fit, and the message that says why."""

    result: str | None
    message: str | None


@record
class Bodies(NamedTuple):
    payload: str | None
    result: str | None


class ItemFilter(NamedTuple):
    """Positions count from 0; `position_to` is included."""

    state: str | None = None
    error_code: str | None = None
    position_from: int = 0
    position_to: int = POSITIONS_MAX - 1


@record
class NamedItem(NamedTuple):
    """The state of an item that a message names; a message may name items of any owner."""

    id: int
    state: ItemState
    handler: str
    owner: str


@record
class ProviderTasks(NamedTuple):
    account: str
    items: int
    example: int
    task: str | None


@record
class Waiting(NamedTuple):
    """What a job's items wait for while none of them is being sent. Times are the database's."""

    now: int
    resume_at: int | None  # the end of a pause that the provider asked for
    due_at: int | None  # the next try of an item
    lost: int  # items whose worker is gone, and that are looked up
    ask_at: int | None  # when the first of them is looked up
    strangers: int  # due tasks of another account, counted up to a bound


class ItemViews:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def get(self, item_id: int, owner: str) -> ItemDetail:
        rows: list[ItemDetail] = await self._db.read(one("item", {"item_id": item_id, "owner": owner}))
        if not rows:
            raise NotFound(f"no item {show_item(item_id)}")
        return rows[0]

    async def row(self, item_id: int, owner: str) -> ItemView:
        rows = await self._db.read(one("item_shown", {"item_id": item_id, "owner": owner}))
        if not rows:
            raise NotFound(f"no item {show_item(item_id)}")
        return rows[0]  # type: ignore[no-any-return]

    async def bodies(self, item_id: int, owner: str) -> Bodies:
        rows = await self._db.read(one("item_bodies", {"item_id": item_id, "owner": owner}))
        if not rows:
            raise NotFound(f"no item {show_item(item_id)}")
        return rows[0]  # type: ignore[no-any-return]

    async def page(
        self, job_id: int, owner: str, wanted: ItemFilter, after: int | None, n: int
    ) -> tuple[list[ItemView], int | None]:
        """In submit order, and the id after which the next page begins."""
        return await self._db.read(lambda: _page(job_id, owner, wanted, after, n))

    async def many(self, asked: Sequence[Asked]) -> dict[Asked, ItemView]:
        """Items as in lists, each with the error of its last attempt."""
        found: list[ItemView] = await self._db.read(one("items_seen", batch=asked))
        return {(item.id, item.owner): item for item in found}

    async def by_ids(self, ids: Iterable[int]) -> dict[int, NamedItem]:
        """The existing ones of these items, of all owners."""
        named = sorted(set(ids))
        found: dict[int, NamedItem] = {}
        for start in range(0, len(named), NAMED_ITEMS):
            batch = [(item,) for item in named[start : start + NAMED_ITEMS]]
            page: list[NamedItem] = await self._db.read(one("named_items", batch=batch))
            found |= {item.id: item for item in page}
        return found

    async def attempts(self, item_id: int) -> list[AttemptView]:
        return await self._db.read(one("attempts", {"item_id": item_id}))

    async def last_invalid(self, item_id: int) -> InvalidAnswer | None:
        """The last answer that did not fit, if the model was asked again since the item last failed."""
        rows: list[InvalidAnswer] = await self._db.read(one("last_invalid", {"item_id": item_id}))
        return rows[0] if rows else None

    async def count_invalid(self, ids: Iterable[int]) -> dict[int, int]:
        """How many answers of each item did not fit since it last failed."""
        rows = await self._db.read(one("count_invalid", batch=[(item,) for item in ids]))
        return {row["item_id"]: row["answers"] for row in rows}

    async def ahead(self, item_id: int) -> int:
        [found] = await self._db.read(one("ahead", {"item_id": item_id}))
        return int(found["items"])

    async def waiting_since(self, handler: str, owner: str | None = None) -> int | None:
        """When the oldest item that could be started now was queued: of one owner, or of all."""
        name, chosen = ("waiting_since", {}) if owner is None else ("oldest_waiting", {"owner": owner})
        [found] = await self._db.read(one(name, {"handler": handler, **chosen}))
        return found["queued_at"]  # type: ignore[no-any-return]

    @reads
    def job_waits(self, job_id: int, handler: str, account: str, paces: tuple[str, str]) -> Script[Waiting]:
        first, after = item_range(job_id)
        values = {"first": first, "after": after, "handler": handler, "account": account, "n": STRANGERS_MAX}
        paced, paced_then = paces
        [found] = yield Ask("waiting", {**values, "paced": paced, "paced_then": paced_then})
        return found  # type: ignore[no-any-return]

    async def is_unfinished(self, handler: str) -> bool:
        """Whether a handler has items that could be worked on now or soon."""
        return any((await self._db.read(one("unfinished_here", {"handler": handler})))[0])

    async def stuck(self) -> dict[str, int]:
        """How many items of lost workers no worker has taken over, by handler."""
        return {row["handler"]: row["items"] for row in await self._db.read(one("stuck"))}

    async def stuck_of(self, owner: str) -> int:
        """How many of an owner's items no worker has taken over after their worker was lost."""
        [found] = await self._db.read(one("stuck_of", {"owner": owner}))
        return int(found["items"])

    async def due_in_ms(self) -> int | None:
        """How long until the first waiting item is due."""
        [found] = await self._db.read(one("next_due"))
        return None if found["due_at"] is None else max(found["due_at"] - found["now"], 0)

    async def tasks(self, owner: str, handler: str) -> list[ProviderTasks]:
        values = {"owner": owner, "handler": handler, "n": TASKS_LOOKED_MAX}
        return await self._db.read(one("tasks_of", values))


def _page(
    job_id: int, owner: str, wanted: ItemFilter, after: int | None, n: int
) -> Script[tuple[list[ItemView], int | None]]:
    counted = yield Ask("job_counters", {"job_id": job_id, "owner": owner})
    if not counted:
        raise NotFound(f"no job {job_id}")
    first = item_range(job_id)[0]
    last = first + min(counted[0]["total"] - 1, wanted.position_to)
    cursor = max(first + wanted.position_from - 1, -1 if after is None else after)
    if cursor >= last or _has_none(counted[0], wanted.state):
        return [], None
    if wanted.state == ItemState.FAILED and wanted.error_code is None:
        failed: list[ItemView] = yield Ask("failed_page", {"job_id": job_id, "owner": owner, "cursor": cursor, "n": n})
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


def add_last_errors(items: Sequence[ItemView]) -> Script[list[ItemView]]:
    """The items, completed with the message and the times of their attempts."""
    rows = (yield Ask("messages_of", batch=[(item.id, item.fence) for item in items])) if items else []
    found = {row["item_id"]: {name: row[name] for name in _OF_ATTEMPTS} for row in rows}
    return [item._replace(**found.get(item.id, {})) for item in items]


@record
class EventView(NamedTuple):
    at: int
    act: str
    detail: str | None


class EventViews:
    """The rare acts. A subject is `job:1`, `item:1-2` or `provider:name`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def oldest(self, subject: str, n: int = 500) -> list[EventView]:
        return await self._db.read(one("events", {"subject": subject, "n": n}))

    async def newest(self, subject: str, n: int) -> list[EventView]:
        """The latest acts, newest first."""
        return await self._db.read(one("events_last", {"subject": subject, "n": n}))


class ItemReport(NamedTuple):
    view: ItemDetail
    attempts: list[AttemptView]
    events: list[EventView]
    reasons: list[Reason]


class Moment(NamedTuple):
    """A line of a timeline."""

    at: int
    what: str
    detail: str | None


async def read_item_story(
    store: "Store", item_id: int, owner: str, lease_ms: int, *, shows_reason: bool = False
) -> ItemReport:
    """`shows_reason`: with the reason of a breaker or hold, which only operators may see."""
    views = store.item_views
    view = show_due_time(await views.get(item_id, owner))
    attempts = await views.attempts(item_id)
    workers = await store.workers.page()
    live = sum(view.handler in worker.handlers and worker.alive(lease_ms) for worker in workers)
    breaker = breaker_of(await store.providers.holds(), view.handler, workers, shows_reason)
    ahead = await views.ahead(item_id) if view.state == "queued" else 0
    is_request = view.handler in dict(await store.providers.endpoints(open_only=False))
    around: dict[str, Any] = {"breaker": breaker, "live_workers": live, "ahead": ahead, "is_request": is_request}
    around["pace"] = await _pace_of(store, view.handler, workers, is_request)
    if view.job_short:
        around["shared_budget"] = await store.budgets.of_job(view.job_id, owner)
        around["timeout_at"] = (await store.job_views.get(view.job_id, owner)).timeout_at
    standing = _standing(view, attempts, **around)
    return ItemReport(view, attempts, await store.events.oldest(f"item:{item_id}"), why_not_running(standing))


async def read_job_story(
    store: "Store", job_id: int, owner: str, lease_ms: int, *, shows_reason: bool = False
) -> tuple[JobView, list[Reason]]:
    """The job, and the reasons why its waiting items are not started, for each of its handlers. `shows_reason`: as for
    an item."""
    view = await store.job_views.get(job_id, owner)
    if view.ended or (view.done + view.processing >= view.total and not view.waits_for):
        return view, []
    workers, holds = await store.workers.page(), await store.providers.holds()
    endpoints = dict(await store.providers.endpoints(open_only=False))
    standings = []
    for handler in await _waiting_handlers(store, view, endpoints) or [view.handler]:
        standing = Standing(
            now=holds.now,
            job_id=view.id,
            job_state=view.state,
            stop_reason=view.stop_reason,
            state=ItemState.QUEUED,
            handler=handler,
            breaker=breaker_of(holds, handler, workers, shows_reason),
            job_short=view.held_by_budget,
            shared_budget=await store.budgets.of_job(view.id, owner) if view.short else None,
            timeout_at=view.timeout_at,
            live_workers=sum(handler in worker.handlers and worker.alive(lease_ms) for worker in workers),
            is_request=handler in endpoints,
            pace=await _pace_of(store, handler, workers, handler in endpoints),
            waits_for=view.waits_for,
        )
        standings.append(standing)
    return view, why_job_waits(*standings)


async def is_out_of_money(store: "Store", view: JobView) -> bool:
    """Whether a budget stops the job. One that is for a single provider does not, as long as something of the job waits
    for another provider or runs there."""
    if not view.held_by_budget:
        return False
    budget = await store.budgets.of_job(view.id, view.owner)
    if budget is None or not budget.handler:
        return True
    if view.processing or (await store.job_views.under_way(view.id)).sending:
        return False
    endpoints = dict(await store.providers.endpoints(open_only=False))
    return all(budget.covers(view.owner, handler) for handler in await _waiting_handlers(store, view, endpoints))


async def _waiting_handlers(store: "Store", view: JobView, endpoints: Collection[str]) -> list[str]:
    """The handlers of the items that wait; a run has one for each of its providers."""
    others = [view.fallback, *(endpoints if view.handler in endpoints else ())]
    candidates = list(dict.fromkeys((view.handler, *(name for name in others if name is not None))))
    return await store.job_views.waiting_handlers(view.id, candidates)


def show_due_time(view: ItemDetail) -> ItemDetail:
    """The due time to show: a parked item of a paused job has none."""
    return view if view.due_at is None or view.due_at < NEVER_MS else replace(view, due_at=None)


def provider_of(handler: str, workers: list[WorkerView]) -> str:
    """The provider behind a handler, as its workers report it; without workers, the handler's name."""
    reported = (worker.providers[handler] for worker in workers if handler in worker.providers)
    return next(reported, handler)


def breaker_of(holds: HeldWork, handler: str, workers: list[WorkerView], shows_reason: bool) -> Breaker | None:
    found = holds.providers.get(provider_of(handler, workers))
    return found if found is None or shows_reason else hide_reason(found)


async def _pace_of(store: "Store", handler: str, workers: list[WorkerView], is_request: bool) -> Pace | None:
    """The pace of a request is that of its lane, or the one that all keys of its service share."""
    if is_request:
        return await store.providers.pace(handler, provider_of(handler, workers).partition("/")[0])
    name = pace_name_of(handler)
    return await store.providers.pace(name, name)


def _standing(view: ItemDetail, attempts: list[AttemptView], **around: Any) -> Standing:
    """The facts that decide whether an item runs."""
    own = {field.name: getattr(view, field.name) for field in fields(Standing) if field.name in view.__slots__}
    return Standing(**own, last_message=attempts[-1].message if attempts else None, **around)


def is_no_try(attempt: AttemptView, before: AttemptView | None) -> bool:
    """Whether the attempt is not a call: a time limit or the end of its job ended the item while it waited. Such an
    attempt has the number and the start of the last call."""
    if attempt.outcome == AttemptOutcome.SUCCEEDED:  # a late result that was accepted
        return False
    return attempt.number == 0 or (before is not None and attempt.started_at == before.started_at)


def timeline(view: ItemDetail, attempts: list[AttemptView], events: list[EventView]) -> list[Moment]:
    """The item's submission, tries and rare acts in the order of time."""
    moments = [Moment(view.created_at, "submitted", None)]
    for attempt, before in zip(attempts, [None, *attempts], strict=False):
        status = None if attempt.provider_status is None else f"provider status {attempt.provider_status}"
        took = f"{(attempt.ended_at - attempt.started_at) / 1000:.3f} s"
        detail = ", ".join(part for part in (took, status, attempt.error_code, attempt.message) if part)
        # An item that time ended before its first try has an attempt without a time.
        at = attempt.ended_at or view.finished_at or view.created_at
        if view.reused_from is not None:
            where = f"the answer of item {show_item(view.reused_from)}, at no cost"
            moments.append(Moment(at, f"reused an earlier answer: {attempt.outcome}", where))
        elif is_no_try(attempt, before):
            said = ", ".join(part for part in (attempt.error_code, attempt.message) if part)
            moments.append(Moment(at, f"ended without another try: {attempt.outcome}", said))
        else:
            moments.append(Moment(at, f"call {attempt.number} ended: {attempt.outcome}", detail))
    moments += [Moment(event.at, event.act, event.detail) for event in events]
    return sorted(moments, key=lambda moment: moment.at)
