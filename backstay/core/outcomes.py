"""The outcomes of a try at an item."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from backstay.core.failures import Failure
from backstay.core.limits import Limits
from backstay.core.models import Delivery, Usage
from backstay.core.retry import RetryPolicy


class Flaw(StrEnum):
    """What is wrong with the end of an item, beyond its state."""

    TRUNCATED = "truncated"  # the answer is cut off
    REFUSED = "refused"  # the model refused to answer
    FILTERED = "filtered"  # a filter of the provider removed the answer
    UNKNOWN = "unknown"  # unknown whether it was processed and paid
    LATE = "late"  # its result came too late and is kept; a person may accept it


ANSWER_FLAWS = (Flaw.TRUNCATED, Flaw.REFUSED, Flaw.FILTERED)  # a job counts these; --fail-on makes them failures


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
    task_ended: bool = False  # the provider's own task is over: the next try is a new request to it
    reply: str | None = None  # what the provider answered, for a person to see
    probe: bool = False  # it was sent to test whether a failing provider works again, so it costs no attempt
    flaw: Flaw | None = None  # an answer came, and this is wrong with it


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


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A shutdown cut the run off; it is unknown what was sent."""


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
    """The rules an item is settled by: its handler's, overridden by its job's."""

    policy: RetryPolicy
    delivery: Delivery
    limits: Limits
    askable: bool
    fallback: str | None = None  # the handler that gets the item instead of a final failure
