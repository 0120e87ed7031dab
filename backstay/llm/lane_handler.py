"""The handlers of the lanes `call` and `background`, and what the handlers of all lanes have in common."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

from backstay.clock import Clock
from backstay.core.errors import HandlerError, OutcomeUnknown, Permanent, ProviderHeld, Throttled, UsageError
from backstay.core.failures import ErrorCode, Failure, FailureKind, RetryPolicy, one_line
from backstay.core.models import CannotAsk, Failed, Flaw, NeverArrived, Submitted, Succeeded
from backstay.core.pace import Answers
from backstay.handlers.function import TaskAnswer, TaskHandler
from backstay.handlers.handler import ASKS_AT_ONCE, Context, Rules, last_invalid
from backstay.llm.bodies import dict_in, object_of
from backstay.llm.chat_format import reply_in_chat
from backstay.llm.endpoint import Endpoint
from backstay.llm.fallbacks import place_of, request_for
from backstay.llm.http.wire import Wire
from backstay.llm.lines import LineRefused, LlmRequest, require_request, unseal, value_of, write_json
from backstay.llm.prices import LanePrices
from backstay.llm.provider import CallLookup, Certainty, Channel
from backstay.llm.providers import provider_named
from backstay.llm.schemas import AnswerCheck, AnswerInvalid, describe_problem, load_schema, reask_of

POLL_SECONDS: Final = 40.0  # then the rest is left for the next poll
TROUBLES_MAX: Final = 20
_FLAW_WORDS: Final = {
    Flaw.TRUNCATED: "the answer is cut off",
    Flaw.REFUSED: "the model refused to answer",
    Flaw.FILTERED: "a filter of the provider removed the answer",
    Flaw.UNFINISHED: "the provider paused the turn before its end",
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
        self._place = place_of(endpoint)
        self._schema = None if endpoint.schema is None else load_schema(endpoint.schema)
        self._reasks = endpoint.reasks
        self._check: AnswerCheck | None = None if self._schema is None else self._schema.parse
        self.credentials = wire.credentials
        wire.on_missing_key = self._claim_later

    def check(self, payload: Any) -> None:
        require_request(payload)

    def use_check(self, check: AnswerCheck | None) -> None:
        """Answers are checked by this function instead of by the schema alone."""
        if check is not None:
            self._check = check
        elif self._schema is not None:
            self._schema.require_validator()

    def _claim_later(self, seconds: float) -> None:
        """Without a key no further items are claimed here: they would all come back."""
        self.answers.shut_until = self.clock.monotonic() + seconds

    def request_in(self, body: str) -> LlmRequest:
        """The request that is sent: as it is stored, or as this provider gets it, if it is a fallback."""
        request = unseal(body)
        if self._place is None:
            return request
        try:
            there = request_for(self._place, request)
        except LineRefused as refused:  # it was checked before the run, perhaps by another version
            raise Permanent(f"the request {refused} (for the fallback {self._place.fallback})") from None
        return LlmRequest(request.custom_id, there.url, there.body)

    async def request_to_send(self, body: str, context: Context) -> LlmRequest:
        """The request, and if its last answer did not fit, that answer and what is wrong with it."""
        request = self.request_in(body)
        bad = None if self._check is None else await last_invalid(context)
        if bad is None:
            return request
        reask = reask_of(self._text_of(bad[0]) or "", bad[1])
        fields = self.llm.answers.ask_again(request.url, value_of(request.body), reask)
        return request._replace(body=write_json(fields))

    def judge_answer(self, outcome: T) -> T | Failed:
        """The same outcome, or a failure: the user does not accept its flaw, or the answer does not fit."""
        judged = fail_flawed(outcome, self.fail_on)
        if self._check is None or not isinstance(judged, Succeeded):
            return judged
        try:
            text = self._text_of(judged.result)
            if text is None:
                raise AnswerInvalid("$: the answer has no text")
            self._check(text)
        except (ValueError, AssertionError) as error:
            if judged.flaw is not None:  # asking again does not help: it is not the model's mistake
                return _failed_answer(judged, _FLAW_WORDS[judged.flaw], judged.flaw)
            return replace(
                _failed_answer(judged, describe_problem(error), Flaw.INVALID, again=True), asks_max=self._reasks
            )
        except Exception as error:  # a mistake in the user's own check
            said = one_line(f"the check of the answer raised {type(error).__name__}: {error}")
            return _failed_answer(judged, said, Flaw.INVALID)
        return judged

    def _text_of(self, result: str) -> str | None:
        """The text of an answer, out of the result as it is stored."""
        body = dict_in((object_of(result) or {}).get("body"))
        return self.llm.answers.text_of(body if self.llm.chat is None else reply_in_chat(self.llm.chat, body))

    def trace_attributes(self, body: str) -> dict[str, str | int]:
        """The attributes of a request in a trace."""
        request = self.request_in(body)
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
    """Asks about each task, several at once, and returns the errors. After a refusal or failure the other tasks are
    left for the next poll."""
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
    return _failed_answer(outcome, _FLAW_WORDS[outcome.flaw], outcome.flaw, again=True)


def _failed_answer(outcome: Succeeded, message: str, flaw: Flaw, again: bool = False) -> Failed:
    kind = FailureKind.INFRASTRUCTURE if again else FailureKind.BUSINESS
    failure = Failure(ErrorCode.GW_4XX, kind, message, provider_status=outcome.provider_status)
    return Failed(failure, outcome.usage, task_ended=True, reply=outcome.result, flaw=flaw)


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
        clock = self.clock
        request = self.request_in(body) if self._check is None else await self.request_to_send(body, context)
        ref = context.idempotency_key
        text = request.body if self._lookup is None else self._lookup.body(request, ref)
        if self.credentials is not None:
            await self.credentials.wait()
        context.guard()
        began = clock.monotonic()
        reply = await self._post(request.url, text, self._seconds, ref, context.outside_traceparent)
        hints = self._limit_hints(reply, clock.now_ms())
        self._answered(reply.status, clock.monotonic() - began, hints)
        return self.judge_answer(self._read_reply(reply, hints, self._price_of))

    async def ask(self, client_ref: str, since_ms: int = 0) -> Succeeded | Failed | NeverArrived | CannotAsk:
        """The outcome of a call whose reply was lost; raises if it is not certain."""
        if self._lookup is None:
            return CannotAsk()
        found = await self._lookup.find(client_ref, since_ms)
        if isinstance(found, NeverArrived) and self._lookup.certainty is not Certainty.CERTAIN:
            return CannotAsk()
        return self.judge_answer(found)

    def _open_lookup(self) -> CallLookup:
        if self.llm.call_lookup is None:
            raise UsageError(f"{self.llm.name} cannot look up a call after a crash", hint="leave --reconcilable out")
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
        request, channel = await self.request_to_send(body, context), self.channel
        ref = context.idempotency_key
        text = self._tasks.body(request, ref)
        if self.credentials is not None:
            await self.credentials.wait()
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

    async def poll(self, task_ids: Sequence[str]) -> Mapping[str, TaskAnswer]:
        """Asks about each task. Tasks without an answer now are left out; it raises only if there was no answer at
        all."""
        answers: dict[str, TaskAnswer] = {}

        async def look(task_id: str) -> None:
            answers[task_id] = self.judge_answer(await self._tasks.look(task_id))

        troubles = await ask_each(task_ids, look, LOOKS_AT_ONCE, self.poll_seconds)
        if troubles and not answers:
            raise troubles[0]
        return answers

    async def cancel(self, task_id: str) -> None:
        await self._tasks.cancel(task_id)
