"""A handler as the engine sees it, and its rules."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from backstay.core.breaker import DEFAULT_POLICY, BreakerPolicy
from backstay.core.models import Delivery
from backstay.core.outcomes import CannotAsk, Failed, NeverArrived, Submitted, Succeeded
from backstay.core.pace import Answers
from backstay.core.retry import NAMED, RetryPolicy
from backstay.handlers.context import Context

ASKS_AT_ONCE = 25


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
