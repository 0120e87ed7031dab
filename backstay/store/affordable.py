"""The claim of items that the budgets of their jobs, and those they share, allow; the money is set aside with it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from backstay.core.models import Claimed
from backstay.core.money import PricedItem, fit
from backstay.store.budgets import Payer, lock_budgets, reserve_shared
from backstay.store.queries import Ask, Script

if TYPE_CHECKING:
    from backstay.store.items import Picked, Want


class MoneyGone(Exception):
    """Since it was looked at, the money of a job went to another claim. Nothing of this claim may be committed."""


def claim_affordable(want: "Want", picked: Sequence["Picked"], values: dict[str, Any]) -> Script[list[Claimed]]:
    """Claims those of the items that the budgets of their jobs, and those they share, allow."""
    if want.guarded and (fitting := (yield from _fitting(want, picked))):
        won: list[Claimed] = yield Ask("claim_fitting", {"handler": want.handler, **values}, fitting)
        if not won:
            raise MoneyGone
        return won
    return (yield from _claim_locked(want, _priced(want, picked), values))


def _fitting(want: "Want", picked: Sequence["Picked"]) -> Script[list[tuple[int, int]]]:
    """The items with their costs, if all fit under the ceilings of their jobs and no budget is shared. Else none."""
    jobs = sorted({item.job_id for item in picked})
    ceilings = yield Ask("job_ceilings", {"handler": want.handler}, [(job_id,) for job_id in jobs])
    if any(ceiling["shares"] for ceiling in ceilings):
        return []
    left = {ceiling["id"]: ceiling["left_micros"] for ceiling in ceilings if ceiling["left_micros"] is not None}
    if not left:
        return [(item.id, (want.cost_micros if item.cost_micros is None else item.cost_micros) or 0) for item in picked]
    found = fit(_priced(want, picked), left, {})
    return [] if found.short else found.items


def _priced(want: "Want", picked: Sequence["Picked"]) -> list[PricedItem]:
    return [
        PricedItem(item.id, item.job_id, want.cost_micros if item.cost_micros is None else item.cost_micros)
        for item in picked
    ]


def _claim_locked(want: "Want", candidates: Sequence[PricedItem], values: dict[str, Any]) -> Script[list[Claimed]]:
    """The same with the rows of jobs locked first, then those of budgets, as everywhere."""
    jobs = sorted({item.job_id for item in candidates})
    purses = yield Ask("purses", batch=[(job_id,) for job_id in jobs])
    left = {purse["id"]: purse["left_micros"] for purse in purses if purse["left_micros"] is not None}
    payers = {purse["id"]: Payer(purse["owner"], want.handler) for purse in purses}
    budgets = yield from lock_budgets(payers.values())
    shared = {job_id: [budget for budget in budgets if budget.covers(*payer)] for job_id, payer in payers.items()}
    found = fit(candidates, left, shared)
    items = (yield Ask("claim_picked", values, found.items)) if found.items else []
    renewals = {budget.id: budget.renewals for budget in budgets}
    marks = []
    for job_id in jobs:
        short_of = found.short.get(job_id)
        started, short = int(job_id in found.reserved), int(job_id in found.short)
        marks.append((job_id, found.reserved.get(job_id, 0), short, started, short_of, renewals.get(short_of or 0, 0)))
    yield Ask("reserve", batch=marks)
    yield from reserve_shared(budgets, found.booked)
    return items
