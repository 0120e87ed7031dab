"""OpenAI's responses: answered at once, kept to be read again, or made in the background and streamed as events."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

from aiohttp import web

from backstay.clock import wait_for_event
from backstay.practice.faults import ResponseFault
from backstay.practice.openai_shapes import (
    MESSAGE_TOKENS,
    OPENAI,
    Body,
    OpenAiError,
    count_schema_tokens,
    count_tool_tokens,
    missing_parameter,
    not_found,
    read_messages,
    read_model,
    read_object,
    read_tokens_max,
)
from backstay.practice.pipeline import Pipeline, ProviderState
from backstay.practice.replies import (
    AnswerText,
    GeneratedReply,
    PracticeReply,
    Prompt,
    ReplyStamp,
    ReplyStream,
    count_tokens,
    json_reply,
    write_answer,
)
from backstay.practice.structured import form_answer, shows_answer

RESPONSES = "/v1/responses"
EVENT_STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}
QUEUED_SHARE = 0.3  # of the time that a response takes
END_SHARE = 1.0

_ECHOED = ("instructions", "max_output_tokens", "metadata", "previous_response_id", "temperature", "top_p")
_WORD = re.compile(r"\s*\S+|\s+$")

Value = dict[str, Any]

# The object


def generate_response(body: Body, stamp: ReplyStamp) -> GeneratedReply:
    model = read_model(body)
    if body.get("stream") and not body.get("background"):
        message = "Streaming can be practised in the background only."
        raise OpenAiError(400, message, "unsupported_parameter", "stream")
    prompt = read_response_prompt(body)
    tokens_max = read_tokens_max(body, "max_output_tokens")
    text = body.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    schema = form.get("schema") if isinstance(form, dict) else None
    told = f"{body.get('instructions') or ''}\n{prompt.text}"
    formed = form_answer(schema, told, stamp.fault, shows_answer(body["input"]))
    answer = write_answer(prompt, tokens_max, stamp.answer_tokens, formed)
    value = _response_object(body, stamp, model, answer)
    value["usage"] = response_usage(prompt.tokens, answer.tokens)
    if stamp.fault is ResponseFault.FAILED:
        error = {"code": "server_error", "message": "The model could not finish (practice)."}
        value |= {"status": "failed", "error": error, "output": [], "usage": None}
        return GeneratedReply(json.dumps(value), prompt.tokens, answer.tokens, prompt.tokens, free=True)
    if stamp.fault is ResponseFault.INCOMPLETE or not answer.whole:
        value |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    reserved = prompt.tokens + (tokens_max or answer.tokens)
    return GeneratedReply(json.dumps(value), prompt.tokens, answer.tokens, reserved)


def read_response_prompt(body: Body) -> Prompt:
    given, instructions = body.get("input"), body.get("instructions")
    if not given:
        raise missing_parameter("input")
    messages = [{"content": given}] if isinstance(given, str) else given
    prompt = read_messages(messages, "input")
    extra = count_tool_tokens(body) + count_schema_tokens(body)
    if isinstance(instructions, str):
        extra += MESSAGE_TOKENS + count_tokens(instructions)
    return prompt._replace(tokens=prompt.tokens + extra)


def _response_object(body: Body, stamp: ReplyStamp, model: str, answer: AnswerText) -> Value:
    part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
    message = {
        "id": f"msg_{stamp.mark}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    return {
        "id": f"resp_{stamp.mark}",
        "object": "response",
        "created_at": stamp.created,
        "status": "completed",
        "background": bool(body.get("background")),
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [message],
        "parallel_tool_calls": True,
        "store": body.get("store", True),
        "tool_choice": "auto",
        "tools": [],
        "truncation": "disabled",
        "usage": None,
        **{name: body.get(name) for name in _ECHOED},
    }


def response_usage(input_tokens: int, output_tokens: int) -> Value:
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input_tokens + output_tokens,
    }


def _response_before_end(whole: Value, status: str) -> Value:
    """A response before its end."""
    return whole | {"status": status, "output": [], "usage": None, "error": None, "incomplete_details": None}


# Its stream of events: the same for every reader, so that a client can resume it


class ResponseEvent(NamedTuple):
    """`at` is the share of the response's time after which the event is sent."""

    at: float
    sequence_number: int
    value: Value

    def dump(self) -> bytes:
        data = json.dumps({**self.value, "sequence_number": self.sequence_number})
        return f"event: {self.value['type']}\ndata: {data}\n\n".encode()


def response_events(whole: Value) -> list[ResponseEvent]:
    """All events of a response that will end like this, in their order."""
    return [ResponseEvent(at, number, value) for number, (at, value) in enumerate(_event_values(whole))]


def _event_values(whole: Value) -> Iterator[tuple[float, Value]]:
    queued = _response_before_end(whole, "queued")
    yield 0.0, {"type": "response.created", "response": queued}
    yield 0.0, {"type": "response.queued", "response": queued}
    yield QUEUED_SHARE, {"type": "response.in_progress", "response": _response_before_end(whole, "in_progress")}
    for index, message in enumerate(whole["output"]):
        yield from _message_event_values(message, index)
    yield END_SHARE, {"type": f"response.{whole['status']}", "response": whole}


def _message_event_values(message: Value, index: int) -> Iterator[tuple[float, Value]]:
    [part] = message["content"]
    item = {"output_index": index}
    within = {"item_id": message["id"], "output_index": index, "content_index": 0}
    empty = message | {"status": "in_progress", "content": []}
    yield QUEUED_SHARE, {"type": "response.output_item.added", **item, "item": empty}
    yield QUEUED_SHARE, {"type": "response.content_part.added", **within, "part": part | {"text": ""}}
    words = _WORD.findall(part["text"])
    for number, word in enumerate(words, 1):
        at = QUEUED_SHARE + (END_SHARE - QUEUED_SHARE) * number / (len(words) + 1)
        yield at, {"type": "response.output_text.delta", **within, "delta": word, "logprobs": []}
    yield END_SHARE, {"type": "response.output_text.done", **within, "text": part["text"], "logprobs": []}
    yield END_SHARE, {"type": "response.content_part.done", **within, "part": part}
    yield END_SHARE, {"type": "response.output_item.done", **item, "item": message}


# Responses that outlive their request


class KeptResponse:
    """A response as it will be at its end, and how far it is."""

    __slots__ = ("begun_at", "cancelled", "done", "ended", "seconds", "streams", "text", "timer")

    def __init__(self, text: str, begun_at: float = 0.0, seconds: float = 0.0, streams: bool = False) -> None:
        self.text = text
        self.begun_at = begun_at
        self.seconds = seconds
        self.streams = streams
        self.done = self.cancelled = False
        self.ended = asyncio.Event()
        self.timer: asyncio.TimerHandle | None = None

    def dump(self, now: float) -> Value:
        value: Value = json.loads(self.text)
        if self.done:
            return value
        waits = now < self.begun_at + self.seconds * QUEUED_SHARE
        return _response_before_end(value, "cancelled" if self.cancelled else "queued" if waits else "in_progress")

    def stop(self) -> None:
        """Ends its streams; it will not be done any more."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None
        self.ended.set()


class OpenAiResponses:
    def __init__(self, state: ProviderState) -> None:
        self._state = state
        self._kept: dict[str, KeptResponse] = {}

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        for method, path, work in (
            ("POST", f"{RESPONSES}/input_tokens", self.count_input_tokens),
            ("GET", f"{RESPONSES}/{{id}}", self.show),
            ("POST", f"{RESPONSES}/{{id}}/cancel", self.cancel),
            ("DELETE", f"{RESPONSES}/{{id}}", self.remove),
        ):
            router.add_route(method, path, pipeline.unpaid_route(OPENAI, work))

    def stop(self) -> None:
        for kept in self._kept.values():
            kept.stop()

    def begin(self, made: GeneratedReply, charge: Callable[[], None], streams: bool) -> PracticeReply:
        """Starts a response in the background. It is charged when it is done, whether a client asks for it or not."""
        now, seconds = self._state.clock.monotonic(), self._state.faults.background_seconds
        kept = KeptResponse(made.text, now, seconds, streams)
        self._kept[json.loads(made.text)["id"]] = kept

        def finish() -> None:
            kept.done, kept.timer = True, None
            charge()
            kept.ended.set()

        kept.timer = asyncio.get_running_loop().call_later(seconds, finish)
        return self._stream(kept) if streams else json_reply(kept.dump(now))

    def keep(self, made: GeneratedReply) -> None:
        kept = self._kept[json.loads(made.text)["id"]] = KeptResponse(made.text)
        kept.done = True

    async def count_input_tokens(self, request: web.Request) -> PracticeReply:
        prompt = read_response_prompt(read_object(await request.read()))
        return json_reply({"object": "response.input_tokens", "input_tokens": prompt.tokens})

    async def show(self, request: web.Request) -> PracticeReply:
        """As it is now or, with `stream=true`, as events: those after `starting_after`, and new ones as they happen."""
        kept = self._find(request)
        if request.query.get("stream") != "true":
            return json_reply(kept.dump(self._state.clock.monotonic()))
        if not kept.streams:
            message = "Only a response made with 'background' and 'stream' can be streamed."
            raise OpenAiError(400, message, param="stream")
        after = request.query.get("starting_after", "-1")
        if not after.removeprefix("-").isdecimal():
            message = "Invalid type for 'starting_after': expected an integer."
            raise OpenAiError(400, message, param="starting_after")
        return self._stream(kept, int(after))

    def _stream(self, kept: KeptResponse, after: int = -1) -> PracticeReply:
        events = [event for event in response_events(json.loads(kept.text)) if event.sequence_number > after]
        return PracticeReply(200, b"", EVENT_STREAM, ReplyStream(len(events), self._event_pieces(kept, events)))

    async def _event_pieces(self, kept: KeptResponse, events: list[ResponseEvent]) -> AsyncIterator[bytes]:
        """Each event at its time. A cancelled response sends no more events: OpenAI has none for that."""
        for event in events:
            if event.at == END_SHARE:
                await kept.ended.wait()
            else:
                due_at = kept.begun_at + kept.seconds * event.at
                await wait_for_event(kept.ended, due_at - self._state.clock.monotonic())
            if kept.ended.is_set() and not kept.done:
                return
            yield event.dump()

    async def cancel(self, request: web.Request) -> PracticeReply:
        kept = self._find(request)
        value = kept.dump(self._state.clock.monotonic())
        if not value["background"]:
            raise OpenAiError(400, "Only a response made in the background can be cancelled.")
        if kept.timer is not None:
            kept.cancelled = True
            kept.stop()
        return json_reply(kept.dump(self._state.clock.monotonic()))

    async def remove(self, request: web.Request) -> PracticeReply:
        """Only forgets it: a response that runs is still finished and charged."""
        name = request.match_info["id"]
        self._find(request)
        del self._kept[name]
        return json_reply({"id": name, "object": "response", "deleted": True})

    def _find(self, request: web.Request) -> KeptResponse:
        name = request.match_info["id"]
        if (kept := self._kept.get(name)) is None:
            raise not_found("response", name)
        return kept
