"""Money: what becomes of the sum that is set aside for a call, and the budgets that limit it.

| the outcome of the call                                | spent            | given back | kept as unknown |
|--------------------------------------------------------|------------------|------------|-----------------|
| an answer that says what it used                       | what it cost     | the rest   |                 |
| an answer that does not say                            | all of it        |            |                 |
| refused, throttled, held, never sent, never arrived    |                  | all of it  |                 |
| an error of the provider                               |                  | all of it  |                 |
| a 2xx without a valid answer, a bug in the handler     |                  |            | all of it       |
| a time-out, a cut connection, a lost or stopped worker |                  |            | all of it       |
| still under way at the provider, or to be asked about  | it stays set aside                              |||
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple, assert_never

from backstay.core.failures import ErrorCode, FailureKind
from backstay.core.models import (
    Attempt,
    CannotAsk,
    Claimed,
    Failed,
    Interrupted,
    Outcome,
    Running,
    Settlement,
    Stopped,
    Succeeded,
)
from backstay.core.states import ItemState

MICROS_MAX: Final = 10**17  # a hundred billion dollars
UNDER_WAY = (ItemState.SUBMITTING, ItemState.PROCESSING)


def account(item: Claimed, outcome: Outcome, settlement: Settlement) -> Settlement:
    """The settlement, completed with the change of money, if any was set aside or spent for the item."""
    attempt, unknown = settlement.attempt, 0
    spent = attempt.cost_micros if attempt is not None else None
    if not (item.reserved or spent) or settlement.state in UNDER_WAY:
        return settlement
    if spent is None and _is_answer(outcome) and attempt is not None:
        attempt = Attempt(*attempt[:-1], item.reserved)  # the cost is its last field
    elif spent is None and _may_be_paid(outcome):
        unknown = item.reserved
    # By position, because every paid call comes here, and _replace takes more than twice as long.
    return Settlement(*settlement[:-4], attempt, item.reserved, unknown, item.handler)


def _is_answer(outcome: Outcome) -> bool:
    """Whether an answer came, even one that counts as a failure because of its flaw."""
    return isinstance(outcome, Succeeded) or (isinstance(outcome, Failed) and outcome.flaw is not None)


def _may_be_paid(outcome: Outcome) -> bool:
    match outcome:
        case Failed(failure=failure):
            status = failure.provider_status
            if failure.kind is FailureKind.UNKNOWN or failure.code is ErrorCode.UNKNOWN:
                return True  # a handler that broke may have made its call before
            return status is not None and 200 <= status <= 299
        case Interrupted() | CannotAsk() | Running():
            return True
        case Stopped(sent=sent):
            return sent
        case _:
            return False


class Period(StrEnum):
    """The period of a budget. Months and days are those of UTC."""

    MONTH = "month"
    DAY = "day"
    TOTAL = "total"  # one period without an end


@dataclass(frozen=True, slots=True)
class Budget:
    """A ceiling that several jobs share: those of an owner, of a handler, or of both. Empty: all of them. A handler
    that begins with @ stands for all handlers that send requests to one host.

    `used_micros` is what was spent or may have been spent since `since_at`, the start of the period; `reserved_micros`
    is set aside for calls under way. `renewals` counts how often money came back: a job that did not fit is looked at
    again after that.
    """

    id: int
    owner: str
    handler: str
    period: Period
    limit_micros: int
    used_micros: int = 0
    reserved_micros: int = 0
    since_at: int = 0
    ends_at: int | None = None
    renewals: int = 0

    def at(self, now_ms: int) -> "Budget":
        """The budget at this time. In a new period nothing is used yet; money set aside for calls under way still
        counts."""
        if self.ends_at is not None and now_ms < self.ends_at:
            return self
        since, ends = period_of(self.period, now_ms)
        if since == self.since_at:
            return self
        return replace(self, used_micros=0, since_at=since, ends_at=ends, renewals=self.renewals + 1)

    @property
    def left_micros(self) -> int:
        return self.limit_micros - self.used_micros - self.reserved_micros

    def covers(self, owner: str, handler: str) -> bool:
        to_host = self.handler.startswith("@") and f"{self.handler}#" in handler
        return self.owner in ("", owner) and (to_host or self.handler in ("", handler))

    def book(self, reserved: int, used: int, began_at: int | None = None) -> "Budget":
        """The budget after money was set aside or given back (`reserved`), and spent or found unspent (`used`). Money
        that is found unspent comes back only if its job began in this period (`began_at`)."""
        before = self.left_micros
        if self.period is not Period.TOTAL and (began_at is None or began_at < self.since_at):
            used = max(used, 0)
        after = replace(
            self,
            reserved_micros=max(self.reserved_micros + reserved, 0),
            used_micros=min(max(self.used_micros + used, 0), MICROS_MAX),
        )
        return replace(after, renewals=self.renewals + 1) if after.left_micros > before else after


def describe_budget(budget: Budget) -> str:
    """For people: the budget of ada for handler convert, per month."""
    whose = f" of {budget.owner}" if budget.owner else " of all owners"
    what = f" for handler {budget.handler}" if budget.handler else ""
    if budget.handler.startswith("@"):
        what = f" for requests to {budget.handler[1:]}"
    span = "in total" if budget.period is Period.TOTAL else f"per {budget.period}"
    return f"the budget{whose}{what}, {span}"


def period_of(period: Period, now_ms: int) -> tuple[int, int | None]:
    """When the period that this moment belongs to began, and when it ends."""
    match period:
        case Period.TOTAL:
            return 0, None
        case Period.DAY:
            day = 86_400_000
            return now_ms // day * day, now_ms // day * day + day
        case Period.MONTH:
            now = datetime.fromtimestamp(now_ms / 1000, UTC)
            start = datetime(now.year, now.month, 1, tzinfo=UTC)
            end = datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
            return int(start.timestamp()) * 1000, int(end.timestamp()) * 1000
        case _:
            assert_never(period)


class PricedItem(NamedTuple):
    """An item that may be claimed, and the most that its call may cost; None: unknown."""

    item_id: int
    job_id: int
    cost_micros: int | None


class Fit(NamedTuple):
    items: list[tuple[int, int]]  # item, and what is set aside for it
    reserved: dict[int, int]  # by job
    short: dict[int, int | None]  # jobs whose next item does not fit, and the shared budget that is too small
    booked: dict[int, int]  # by shared budget: what is set aside


def fit(picked: Sequence[PricedItem], purses: Mapping[int, int], shared: Mapping[int, Sequence[Budget]]) -> Fit:
    """The items, in order, that their jobs' own budgets (`purses`) and the budgets shared with other jobs allow.

    A job without a purse has no budget of its own; `shared` has the shared budgets by job.
    """
    found = Fit([], {}, {}, {})
    for item_id, job_id, cost in picked:
        need = cost or 0
        if job_id in found.short:
            continue
        if job_id in purses and (cost is None or need > purses[job_id] - found.reserved.get(job_id, 0)):
            found.short[job_id] = None
            continue
        budgets = shared.get(job_id, ())
        full = (one.id for one in budgets if cost is None or need > one.left_micros - found.booked.get(one.id, 0))
        if (too_small := next(full, None)) is not None:
            found.short[job_id] = too_small
            continue
        found.items.append((item_id, need))
        found.reserved[job_id] = found.reserved.get(job_id, 0) + need
        for one in budgets:
            found.booked[one.id] = found.booked.get(one.id, 0) + need
    return found
