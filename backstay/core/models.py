"""The records that pass between store, engine and handlers."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from backstay.core.errors import UsageError
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
    """The options that a job's owner chose at submit; they never change."""

    id: int
    owner: str
    ref_seed: str
    retry: str | None
    delivery: str | None
    priority: int = 0
    handler: str = ""  # the first one; an item may have moved to another
    fallback: str | None = None  # the handler for items that it finally fails
    move_at: int | None = None  # when its unfinished items go to another handler


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
