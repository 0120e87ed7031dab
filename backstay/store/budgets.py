"""Budgets that several jobs share: those of an owner, of a handler, or of both, for a month, a day or in total.

`claim_affordable` claims what the budgets of jobs, and those that they share, allow, and reserves the money with it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from backstay.core.errors import NotFound, UsageError
from backstay.core.models import Claimed
from backstay.core.money import MICROS_MAX, Budget, Period, PricedItem, fit
from backstay.store.databases.database import Database, writes
from backstay.store.queries import Ask, Script, one, read_row, record

if TYPE_CHECKING:
    from backstay.store.items import Picked, Want


record(Budget)


class Payer(NamedTuple):
    """Whose money a call spends. The handler is that of the item: the items of a job may have several."""

    owner: str
    handler: str


class Budgets:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def all(self, owner: str | None = None) -> list[Budget]:
        """All budgets, or those that cover jobs of one owner."""
        found: list[Budget] = await self._db.read(one("budgets"))
        return [budget for budget in found if owner is None or budget.owner in ("", owner)]

    async def of_job(self, job_id: int, owner: str) -> Budget | None:
        """The shared budget that keeps a job's next item from being sent."""
        rows: list[Budget] = await self._db.read(one("budget_of_job", {"job_id": job_id, "owner": owner}))
        return rows[0] if rows else None

    @writes
    def set(self, owner: str, handler: str, period: Period, limit_micros: int) -> Script[Budget]:
        """Sets or changes a ceiling. Calls under way that it covers count from the start."""
        if not 0 <= limit_micros <= MICROS_MAX:
            raise UsageError(f"a budget must be from 0 to {MICROS_MAX // 1_000_000:,} dollars")
        key = {"owner": owner, "handler": handler, "period": period}
        yield Ask("wait_for_payments")
        known = yield Ask("lock_budget", key)
        rows: list[Budget] = yield Ask("set_budget", {**key, "limit_micros": limit_micros})
        made = rows[0]
        if not known:
            reserved = yield from _under_way(made)
            [locked] = yield Ask("lock_budget", key)
            made = read_row(Budget, locked).at(locked["now"]).book(reserved, 0)
            yield from _save([made])
        return made

    @writes
    def remove(self, owner: str, handler: str, period: Period) -> Script[None]:
        removed = yield Ask("remove_budget", {"owner": owner, "handler": handler, "period": period})
        if not removed:
            raise NotFound("there is no such budget", hint="`backstay budget list` shows all budgets")


def _under_way(budget: Budget) -> Script[int]:
    """The money that is set aside now for calls that a new budget covers."""
    if not budget.handler:
        [found] = yield Ask("under_way_of", {"owner": budget.owner})
        return int(found["reserved"])
    known = yield Ask("all_endpoints")
    handlers = {budget.handler, *(row["name"] for row in known if budget.covers(budget.owner, row["name"]))}
    reserved = 0
    for handler in sorted(handlers):
        [found] = yield Ask("under_way_at", {"owner": budget.owner, "handler": handler})
        reserved += found["reserved"]
    return reserved


def lock_budgets(payers: Iterable[Payer]) -> Script[list[Budget]]:
    """The budgets that these payers share, at this time. The rows are locked until the transaction ends."""
    wanted = sorted(set(payers))
    rows = (yield Ask("lock_budgets", batch=wanted)) if wanted else []
    return [read_row(Budget, row).at(row["now"]) for row in rows]


def book(changes: Iterable[tuple[Payer, tuple[int, int]]], began_at: int | None = None) -> Script[None]:
    """Books changes for payers: money set aside (below 0: given back), and money spent or perhaps spent (below 0: found
    unspent, by a job that began at `began_at`)."""
    moved = [(payer, change) for payer, change in changes if any(change)]
    budgets = yield from lock_budgets(payer for payer, _ in moved)
    after = []
    for budget in budgets:
        covered = [change for payer, change in moved if budget.covers(*payer)]
        reserved, used = (sum(parts) for parts in zip(*covered, strict=True)) if covered else (0, 0)
        after.append(budget.book(reserved, used, began_at))
    yield from _save(after)


def reserve_shared(budgets: Sequence[Budget], booked: Mapping[int, int]) -> Script[None]:
    """Sets money aside in budgets that are locked; a period that has begun meanwhile is stored as well."""
    yield from _save([budget.book(booked.get(budget.id, 0), 0) for budget in budgets])


def _save(budgets: Sequence[Budget]) -> Script[None]:
    rows = [(b.id, b.used_micros, b.reserved_micros, b.since_at, b.ends_at, b.renewals) for b in budgets]
    if rows:
        yield Ask("save_budgets", batch=rows)


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
    yield Ask("reserve", {"handler": want.handler}, marks)
    yield from reserve_shared(budgets, found.booked)
    return items
