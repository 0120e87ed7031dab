"""What the handlers of all lanes have in common."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

from backstay.clock import Clock
from backstay.core.errors import HandlerError, ProviderHeld, Throttled
from backstay.core.failures import ErrorCode, Failure, FailureKind
from backstay.core.outcomes import CannotAsk, Failed, Flaw, NeverArrived, Submitted, Succeeded
from backstay.core.pace import Answers
from backstay.handlers.handler import Rules
from backstay.handlers.task import TaskHandler
from backstay.llm.channel import Channel
from backstay.llm.endpoint import Endpoint
from backstay.llm.http.wire import Wire
from backstay.llm.prices import LanePrices
from backstay.llm.registry import provider_named
from backstay.llm.requests import require_request, unseal

POLL_SECONDS: Final = 40.0  # then the rest is left for the next poll
TROUBLES_MAX: Final = 20
_FLAW_WORDS: Final = {
    Flaw.TRUNCATED: "the answer is cut off",
    Flaw.REFUSED: "the model refused to answer",
    Flaw.FILTERED: "a filter of the provider removed the answer",
}

T = TypeVar("T")


class LaneHandler:
    """A handler of one endpoint, over one HTTP client that its owner opens and closes."""

    def __init__(self, endpoint: Endpoint, wire: Wire, rules: Rules, clock: Clock | None) -> None:
        self.name = endpoint.name
        self.provider = endpoint.provider_of(wire.account)
        self.account: str | None = wire.account
        self.pace_name = endpoint.pace_name
        self.rules = rules
        self.askable = False
        self.clock = clock or Clock()
        self.fail_on = endpoint.fail_on
        self.llm = provider_named(endpoint.api)
        self.channel = Channel(self.llm, wire, LanePrices(endpoint), self.clock)
        self.answers: Answers = self.channel.pacer.answers
        self._base_url = endpoint.base_url

    def check(self, payload: Any) -> None:
        require_request(payload)

    def described(self, body: str) -> dict[str, str | int]:
        """The attributes of a request in a trace."""
        request = unseal(body)
        try:
            fields = json.loads(request.body)
        except (ValueError, RecursionError):
            fields = None
        fields = fields if isinstance(fields, dict) else {}
        return self.llm.requests.trace_attributes(self._base_url, request.url, fields)


class TaskLane(LaneHandler, TaskHandler):
    """A lane whose requests become tasks of the provider."""

    answers: Answers
    poll_seconds = POLL_SECONDS

    async def ask(self, client_ref: str, since_ms: int = 0) -> Succeeded | Submitted | NeverArrived | CannotAsk:
        raise TypeError(f"{self.name} cannot be asked")


async def ask_each(
    things: Iterable[T], ask: Callable[[T], Awaitable[None]], at_once: int, seconds: float = POLL_SECONDS
) -> list[HandlerError]:
    """Asks about each task, several at once, and returns the errors.

    After a refusal or failure the provider is not asked about the others: they are left for the next poll.
    """
    troubles: list[HandlerError] = []

    async def work(left: Iterator[T]) -> None:
        for thing in left:
            try:
                await ask(thing)
            except HandlerError as trouble:
                troubles.append(trouble)
            if len(troubles) >= TROUBLES_MAX or (troubles and isinstance(troubles[-1], Throttled | ProviderHeld)):
                return

    left = iter(things)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*(work(left) for _ in range(at_once)))
    return troubles


def fail_flawed(outcome: T, flaws: tuple[str, ...]) -> T | Failed:
    """The same outcome, or a failure if the user does not accept this flaw: paid for, kept, and tried again."""
    if not isinstance(outcome, Succeeded) or outcome.flaw is None or outcome.flaw not in flaws:
        return outcome
    failure = Failure(
        ErrorCode.GW_4XX, FailureKind.INFRASTRUCTURE, _FLAW_WORDS[outcome.flaw], provider_status=outcome.provider_status
    )
    return Failed(failure, outcome.usage, task_ended=True, reply=outcome.result, flaw=outcome.flaw)


def rules_for(endpoint: Endpoint, usual: Rules) -> Rules:
    """A lane's usual rules, with the time limit that the run was given."""
    return replace(usual, timeout_seconds=endpoint.timeout_seconds or usual.timeout_seconds)


def seconds_of(rules: Rules) -> float:
    assert rules.timeout_seconds is not None, "every lane has a time limit"
    return rules.timeout_seconds
