"""The pages for operators.

Providers: breaker and history, pace, latency, errors, spend, tasks by account; hold and release for operators.

Safety: the worst case that the live settings allow in an hour, and the profiles side by side.

Schedules: the next and the last firing of each, and its error; pause, resume and run now.

Workers: which are alive, their handlers and leases. They work for all owners, so the page is for admins.
"""

from collections import Counter
from dataclasses import fields
from typing import Final, NamedTuple

from fastapi import APIRouter, Request, Response

from backstay.app import run_now
from backstay.clock.cron import show_local
from backstay.core.breaker import Breaker, BreakerState
from backstay.core.display import show_money, show_seconds
from backstay.core.errors import UsageError
from backstay.core.failures import one_line
from backstay.core.limits import PROFILES, Bounds, Limits, bounds
from backstay.core.models import NAME_CHARACTERS_MAX
from backstay.core.money import Budget
from backstay.core.pace import Pace
from backstay.server.api.operations import known_breakers, known_provider
from backstay.server.auth import operates, require_operator
from backstay.server.pages import layout
from backstay.server.pages.figures import most_within
from backstay.server.pages.layout import redirect_with_notice
from backstay.server.pages.page_request import Visit, visit_to_act, visit_to_read, whole_number
from backstay.server.problems import Problem
from backstay.store.item_views import EventView, ProviderTasks, provider_of
from backstay.store.keys import Role
from backstay.store.measures import MINUTE_MS, Measure

router = APIRouter(include_in_schema=False)

HISTORY: Final = 10
DAY_MINUTES: Final = 1_440
HOLD_MINUTES_MAX: Final = 366 * 1_440
PROVIDERS_SHOWN: Final = 50


class Provider(NamedTuple):
    breaker: Breaker
    handlers: list[str]
    history: list[EventView]
    pace: Pace | None
    sending: int  # calls under way
    day: Measure  # of this owner, in the last day
    tasks: list[tuple[str, ProviderTasks]]  # handler, and its tasks at the provider

    @property
    def most_within(self) -> str:
        return most_within(self.day)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to show about it."""
        quiet = self.breaker.state is BreakerState.CLOSED and self.pace is None
        return quiet and not (self.sending or self.day.calls or self.tasks or self.history)

    @property
    def place(self) -> tuple[bool, int, str]:
        """The order of the list: providers that are not called come first, then the busiest."""
        return self.breaker.state is BreakerState.CLOSED, -self.day.calls, self.breaker.provider


@router.get("/providers")
async def list_providers(request: Request) -> Response:
    visit = await visit_to_read(request)
    may_hold = operates(visit.principal, visit.service)
    return await layout.show_page(visit, "providers.html", providers=await _providers(visit), may_hold=may_hold)


async def _providers(visit: Visit) -> list[Provider]:
    store = visit.service.store
    breakers, now = await known_breakers(visit.service, visit.principal)
    workers, paces = await store.workers.page(), await store.providers.paces()
    leases = await store.workers.leases()
    day = await store.measures.by_provider(visit.owner, now // MINUTE_MS - DAY_MINUTES)
    handlers = {name for worker in workers for name in worker.handlers}
    handlers |= {handler.name for handler in visit.service.backstay.handlers}
    behind = {name: provider_of(name, workers) for name in sorted(handlers)}
    behind |= {handler.name: handler.provider for handler in visit.service.backstay.handlers}
    found = []
    closed_last = sorted(breakers, key=lambda name: (breakers[name].state is BreakerState.CLOSED, name))
    for name in closed_last[:PROVIDERS_SHOWN]:
        own = [handler for handler, provider in behind.items() if provider == name]
        measured = day.get(name, Measure())
        tasks = [(one, task) for one in own for task in await store.item_views.tasks(visit.owner, one)]
        history = await breaker_events(visit, name, HISTORY)
        sending = sum(lease.items for lease in leases if lease.handler in own)
        pace = paces.get(name) or paces.get(name.partition("/")[0])  # keys of one service keep to one pace
        found.append(Provider(breakers[name], own, history, pace, sending, measured, tasks))
    return sorted(found, key=lambda one: one.place)


async def breaker_events(visit: Visit, provider: str, n: int) -> list[EventView]:
    """The last changes of a provider's breaker; why it changed is for operators."""
    events = await visit.service.store.events.newest(f"provider:{provider}", n)
    if operates(visit.principal, visit.service):
        return events
    return [event._replace(detail=None) for event in events]


@router.post("/providers/hold")
async def hold(request: Request) -> Response:
    visit = await _visit_as_operator(request)
    name, given = visit.form.get("provider", ""), visit.form.get("minutes", "").strip()
    await known_provider(visit.service, visit.principal, name)
    minutes = whole_number(given, HOLD_MINUTES_MAX)
    if given and not minutes:
        raise Problem(
            422, "the time must be a whole number of minutes", hint="leave the field empty to hold until released"
        )
    reason = one_line(visit.form.get("reason", "")) or f"held by {visit.name}"
    await visit.service.store.providers.hold(name, reason, minutes * 60.0 if minutes else None)
    return redirect_with_notice(visit, "/providers", f"Provider {name} is on hold: its items wait and lose no attempt.")


@router.post("/providers/release")
async def release(request: Request) -> Response:
    visit = await _visit_as_operator(request)
    name = visit.form.get("provider", "")
    await known_provider(visit.service, visit.principal, name)
    await visit.service.store.providers.release(name)
    await visit.service.store.notify()
    visit.service.wake()
    return redirect_with_notice(visit, "/providers", f"Provider {name} is released: its items run again.")


async def _visit_as_operator(request: Request) -> Visit:
    """A visitor who may act on providers: all owners share them."""
    visit = await visit_to_act(request, Role.ADMIN)
    require_operator(visit.principal, visit.service)
    return visit


class SafetyRow(NamedTuple):
    name: str
    now: str
    profiles: list[str]
    differs: bool  # between the profiles


@router.get("/safety")
async def show_safety(request: Request) -> Response:
    visit = await visit_to_read(request)
    made = visit.service.backstay
    return await layout.show_page(
        visit,
        "safety.html",
        profile=made.settings.profile,
        limits=made.limits,
        worst=bounds(made.limits),
        worst_of=[(name, bounds(limits)) for name, limits in PROFILES.items()],
        rows=[_row(field.name, made.limits) for field in fields(Limits)],
        bound_names=[field.name for field in fields(Bounds)],
        profiles=list(PROFILES),
        budgets=await _budgets(visit),
    )


class BudgetRow(NamedTuple):
    budget: Budget
    is_private: bool  # its use is not shown: it includes what other owners spend


async def _budgets(visit: Visit) -> list[BudgetRow]:
    """As they stand now: for an operator all of them, for others those that cover their jobs."""
    store, is_operator = visit.service.store, operates(visit.principal, visit.service)
    now = (await store.providers.holds()).now
    found = await store.budgets.all(None if is_operator else visit.owner)
    return [BudgetRow(budget.at(now), not is_operator and budget.owner == "") for budget in found]


def _row(name: str, limits: Limits) -> SafetyRow:
    profiles = [_show_limit(name, getattr(one, name)) for one in PROFILES.values()]
    return SafetyRow(_words(name), _show_limit(name, getattr(limits, name)), profiles, len(set(profiles)) > 1)


def _words(name: str) -> str:
    """The name of a limit for people, without its unit, which the value shows."""
    bare = name.removesuffix("_seconds").removesuffix("_micros")
    most = ", at most" if bare.endswith("_max") else ""
    return bare.removesuffix("_max").replace("_", " ").capitalize().replace("Llm", "LLM") + most


def _show_limit(name: str, value: float | None) -> str:
    if value is None:
        return "not set"
    if name.endswith("_seconds"):
        return show_seconds(value) if value == int(value) else f"{value:g} s"
    return show_money(int(value)) if name.endswith("_micros") else f"{value:,g}" if value < 1e6 else f"{value:,.0f}"


SHOWN: Final = 100
PLACE: Final = "/schedules"


@router.get("/schedules")
async def list_schedules(request: Request) -> Response:
    visit = await visit_to_read(request)
    after = visit.query.get("after", "")[:NAME_CHARACTERS_MAX]
    found = await visit.service.store.schedules.page(visit.owner, after, SHOWN + 1)
    following = layout.query(PLACE, {"after": found[SHOWN - 1].name}) if len(found) > SHOWN else None
    return await layout.show_page(
        visit,
        "schedules.html",
        schedules=found[:SHOWN],
        first=PLACE if after else None,
        following=following,
        local=_local,
    )


def _local(at: int | None, timezone: str) -> str:
    """A time in the time zone of the schedule; empty if this machine does not know the zone."""
    try:
        return "" if at is None else show_local(at, timezone)
    except UsageError:
        return ""


@router.post("/schedules/{schedule}/pause")
async def pause(request: Request, schedule: str) -> Response:
    visit = await visit_to_act(request)
    await visit.service.store.schedules.pause(schedule, visit.owner)
    return redirect_with_notice(
        visit, PLACE, f"Schedule {schedule} is paused. It skips its firings until it is resumed."
    )


@router.post("/schedules/{schedule}/resume")
async def resume(request: Request, schedule: str) -> Response:
    visit = await visit_to_act(request)
    try:
        await visit.service.store.schedules.resume(schedule, visit.owner)
    except UsageError as refused:
        return redirect_with_notice(visit, PLACE, f"Not resumed: {refused.message}.", "refused")
    return redirect_with_notice(visit, PLACE, f"Schedule {schedule} is resumed.")


@router.post("/schedules/{schedule}/run")
async def run(request: Request, schedule: str) -> Response:
    visit = await visit_to_act(request)
    service = visit.service
    try:
        job = await run_now(service.client(visit.owner), service.backstay.handlers, schedule, service.wake)
    except UsageError as refused:
        return redirect_with_notice(visit, PLACE, f"Not run: {refused.message}.", "refused")
    return redirect_with_notice(visit, PLACE, f"Schedule {schedule} runs now as job {job.id}.")


@router.get("/workers")
async def list_workers(request: Request) -> Response:
    visit = await visit_to_read(request, Role.ADMIN)
    store = visit.service.store
    lease_ms = visit.service.backstay.limits.lease_ms
    held: Counter[str] = Counter()
    for lease in await store.workers.leases():
        held[lease.worker] += lease.items
    workers = [(worker, _state(worker.alive(lease_ms), worker.stopped_at)) for worker in await store.workers.page()]
    known = {worker.id for worker, _ in workers}
    lost = sum(items for worker, items in held.items() if worker not in known)
    return await layout.show_page(visit, "workers.html", workers=workers, held=held, lost=lost, lease_ms=lease_ms)


def _state(alive: bool, stopped_at: int | None) -> str:
    return "alive" if alive else "lost" if stopped_at is None else "stopped"
