"""Budgets that several jobs share: those of an owner, of a handler, or of both, for a month, a day or in total."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from backstay.core.errors import NotFound, UsageError
from backstay.core.money import MICROS_MAX, Budget, Period
from backstay.store.databases.database import Database, writes
from backstay.store.queries import Ask, Script, one, read_row, record

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
