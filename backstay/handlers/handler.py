"""The interfaces between the engine and users' code: a handler with its rules, and the context of one call."""

import hashlib
import json
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, NamedTuple, Protocol, overload

from backstay.clock import Clock
from backstay.core.breaker import DEFAULT_POLICY, BreakerPolicy
from backstay.core.errors import ErrorCode, Permanent, Throttled, UsageError
from backstay.core.failures import NAMED, RetryPolicy, one_line
from backstay.core.ids import show_item
from backstay.core.limits import require_number
from backstay.core.models import (
    AnswerKey,
    CannotAsk,
    Claimed,
    Delivery,
    Failed,
    JobTerms,
    NeverArrived,
    Submitted,
    Succeeded,
    Usage,
)
from backstay.core.pace import Answers, Rate, pace_name_of, read_rate

ASKS_AT_ONCE: Final = 25  # lost requests that are looked up at a time, unless the handler says otherwise
CHARACTERS_PER_TOKEN: Final = 4
_NO_BUDGET: Final = "it does not declare the cost of a call"
_NO_BUDGET_HINT: Final = "declare the most that a call costs: @backstay.handler(cost=0.002)"
COUNT_MAX: Final = 10**12  # tokens, or micro-dollars: a million dollars for one run


HANDLER_CHARACTERS_MAX: Final = 300
_YEAR_SECONDS: Final = 366 * 86_400
_NUMBERS: Final = {  # a handler's options: from, to
    **dict.fromkeys(("timeout", "deadline", "hold_seconds"), (0.001, _YEAR_SECONDS)),
    "concurrency": (1, 1_000_000),
    "tokens_per_minute": (1, COUNT_MAX),
}


def check_name(name: object, of: str = "handler") -> str:
    """The name of a handler or a provider, if every database and broker can store it, and every page can show it."""
    fits = isinstance(name, str) and 1 <= len(name) <= HANDLER_CHARACTERS_MAX and name.isprintable()
    if not isinstance(name, str) or not fits or name != name.strip():
        hint = f"use 1 to {HANDLER_CHARACTERS_MAX} printable characters, with no blanks at the ends"
        raise UsageError(f"{one_line(repr(name), 100)} cannot be the name of a {of}", hint=hint)
    return name


def check_numbers(given: Mapping[str, Any]) -> None:
    """Raises if a number among a handler's options is out of range, because it would stop its workers."""
    for name, (low, high) in _NUMBERS.items():
        if given.get(name) is not None:
            whole = isinstance(low, int)
            require_number(f"a handler's {name}", given[name], low, high, whole=whole)


def client_ref(job: JobTerms, item: Claimed) -> str:
    """Identifies a request at the provider. It is made of the content, never of the try, so a repeat has the same
    reference."""
    text = f"{job.owner}\0{job.ref_seed}\0{item.id}\0{item.round}\0{item.body}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


class OpenItems(NamedTuple):
    """The items of a job that have not ended."""

    items: int
    at_provider: int = 0  # those that are tasks of a provider
    more_come: bool = False  # the job is still being submitted


class Surroundings(NamedTuple):
    """The parts that all contexts of one worker share: its clock, its send guard, the sinks of progress and logs, and
    what it can ask the database."""

    clock: Clock
    guard_seconds: float
    progress: Callable[[int, int, int], None]
    log: Callable[[int, str], None]
    last_invalid: Callable[[int], Awaitable[tuple[str | None, str | None] | None]] | None = None
    open_items: Callable[[int, str], Awaitable[OpenItems]] | None = None


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
        self.traceparent: str | None = None  # of this call, if it is traced: for code elsewhere that does a part of it
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
    def move_at(self) -> int | None:
        """When the item goes to another handler if it is not done by then, in milliseconds since 1970."""
        return self._job.move_at

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

    def usage(
        self,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost_micros: int | None = None,
        *,
        cost: float | None = None,
    ) -> None:
        """Reports the consumption of this run; it is stored with the attempt. The cost is given in dollars, or in
        micro-dollars; it replaces the cost that the handler declares."""
        if cost is not None:
            cost_micros = _micros(cost)
        micros = None if cost_micros is None else _count(cost_micros)
        self.used = Usage(_count(input_tokens) or 0, _count(output_tokens) or 0, micros)

    def log(self, text: str) -> None:
        """Writes a line to the item's own log, if one is kept, and to the worker's log."""
        self._around.log(self._item.id, text)


async def last_invalid(context: Context) -> tuple[str, str] | None:
    """The last invalid answer to an item and the message that says why, of any worker."""
    item, find = context._item, context._around.last_invalid
    found = None if item.calls == 0 or find is None else await find(item.id)
    answer, problem = found or (None, None)
    return (answer, problem or "") if answer else None


async def open_items(context: Context) -> OpenItems:
    """Of the item's job, at all workers; at least the item itself."""
    find = context._around.open_items
    return OpenItems(1) if find is None else await find(context._job.id, context.owner)


def _micros(dollars: object) -> int | None:
    """As for `_count`: a wrong cost must not lose the result that was paid for."""
    try:
        return read_dollars(dollars, "a cost")
    except UsageError:
        return None


def _count(number: object) -> int | None:
    """A count that a database can add up. A wrong count must not lose the result that was paid for."""
    try:
        count = int(number)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
    return count if 0 <= count <= COUNT_MAX else None


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How often a handler may be called, by all workers together, and the most that a call costs."""

    rate: Rate | None = None
    tokens_per_minute: int | None = None
    cost: int | Callable[[Any], object] | None = None  # micro-dollars, or a function of the payload that gives dollars
    tokens: int | Callable[[Any], object] | None = None  # of a call; None: estimated from the length of its payload
    load: Callable[[str], Any] = json.loads  # makes the payload that the handler, and so these functions, get

    @property
    def any(self) -> bool:
        return self.rate is not None or self.tokens_per_minute is not None or self.cost is not None

    @property
    def reads_payload(self) -> bool:
        """Whether an item must be weighed one by one: its cost is a function of the payload, or its tokens count."""
        return callable(self.cost) or self.tokens_per_minute is not None

    def weigh(self, body: str) -> tuple[int, int]:
        """The most that a call with this payload costs, in micro-dollars, and its tokens."""
        payload = self.load(body) if callable(self.cost) or callable(self.tokens) else None
        cost = self.cost or 0
        if callable(cost):
            cost = read_dollars(_ask(cost, payload, "cost"), "the cost of an item")
        if self.tokens_per_minute is None:
            return cost, 0
        if self.tokens is None:
            return cost, max(len(body) // CHARACTERS_PER_TOKEN, 1)
        tokens = _ask(self.tokens, payload, "tokens") if callable(self.tokens) else self.tokens
        return cost, _check_tokens(tokens, "the tokens of an item")

    def require_weight(self, body: str) -> None:
        """Raises before a call is made, if its cost cannot be computed."""
        if self.reads_payload:
            try:
                self.weigh(body)
            except Exception as error:
                reason = f"the cost or the tokens of this item cannot be computed: {one_line(str(error))}"
                raise Permanent(reason, ErrorCode.GW_4XX) from None


NO_LIMITS: Final = CallLimits()


def call_limits(rate: object, tokens_per_minute: int | None, tokens: object, cost: object) -> CallLimits:
    """The limits of a handler as its author wrote them: a rate such as "100/min", and a cost in dollars."""
    if tokens is not None and tokens_per_minute is None:
        raise UsageError("tokens without tokens_per_minute has no effect", hint="give tokens_per_minute as well")
    if tokens is not None and not callable(tokens):
        tokens = _check_tokens(tokens, "a handler's tokens")
    return CallLimits(
        rate=None if rate is None else read_rate(rate),
        tokens_per_minute=tokens_per_minute,
        cost=cost if cost is None or callable(cost) else read_dollars(cost, "a handler's cost"),
        tokens=tokens,
    )


def _ask(function: Callable[[Any], object], payload: Any, what: str) -> object:
    try:
        return function(payload)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also one that exits: it must not end a worker
        said = one_line(f"{type(error).__name__}: {error}")
        hint = "it gets the payload as the handler does"
        raise UsageError(f"the function that computes the {what} of an item failed: {said}", hint=hint) from error


def _check_tokens(tokens: object, what: str) -> int:
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not 0 <= tokens <= COUNT_MAX:
        raise UsageError(f"{what} must be a whole number from 0 to {COUNT_MAX}, not {tokens!r}")
    return tokens


def read_dollars(dollars: object, what: str) -> int:
    """An amount of dollars in micro-dollars, rounded up."""
    number = dollars if isinstance(dollars, int | float | Decimal) and not isinstance(dollars, bool) else None
    if isinstance(number, Decimal) and number.is_nan():
        number = None  # it cannot be compared
    if number is None or not 0 <= number <= COUNT_MAX // 1_000_000:
        raise UsageError(f"{what} must be a number of dollars from 0, not {dollars!r}")
    return math.ceil(Decimal(str(number)) * 1_000_000)


@dataclass(frozen=True, slots=True)
class Rules:
    """How the items of a handler are treated; the options of a job override it."""

    retry: RetryPolicy = field(default_factory=lambda: NAMED["queue"])
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    timeout_seconds: float | None = None
    deadline_seconds: float | None = None
    item_timeout_seconds: float | None = None  # the age at which an item fails, if it differs from the general limit
    concurrency: int | None = None
    breaker: BreakerPolicy = DEFAULT_POLICY
    hold_seconds: float | None = 300.0
    health: Callable[[], Awaitable[object]] | None = None
    calls: CallLimits = NO_LIMITS
    fallback: str | None = None  # the handler for items that this one finally fails
    # The fallback sends the same request elsewhere. So it also gets items that wait while the provider fails or refuses
    # for longer than this, or whose share of the time is over. None: only items that this handler finally fails.
    fallback_after_seconds: float | None = None


def own_pace(name: str, rules: Rules) -> tuple[str, Answers | None]:
    """The name of a handler's own pace, and the collector of its replies; None: it declares no limits."""
    return pace_name_of(name), Answers() if rules.calls.any else None


class Handler(Protocol):
    """Runs the items of one handler name. `run` may raise anything: the engine turns it into a failure."""

    name: str
    provider: str
    account: str | None
    rules: Rules
    askable: bool

    pace_name: str  # the name of its pace, if it has one
    asks_at_once: int  # how many lost requests may be asked about at a time

    @property
    def answers(self) -> Answers | None:
        """Collects the replies for the provider's pace; None: it has no pace."""
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


class Weighed(NamedTuple):
    """An item that costs money: its text, the most that one call can cost (None: unknown), its tokens, and the handler
    that runs it if that is not the job's."""

    body: str
    cost_micros: int | None
    tokens: int
    handler: str | None = None
    output_tokens: int = 0  # of these tokens
    answer_key: AnswerKey | None = None  # identifies its request, so that a later job can use its answer


def require_cost(name: str, handler: Handler | None) -> None:
    """Raises if a budget could not be enforced, because the cost of a call is unknown."""
    if handler is None or handler.rules.calls.cost is None:
        raise UsageError(f"a budget cannot be enforced for {name[:100]!r}: {_NO_BUDGET}", hint=_NO_BUDGET_HINT)


def weigh(handler: Handler | None, body: str) -> str | Weighed:
    """An item as it is submitted: with the most that its call costs, if its handler declares that."""
    if handler is None or not handler.rules.calls.any:
        return body
    return Weighed(body, *handler.rules.calls.weigh(body))


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
