"""The interfaces between the engine and users' code: a handler with its rules, and the context of one call."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, overload

from backstay.clock import Clock
from backstay.core.breaker import DEFAULT_POLICY, BreakerPolicy
from backstay.core.errors import Throttled
from backstay.core.ids import show_item
from backstay.core.models import Claimed, Delivery, JobTerms, Usage
from backstay.core.outcomes import CannotAsk, Failed, NeverArrived, Submitted, Succeeded
from backstay.core.pace import Answers
from backstay.core.retry import NAMED, RetryPolicy

ASKS_AT_ONCE: Final = 25  # lost requests, unless the handler says otherwise
COUNT_MAX: Final = 10**12  # tokens, or micro-dollars: a million dollars for one run


def client_ref(job: JobTerms, item: Claimed) -> str:
    """Identifies a request at the provider. It is made of the content, never of the try, so a repeat has the same
    reference."""
    text = f"{job.owner}\0{job.ref_seed}\0{item.id}\0{item.round}\0{item.body}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


class Surroundings(NamedTuple):
    """What the contexts of one worker share: its clock, its send guard, and where the log lines of handlers go."""

    clock: Clock
    guard_seconds: float
    progress: Callable[[int, int, int], None]
    log: Callable[[int, str], None]


class Context:
    """Given to a handler that asks for it with a parameter named `context`."""

    __slots__ = (
        "_around",
        "_item",
        "_job",
        "_started",
        "cancelled",
        "outside_traceparent",
        "seconds_given",
        "stopped",
        "traceparent",
        "used",
    )

    def __init__(self, item: Claimed, job: JobTerms, around: Surroundings, started: float, seconds: float) -> None:
        self._item = item
        self._job = job
        self._around = around
        self._started = started
        self.seconds_given = seconds  # how long this run may take in all
        self.cancelled = False
        self.stopped = False  # cancelled together with its whole job
        self.used: Usage | None = None
        self.traceparent: str | None = (
            None  # of this call, while work is traced: for code elsewhere that does a part of it
        )
        self.outside_traceparent: str | None = None  # the same, if it is sent to providers

    @property
    def item_id(self) -> str:
        return show_item(self._item.id)

    @property
    def attempt(self) -> int:
        """Which try this is, from 1."""
        return self._item.attempt_count + 1

    @property
    def fence(self) -> int:
        """The number of this claim; every later claim of the item has a higher one."""
        return self._item.fence

    @property
    def owner(self) -> str:
        """The owner of the item."""
        return self._job.owner

    @property
    def job_seed(self) -> str:
        """A random text, different for every job."""
        return self._job.ref_seed

    @property
    def priority(self) -> int:
        """The priority of its job, from 0 to 9."""
        return self._job.priority

    @property
    def deadline_at(self) -> int | None:
        """When the item fails if it is not done by then, in milliseconds since 1970."""
        return self._item.deadline_at

    @property
    def idempotency_key(self) -> str:
        """The same for every try of this item: send it to the provider, so that it can recognise a repeat."""
        return client_ref(self._job, self._item)

    @property
    def seconds_left(self) -> float:
        """The time left until this run is cut off by its timeout or the item's deadline."""
        return max(self._started + self.seconds_given - self._around.clock.monotonic(), 0.0)

    @property
    def too_late_to_send(self) -> bool:
        return self._around.clock.monotonic() > self._started + self._around.guard_seconds

    def guard(self) -> None:
        """Call it right before a request is sent: raises if the claim is too old to send anything."""
        if self.too_late_to_send:
            raise Throttled("the claim is too old to send; the item will be claimed again", retry_after_seconds=0)

    def progress(self, percent: int) -> None:
        """Reports the progress of this item, 0 to 100; stored and shown while it runs."""
        self._around.progress(self._item.id, self._item.fence, min(max(int(percent), 0), 100))

    def usage(self, input_tokens: int = 0, output_tokens: int = 0, cost_micros: int | None = None) -> None:
        """Reports what this run consumed; stored with the attempt."""
        cost = None if cost_micros is None else _count(cost_micros)
        self.used = Usage(_count(input_tokens) or 0, _count(output_tokens) or 0, cost)

    def log(self, text: str) -> None:
        """Writes a line to the item's own log, if one is kept, and to the worker's log."""
        self._around.log(self._item.id, text)


def _count(number: object) -> int | None:
    """A count that a database can add up. A wrong count must not lose the result that was paid for."""
    try:
        count = int(number)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
    return count if 0 <= count <= COUNT_MAX else None


@dataclass(frozen=True, slots=True)
class Rules:
    """How the items of a handler are treated; the options of a job win over it."""

    retry: RetryPolicy = field(default_factory=lambda: NAMED["queue"])
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    timeout_seconds: float | None = None
    deadline_seconds: float | None = None
    item_timeout_seconds: float | None = None  # the age at which an item fails, if it differs from the general limit
    concurrency: int | None = None
    breaker: BreakerPolicy = DEFAULT_POLICY
    hold_seconds: float | None = 300.0
    health: Callable[[], Awaitable[object]] | None = None
    fallback: str | None = None  # the handler for items that this one finally fails


class Handler(Protocol):
    """Does the items of one name. `run` may raise anything: the engine maps it to a failure."""

    name: str
    provider: str
    account: str | None
    rules: Rules
    askable: bool

    pace_name: str  # the name of its pace, if it has one
    asks_at_once: int  # how many lost requests may be asked about at a time

    @property
    def answers(self) -> Answers | None:
        """What its calls showed about the provider's pace; None: it has no pace."""
        ...

    async def run(self, body: str, context: Context) -> Succeeded | Submitted | Failed: ...

    async def ask(
        self, client_ref: str, since_ms: int = 0
    ) -> Succeeded | Submitted | Failed | NeverArrived | CannotAsk:
        """Looks up a request that may have been sent, not before `since_ms`: found, or certainly never received, or
        this provider cannot be asked."""
        ...

    def check(self, payload: Any) -> None:
        """Raises UsageError for a payload that this handler cannot take."""
        ...


@overload
def name_of(handler: str | Handler) -> str: ...


@overload
def name_of(handler: str | Handler | None) -> str | None: ...


def name_of(handler: str | Handler | None) -> str | None:
    """The name of a handler that is given as itself or by its name."""
    if handler is None or isinstance(handler, str):
        return handler
    name: str = getattr(handler, "name", repr(handler))
    return name
