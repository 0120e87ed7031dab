"""The story of an item or job: its timeline, and why it waits."""

from collections.abc import Collection
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from backstay.core.breaker import Breaker, hide_reason
from backstay.core.ids import show_item
from backstay.core.models import AttemptOutcome
from backstay.core.pace import Pace, pace_name_of
from backstay.core.states import ItemState
from backstay.core.why_waiting import Reason, Standing, why_job_waits, why_not_running
from backstay.store.databases.database import Database
from backstay.store.item_views import AttemptView, ItemDetail
from backstay.store.job_views import JobView
from backstay.store.jobs import NEVER_MS
from backstay.store.providers import HeldWork
from backstay.store.queries import one, record
from backstay.store.workers import WorkerView

if TYPE_CHECKING:
    from backstay.store.store import Store


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
