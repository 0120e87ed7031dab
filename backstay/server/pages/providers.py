"""Providers: breaker and history, pace, latency, errors, spend, tasks by account; hold and release for operators."""

from typing import Final, NamedTuple

from fastapi import APIRouter, Request, Response

from backstay.core.breaker import Breaker, BreakerState
from backstay.core.failures import one_line
from backstay.core.pace import Pace
from backstay.server.api.providers import known_breakers, known_provider
from backstay.server.auth import operates, require_operator
from backstay.server.pages import layout
from backstay.server.pages.charts import most_within
from backstay.server.pages.layout import redirect_with_notice
from backstay.server.pages.page_request import Visit, visit_to_act, visit_to_read, whole_number
from backstay.server.problems import Problem
from backstay.store.item_views import ProviderTasks
from backstay.store.keys import Role
from backstay.store.measures import MINUTE_MS, Measure
from backstay.store.story import EventView, provider_of

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
