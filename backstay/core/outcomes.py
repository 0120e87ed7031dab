"""The possible outcomes of a call, and of a question about one; and the way to a fallback handler after a final
failure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from backstay.core.failures import Failure, FailureKind
from backstay.core.limits import Limits, is_past_deadline
from backstay.core.models import Act, AttemptOutcome, Claimed, Delivery, Settlement, Usage
from backstay.core.retry import RetryPolicy
from backstay.core.states import ItemState


class Flaw(StrEnum):
    """What is wrong with the result of an item, beyond its state."""

    TRUNCATED = "truncated"  # the answer is cut off
    REFUSED = "refused"  # the model refused to answer
    FILTERED = "filtered"  # a filter of the provider removed the answer
    UNFINISHED = "unfinished"  # the provider paused a long turn, which can be continued
    UNKNOWN = "unknown"  # unknown whether it was processed and paid
    INVALID = "invalid"  # the answer does not fit the schema, or a check refused it
    LATE = "late"  # its result came too late and is kept; a person may accept it


# A job counts these; --fail-on makes them failures.
ANSWER_FLAWS = (Flaw.TRUNCATED, Flaw.REFUSED, Flaw.FILTERED, Flaw.UNFINISHED)
ANSWERED = (*ANSWER_FLAWS, Flaw.INVALID)  # an answer came, and was paid for


class Succeeded(NamedTuple):
    """A tuple, because the hot path makes one per item."""

    result: str
    usage: Usage | None = None
    provider_status: int | None = None
    flaw: Flaw | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    failure: Failure
    usage: Usage | None = None
    task_ended: bool = False  # the provider's own task is over: the next try is a new request
    reply: str | None = None  # the provider's answer, for people to read
    probe: bool = False  # it was sent to test whether a failing provider works again, so it costs no attempt
    flaw: Flaw | None = None  # an answer came, and this is wrong with it
    asks_max: int = 0  # of an invalid answer: how often the model is asked for a better one


@dataclass(frozen=True, slots=True)
class Skipped:
    reason: str


@dataclass(frozen=True, slots=True)
class Submitted:
    """The provider took the item as a task and will be polled."""

    provider_task_id: str
    account: str | None = None
    after_ms: int = 0  # it need not be polled sooner than that


@dataclass(frozen=True, slots=True)
class Running:
    """A poll found the task still under way."""

    progress: int | None = None
    after_ms: int = 0  # it need not be polled sooner than that


@dataclass(frozen=True, slots=True)
class HandedBack:
    """Nothing was sent; the item goes back to the queue unchanged."""

    reason: str
    apart: bool = False  # it comes back at another time than the items that it was claimed with


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A shutdown cut the run off; a request may have been sent."""


@dataclass(frozen=True, slots=True)
class NeverArrived:
    """The provider was asked about a lost item, and it never received it."""


@dataclass(frozen=True, slots=True)
class CannotAsk:
    """A lost item whose provider cannot be asked about it."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The item's job was cancelled."""

    sent: bool = False  # a call was under way and cut off: it may have been processed and paid


Outcome = (
    Succeeded | Failed | Skipped | Submitted | Running | HandedBack | Interrupted | NeverArrived | CannotAsk | Stopped
)


@dataclass(frozen=True, slots=True)
class Terms:
    """The rules for settling an item: those of its handler, overridden by those of its job."""

    policy: RetryPolicy
    delivery: Delivery
    limits: Limits
    askable: bool
    fallback: str | None = None  # the handler that gets the item instead of a final failure
    # How many handlers in a row, this one included, may try the same request at their providers: each has a time limit
    # of its own and an equal share of the time until the deadline. 0: time moves no item.
    time_shares: int = 0

    def share_ends_at(self, item: Claimed) -> int | None:
        """When the item goes to the fallback because of its deadline; None: it does not."""
        if self.fallback is None or self.time_shares < 2 or item.deadline_at is None:
            return None
        return item.queued_at + (item.deadline_at - item.queued_at) // self.time_shares


def fall_back(item: Claimed, outcome: Outcome, terms: Terms, settlement: Settlement, now_ms: int) -> Settlement:
    """The settlement; a final failure is replaced by a return to the queue, for the fallback handler.

    Its attempts are counted from zero again, and it gets a new reference, because another provider may receive it. Its
    payload and its deadline stay the same.
    """
    if terms.fallback is None or not _is_final_failure(item, outcome, terms, settlement, now_ms):
        return settlement
    repeat = _may_be_done(outcome)
    may_be_paid = "the last call may have been processed and paid; " if repeat else ""
    attempt = settlement.attempt
    invalid = isinstance(outcome, Failed) and outcome.flaw is Flaw.INVALID
    # The next handler starts with its own first question, so it must not find this answer as an invalid one.
    attempt_outcome = AttemptOutcome.FAILED if invalid else AttemptOutcome.RETRY
    return settlement._replace(
        state=ItemState.QUEUED,
        handler_next=terms.fallback,
        same_request=int(terms.time_shares > 0),
        timed_out=0,
        delay_ms=None,
        provider_task_id=None,
        account=None,
        attempt_count=0,
        rescues=0,
        round=item.round + 1,
        repeats=item.repeats + repeat,
        flaw=outcome.flaw if isinstance(outcome, Failed) else None,
        attempt=None if attempt is None else attempt._replace(outcome=attempt_outcome),
        act=Act.REPEAT if repeat else Act.FALLBACK,
        detail=f"{may_be_paid}handler {item.handler} failed, and {terms.fallback} tries next",
    )


def _is_final_failure(item: Claimed, outcome: Outcome, terms: Terms, settlement: Settlement, now_ms: int) -> bool:
    """Whether the settlement is a final failure. Not if a time limit ended the item, unless only its time at this
    provider is over. Not if its job was cancelled, if the item may have killed its workers, or if it may have been paid
    and must not be sent twice."""
    if settlement.state is not ItemState.FAILED:
        return False
    if settlement.timed_out and (terms.time_shares == 0 or is_past_deadline(item.deadline_at, now_ms + 1)):
        return False
    if isinstance(outcome, Failed | Running):
        return not _may_be_done(outcome) or terms.delivery is not Delivery.AT_MOST_ONCE
    return isinstance(outcome, NeverArrived)


def _may_be_done(outcome: Outcome) -> bool:
    """Whether the call may have been processed and paid, or may yet be."""
    return isinstance(outcome, Running) or (isinstance(outcome, Failed) and outcome.failure.kind is FailureKind.UNKNOWN)
