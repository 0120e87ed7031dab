"""Safety: the worst case that the live settings allow in an hour, and the profiles side by side."""

from dataclasses import fields
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from backstay.core.display import show_money, show_seconds
from backstay.core.limits import PROFILES, Bounds, Limits, bounds
from backstay.core.money import Budget
from backstay.server.auth import operates
from backstay.server.pages import layout
from backstay.server.pages.page_request import Visit, visit_to_read

router = APIRouter(include_in_schema=False)


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
