"""The records that pass between store, engine and handlers. Among them the possible outcomes of a call, and the way to
a fallback handler after a final failure.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from backstay.core.errors import UsageError
from backstay.core.failures import Failure, FailureKind, RetryPolicy
from backstay.core.limits import Limits, is_past_deadline
from backstay.core.states import ItemState


class Delivery(StrEnum):
    """What to do with an item whose call may or may not have reached a provider that cannot be asked."""

    AT_LEAST_ONCE = "at_least_once"  # send it again, and record the repeat
    AT_MOST_ONCE = "at_most_once"  # fail it as UNKNOWN, for a person to decide


def read_delivery(name: str) -> Delivery:
    try:
        return Delivery(name)
    except ValueError:
        raise UsageError(f"delivery must be at_least_once or at_most_once, not {name!r}") from None


class Act(StrEnum):
    """The rare acts that are shown on an item's timeline."""

    HANDED_BACK = "handed_back"  # nothing was sent
    REPEAT = "repeat"  # it is sent again, although the first call may have been processed and paid
    RESCUED = "rescued"  # its worker was lost, and the provider never had it
    FALLBACK = "fallback"  # its handler has finally failed, and its fallback handler gets it


class Claimed(NamedTuple):
    """An item as its lease holder sees it. A tuple, because the hot path makes one per item."""

    id: int
    job_id: int
    handler: str
    state: str
    fence: int
    attempt_count: int
    round: int
    rescues: int
    repeats: int
    ask_first: int  # a person retries it, and an earlier call may have been processed: look it up first
    queued_at: int
    deadline_at: int | None
    claimed_at: int
    started_at: int
    provider_task_id: str | None
    account: str | None
    stop_reason: str | None
    body: str
    reserved: int = 0  # micro-dollars set aside for the call under way
    calls: int = 0  # all calls made for it so far, also those that cost no attempt
    refused_at: int | None = None  # when its last call was refused, if it was
    order_key: int = 0
    terms: str | None = None  # those of its job, as a JSON list, from the claim that started the job


class JobTerms(NamedTuple):
    """The options that a job's owner chose at submit, which never change, and how large it is."""

    id: int
    owner: str
    ref_seed: str
    retry: str | None
    delivery: str | None
    priority: int = 0
    handler: str = ""  # the first one; an item may have moved to another
    fallback: str | None = None  # the handler for items that it finally fails
    move_at: int | None = None  # when its unfinished items go to another handler
    items_left: int = 0  # when these terms were read


class Usage(NamedTuple):
    """The consumption of a call, as far as the handler reported it."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int | None = None


class AttemptOutcome(StrEnum):
    """How one try ended. The first four end the item as well."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    RETRY = "retry"  # it failed, and the item is tried again
    INVALID = "invalid"  # its answer is invalid, and the next attempt shows it to the model
    HELD = "held"  # the provider refused the account
    UNKNOWN = "unknown"  # the provider is asked before the item is sent again
    LATE = "late"  # its result came after the item had ended


class Attempt(NamedTuple):
    """One finished try, as it is stored."""

    item_id: int
    fence: int
    number: int
    outcome: str  # an AttemptOutcome
    started_at: int
    ended_at: int
    error_code: str | None
    message: str | None
    provider_status: int | None
    result: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_micros: int | None


class AnswerKey(NamedTuple):
    """Identifies a request: 128 bits of a digest, as two numbers. The model is for people to read."""

    key_high: int
    key_low: int
    model: str


class Settlement(NamedTuple):
    """The change to a claimed item. `was` and `fence` guard it: a holder that lost its lease settles nothing."""

    id: int
    fence: int
    delay_ms: int | None = None
    provider_task_id: str | None = None
    # from here to `flaw`: items with the same values are settled by one statement
    was: str = ""
    state: ItemState = ItemState.QUEUED
    attempt_count: int = 0
    calls: int = 0
    round: int = 0
    rescues: int = 0
    repeats: int = 0
    account: str | None = None
    error_code: str | None = None
    timed_out: int = 0
    progress: int | None = None
    flaw: str | None = None  # a flaw of its result, beyond the state
    act: Act | None = None
    detail: str | None = None
    late_result: str | None = None  # a result after the deadline: kept, and a person may accept it
    handler_next: str | None = None  # the fallback handler that gets the item
    same_request: int = 0  # the fallback sends the same request elsewhere: its cost is known, its time starts again
    moves: int = 0  # it goes to the next handler of its job now, and not only when the time of this one is over
    # from here on: what `core.money.account` decides
    attempt: Attempt | None = None
    freed: int = 0  # of the money set aside: how much is freed
    unknown: int = 0  # of the freed money: how much may have been paid
    payer: str = ""  # the handler that made the call, if money changes: its budgets count it


OWNER_CHARACTERS_MAX: Final = 100
NAME_CHARACTERS_MAX: Final = 100
PAYLOAD_CHARACTERS_MAX: Final = 65_536
_NAME: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_CHARACTERS_MAX}}}")


class MissedPolicy(StrEnum):
    """What happens to firings that were missed because no process was running."""

    SKIP = "skip"  # they are dropped
    ONCE = "once"  # one firing makes up for all of them
    ALL = "all"  # each is made later


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A schedule as a person or a decorator gives it."""

    name: str
    handler: str
    cron: str
    timezone: str = "UTC"
    payload: str = "{}"  # as JSON text
    missed: MissedPolicy = MissedPolicy.ONCE

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{str(self.name)[:NAME_CHARACTERS_MAX]!r} cannot be the name of a schedule",
                hint=f"use 1 to {NAME_CHARACTERS_MAX} letters, digits, dots, dashes and underscores",
            )
        if len(self.payload) > PAYLOAD_CHARACTERS_MAX:
            size = f"the payload of schedule {self.name} has {len(self.payload):,} characters"
            raise UsageError(f"{size}; the limit is {PAYLOAD_CHARACTERS_MAX:,}")


def require_owner(owner: str) -> None:
    if not owner or not owner.isprintable() or len(owner) > OWNER_CHARACTERS_MAX:
        raise UsageError(f"an owner must have 1 to {OWNER_CHARACTERS_MAX} printable characters, not {owner[:200]!r}")


def read_missed_policy(name: str) -> MissedPolicy:
    try:
        return MissedPolicy(name)
    except ValueError:
        raise UsageError(
            f"there is no policy {name!r} for missed firings", hint=f"use one of: {', '.join(MissedPolicy)}"
        ) from None


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
    moves: bool = False  # this handler cannot do it: if it is tried again, then by the next handler of its job


@dataclass(frozen=True, slots=True)
class Skipped:
    reason: str
    usage: Usage | None = None


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
