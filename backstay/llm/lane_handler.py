"""The handlers of the lanes `call` and `background`, and what the handlers of all lanes have in common."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

from backstay.clock import Clock
from backstay.core.errors import HandlerError, OutcomeUnknown, ProviderHeld, Throttled, UsageError
from backstay.core.failures import ErrorCode, Failure, FailureKind
from backstay.core.outcomes import CannotAsk, Failed, Flaw, NeverArrived, Submitted, Succeeded
from backstay.core.pace import Answers
from backstay.core.retry import RetryPolicy
from backstay.handlers.function import Answer, TaskHandler
from backstay.handlers.handler import ASKS_AT_ONCE, Context, Rules
from backstay.llm.channel import Channel
from backstay.llm.endpoint import Endpoint
from backstay.llm.http.wire import Wire
from backstay.llm.lines import require_request, unseal
from backstay.llm.prices import LanePrices
from backstay.llm.provider import CallLookup, Certainty
from backstay.llm.registry import provider_named

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


# Up to 1 s, 4 s, 16 s and a minute, each time anywhere in between: the first failure costs little time, and a provider
# that comes back is not flooded by all items at once.
RETRY: Final = RetryPolicy("call", attempts_max=5, base_ms=500, factor=4, cap_ms=30_000, spread=1.0)
RULES: Final = Rules(retry=RETRY, timeout_seconds=600.0)


class CallHandler(LaneHandler):
    """A call can be found again after a crash, if the user wants that and the provider has a look-up for it."""

    asks_at_once = ASKS_AT_ONCE

    def __init__(self, endpoint: Endpoint, wire: Wire, rules: Rules | None = None, clock: Clock | None = None) -> None:
        super().__init__(endpoint, wire, rules or rules_for(endpoint, RULES), clock)
        self._seconds = seconds_of(self.rules)
        self._lookup = self._open_lookup() if endpoint.reconcilable else None
        self.askable = self._lookup is not None
        # Every call passes here, so these are looked up once.
        self._post = wire.post
        self._answered = self.channel.pacer.note_answer
        self._limit_hints = self.llm.replies.limit_hints
        self._read_reply = self.llm.replies.read_reply
        self._price_of = self.channel.price_of

    def check(self, payload: Any) -> None:
        request = require_request(payload)
        if self._lookup is not None:
            self._lookup.check(request)

    async def run(self, body: str, context: Context) -> Succeeded | Failed:
        request, clock = unseal(body), self.clock
        ref = context.idempotency_key
        text = request.body if self._lookup is None else self._lookup.body(request, ref)
        context.guard()
        began = clock.monotonic()
        reply = await self._post(request.url, text, self._seconds, ref, context.outside_traceparent)
        hints = self._limit_hints(reply, clock.now_ms())
        self._answered(reply.status, clock.monotonic() - began, hints)
        return fail_flawed(self._read_reply(reply, hints, self._price_of), self.fail_on)

    async def ask(self, client_ref: str, since_ms: int = 0) -> Succeeded | Failed | NeverArrived | CannotAsk:
        """The outcome of a call whose reply was lost; raises if it is not certain."""
        if self._lookup is None:
            return CannotAsk()
        found = await self._lookup.find(client_ref, since_ms)
        if isinstance(found, NeverArrived) and self._lookup.certainty is not Certainty.CERTAIN:
            return CannotAsk()
        return fail_flawed(found, self.fail_on)

    def _open_lookup(self) -> CallLookup:
        if self.llm.call_lookup is None:
            raise UsageError(f"{self.llm.name} has no way to find a call again", hint="leave --reconcilable out")
        return self.llm.call_lookup(self.channel)


BACKGROUND_RULES: Final = Rules(retry=RETRY, timeout_seconds=60.0)
LOOKS_AT_ONCE: Final = 20


class BackgroundHandler(TaskLane):
    """A task whose id was lost cannot be asked about."""

    def __init__(
        self, endpoint: Endpoint, wire: Wire, rules: Rules | None = None, *, clock: Clock | None = None
    ) -> None:
        super().__init__(endpoint, wire, rules or rules_for(endpoint, BACKGROUND_RULES), clock)
        if self.llm.tasks is None:
            raise UsageError(f"{self.llm.name} has no background requests", hint="use --lane call")
        self._tasks = self.llm.tasks(self.channel)
        self._seconds = seconds_of(self.rules)

    async def run(self, body: str, context: Context) -> Succeeded | Submitted | Failed:
        request, channel = unseal(body), self.channel
        ref = context.idempotency_key
        text = self._tasks.body(request, ref)
        context.guard()
        began = self.clock.monotonic()
        reply = await channel.wire.post(request.url, text, self._seconds, ref, context.outside_traceparent)
        channel.pacer.note_answer(reply.status, self.clock.monotonic() - began, channel.limit_hints(reply))
        if 200 <= reply.status <= 299 and (task_id := self._tasks.task_id(reply)) is not None:
            return Submitted(task_id, self.account)
        outcome = channel.read(reply)
        if isinstance(outcome, Succeeded):
            raise OutcomeUnknown("the provider accepted the request but gave no id for it")
        return outcome

    async def poll(self, task_ids: Sequence[str]) -> Mapping[str, Answer]:
        """Asks about each task. Tasks without an answer now are left out; it raises only if there was no answer at
        all."""
        answers: dict[str, Answer] = {}

        async def look(task_id: str) -> None:
            answers[task_id] = fail_flawed(await self._tasks.look(task_id), self.fail_on)

        troubles = await ask_each(task_ids, look, LOOKS_AT_ONCE, self.poll_seconds)
        if troubles and not answers:
            raise troubles[0]
        return answers

    async def cancel(self, task_id: str) -> None:
        await self._tasks.cancel(task_id)
