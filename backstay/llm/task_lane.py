"""What the lanes have in common whose requests become tasks of the provider."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

from backstay.clock import Clock
from backstay.core.errors import HandlerError, ProviderHeld, Throttled
from backstay.core.failures import error_of_failure
from backstay.core.outcomes import CannotAsk, Failed, NeverArrived, Submitted, Succeeded
from backstay.core.pace import Answers
from backstay.handlers.handler import Rules
from backstay.handlers.task import TaskHandler
from backstay.llm.described import described
from backstay.llm.endpoint import Endpoint
from backstay.llm.http.wire import ProviderReply, Wire
from backstay.llm.prices import LanePrices
from backstay.llm.rate_limits import THROTTLED, LimitHints, Pacer, learn
from backstay.llm.replies import read_reply
from backstay.llm.requests import require_request

GONE: Final = (404, 410)
GONE_SECONDS: Final = 2.0  # before what is said to be gone is asked for again: a reader may lag behind a writer
POLL_SECONDS: Final = 40.0  # then the rest is left for the next poll
TROUBLES_MAX: Final = 20

T = TypeVar("T")


class TaskLane(TaskHandler):
    """A handler of one endpoint, over one wire that its owner opens and closes."""

    answers: Answers
    poll_seconds = POLL_SECONDS

    def __init__(self, endpoint: Endpoint, wire: Wire, rules: Rules, askable: bool, clock: Clock | None) -> None:
        self.name = endpoint.name
        self.provider = endpoint.provider_of(wire.account)
        self.account = wire.account
        self.rules = rules
        self.askable = askable
        self.clock = clock or Clock()
        self.price_of = LanePrices(endpoint)
        self.fail_on = endpoint.fail_on
        self.pacer = Pacer()
        self.answers = self.pacer.answers
        self.pace_name = endpoint.pace_name
        self.wire = wire
        self._base_url = endpoint.base_url

    def described(self, body: str) -> dict[str, str | int]:
        return described(self._base_url, body)

    def check(self, payload: Any) -> None:
        require_request(payload)

    async def ask(self, client_ref: str, since_ms: int = 0) -> Succeeded | Submitted | NeverArrived | CannotAsk:
        raise TypeError(f"{self.name} cannot be asked")

    def learn(self, reply: ProviderReply) -> LimitHints:
        return learn(reply.headers, self.clock.now_ms())

    def tell_throttled(self, reply: ProviderReply) -> None:
        """A question was refused: it has no say in how many requests are borne, but they wait as long as it must."""
        if reply.status == THROTTLED:
            wait_ms = self.learn(reply).wait_ms or 0
            self.answers.add(0.0, throttled=True, pause_ms=wait_ms, exhausted_ms=wait_ms)

    def require_answer(self, reply: ProviderReply) -> ProviderReply:
        """The reply to a question, if it is an answer; else the error that it stands for."""
        if 200 <= reply.status <= 299:
            return reply
        self.tell_throttled(reply)
        refused = read_reply(reply, self.learn(reply), self.price_of)
        assert isinstance(refused, Failed), "only an answer can be a success"
        raise error_of_failure(refused.failure)


async def ask_each(
    things: Iterable[T], ask: Callable[[T], Awaitable[None]], at_once: int, seconds: float = POLL_SECONDS
) -> list[HandlerError]:
    """Asks about each, some at once, and returns what troubles there were.

    A provider that refuses or fails is not asked about all the others too: they are left for the next time.
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


def rules_for(endpoint: Endpoint, usual: Rules) -> Rules:
    """A lane's usual rules, with the time limit that the run was given."""
    return replace(usual, timeout_seconds=endpoint.timeout_seconds or usual.timeout_seconds)


def seconds_of(rules: Rules) -> float:
    assert rules.timeout_seconds is not None, "every lane has a time limit"
    return rules.timeout_seconds


def object_in(reply: ProviderReply) -> dict[str, Any] | None:
    """What the reply says, if it is a JSON object at all."""
    try:
        value = json.loads(reply.text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def id_in(value: dict[str, Any] | None) -> str | None:
    """The id of what the provider made, if it can be kept and asked for."""
    named = value.get("id") if value is not None else None
    return named if isinstance(named, str) and 0 < len(named) <= 500 and named.isprintable() else None
