"""The money set aside for a call is spent, given back, or kept because the cost is unknown.

| the outcome of the call                                | spent            | given back | kept as unknown |
|--------------------------------------------------------|------------------|------------|-----------------|
| an answer that says what it used                       | what it cost     | the rest   |                 |
| an answer that does not say                            | all of it        |            |                 |
| refused, throttled, held, never sent, never arrived    |                  | all of it  |                 |
| an error of the provider                               |                  | all of it  |                 |
| a 2xx without a valid answer                           |                  |            | all of it       |
| a time-out, a cut connection, a lost or stopped worker |                  |            | all of it       |
| still under way at the provider, or to be asked about  | it stays set aside                              |||
"""

from collections.abc import Sequence
from typing import NamedTuple

from backstay.core.failures import FailureKind
from backstay.core.models import Claimed, Settlement
from backstay.core.outcomes import CannotAsk, Failed, Interrupted, Outcome, Running, Stopped, Succeeded
from backstay.core.states import ItemState

UNDER_WAY = (ItemState.SUBMITTING, ItemState.PROCESSING)


def account(item: Claimed, outcome: Outcome, settlement: Settlement) -> Settlement:
    """The settlement with what it does to the money that was set aside for the item."""
    if settlement.state in UNDER_WAY:
        return settlement
    attempt = settlement.attempt
    spent = attempt.cost_micros if attempt is not None else None
    if spent is None and _is_answer(outcome) and attempt is not None:
        attempt = attempt._replace(cost_micros=item.reserved)
        return settlement._replace(freed=item.reserved, attempt=attempt)
    unknown = item.reserved if spent is None and _may_be_paid(outcome) else 0
    return settlement._replace(freed=item.reserved, unknown=unknown)


def _is_answer(outcome: Outcome) -> bool:
    """Whether an answer came, even one that counts as a failure because of its flaw."""
    return isinstance(outcome, Succeeded) or (isinstance(outcome, Failed) and outcome.flaw is not None)


def _may_be_paid(outcome: Outcome) -> bool:
    match outcome:
        case Failed(failure=failure):
            status = failure.provider_status
            return failure.kind is FailureKind.UNKNOWN or (status is not None and 200 <= status <= 299)
        case Interrupted() | CannotAsk() | Running():
            return True
        case Stopped(sent=sent):
            return sent
        case _:
            return False


class Fit(NamedTuple):
    items: list[tuple[int, int]]  # item, and what is set aside for it
    reserved: dict[int, int]  # by job
    short: set[int]  # jobs whose next item does not fit


def fit(picked: Sequence[tuple[int, int, int | None]], purses: dict[int, int]) -> Fit:
    """Which of the items (id, job, worst cost), in order, their jobs' ceilings allow; without a purse, all."""
    items: list[tuple[int, int]] = []
    reserved: dict[int, int] = {}
    short: set[int] = set()
    for item_id, job_id, cost in picked:
        need = cost or 0
        if job_id in short:
            continue
        if job_id in purses and (cost is None or need > purses[job_id] - reserved.get(job_id, 0)):
            short.add(job_id)
            continue
        items.append((item_id, need))
        reserved[job_id] = reserved.get(job_id, 0) + need
    return Fit(items, reserved, short)
