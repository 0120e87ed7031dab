"""The answers of the practice provider, and how a reply is sent: whole, slowly, in part, broken or never."""

import functools
import hashlib
import itertools
import json
import zlib
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from email.utils import formatdate
from enum import Enum, auto
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple, assert_never

from aiohttp import web

from backstay.clock import Clock
from backstay.practice.faults import (
    AnswerFault,
    AnyFault,
    BatchFault,
    BodyFault,
    DeliveryFault,
    Faults,
    LimitFault,
    ResponseFault,
    UsageFault,
)

NO_STREAMS = "Streaming cannot be practised."
ODD_COUNTS = ("many", -1, 2.5, None)
ECHO_CHARACTERS = 200
_FILLER = " and so on"

json_text = encode_basestring_ascii  # a string as JSON, many times faster than json.dumps


class Prompt(NamedTuple):
    """The text of a request, the last part of that text, and its tokens."""

    text: str
    last: str
    tokens: int


class AnswerText(NamedTuple):
    """`whole` is False when the answer did not fit into the allowed tokens."""

    text: str
    tokens: int
    whole: bool


class ReplyStamp(NamedTuple):
    """The parts of a reply that do not come from its request."""

    mark: str  # unique, the end of an id
    created: int
    answer_tokens: int | None = None
    fault: AnyFault | None = None


class GeneratedReply(NamedTuple):
    """The JSON of a reply and its tokens. A rate limit counts `reserved_tokens`: the prompt and the longest answer."""

    text: str
    input_tokens: int
    output_tokens: int
    reserved_tokens: int
    free: bool = False


def spoil_usage(made: GeneratedReply, fault: AnyFault | None) -> GeneratedReply:
    """The same reply with the figures that a fault asks for; the bill has the right ones."""
    if not isinstance(fault, UsageFault):
        return made
    value = json.loads(made.text)
    for name in value.keys() & {"usage", "usageMetadata"}:
        if fault is UsageFault.MISSING:
            del value[name]
        elif fault is UsageFault.NULL:
            value[name] = None
        else:
            value[name] = dict(zip(value[name], itertools.cycle(ODD_COUNTS), strict=False))
    return made._replace(text=json.dumps(value))


def count_tokens(text: str) -> int:
    """About four characters a token, or three bytes where they are not ASCII; never more than there are bytes."""
    if text.isascii():
        return (len(text) + 3) // 4
    return (len(text.encode("utf-8", "surrogatepass")) + 2) // 3


def write_answer(
    prompt: Prompt, tokens_max: int | None, answer_tokens: int | None, form: str | None = None
) -> AnswerText:
    """The answer to a prompt, always the same: its digest and the beginning of its last part, or `form`, if the request
    asks for JSON. It is cut off at the allowed tokens."""
    if form is not None:
        needed = count_tokens(form)
        text = form if tokens_max is None else form[: tokens_max * 4]
        return AnswerText(text, count_tokens(text), tokens_max is None or tokens_max >= needed)
    mark = hashlib.blake2b(prompt.text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    head = f"practice {mark}"
    if answer_tokens is None:
        needed = count_tokens(head)
        text = _echo(head, prompt.last[:ECHO_CHARACTERS], tokens_max)
    else:
        needed = answer_tokens
        filled = head + _FILLER * (answer_tokens * 4 // len(_FILLER) + 1)
        text = filled[: min(answer_tokens, tokens_max or answer_tokens) * 4]
    return AnswerText(text, count_tokens(text), tokens_max is None or tokens_max >= needed)


def _echo(head: str, echoed: str, tokens_max: int | None) -> str:
    """The head, and as much of the echoed text as there is room for."""
    text = f"{head} {echoed}"
    if tokens_max is None or count_tokens(text) <= tokens_max:
        return text
    if text.isascii():
        return text[: tokens_max * 4]
    room = (tokens_max * 3 - len(head) - 1) // 4  # a character has at most four bytes
    return f"{head} {echoed[:room]}" if room > 0 else head[: tokens_max * 4]


def flatten_content(content: Any) -> str:
    """The text of a message, whose content is a text or a list of parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return json.dumps(content)
    return "\n".join(_flatten_part(part) for part in content)


def _flatten_part(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else json.dumps(part)


JSON = {"Content-Type": "application/json"}
SLOW_PIECES = 10
BOMB_BYTES = 1 << 30
_BOMB_PIECE_BYTES = 1 << 24
_HANG_CHECK_SECONDS = 0.5
_ERROR_PAGE = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"


class ReplyStream(NamedTuple):
    """A body that comes piece by piece."""

    pieces: int
    body: AsyncIterator[bytes]


class PracticeReply(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str] = JSON
    stream: ReplyStream | None = None


EMPTY_REPLY = PracticeReply(204, b"")


def moment(ms: int) -> str:
    """A time in the format of RFC 3339."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def json_reply(value: Any, status: int = 200) -> PracticeReply:
    return PracticeReply(status, json.dumps(value).encode())


class ErrorReason(Enum):
    """Why the provider refuses a request; every imitated API has its own words for it."""

    OTHER = auto()
    UNKNOWN_FAULT = auto()
    OUTAGE = auto()
    KEY = auto()
    MODEL = auto()
    RATE_LIMIT = auto()
    QUOTA = auto()


class ProviderError(Exception):
    """A reply with a status of 400 or more, which the imitated API puts into its own form."""

    def __init__(
        self,
        status: int,
        message: str,
        reason: ErrorReason = ErrorReason.OTHER,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason
        self.headers = headers or {}


class ConnectionCut(Exception):
    """The connection ends without a reply."""


def quota_error() -> ProviderError:
    message = "You exceeded your current quota, please check your plan and billing details (practice)."
    return ProviderError(429, message, ErrorReason.QUOTA)


def error_of_fault(fault: AnyFault | None, faults: Faults, now_ms: int) -> ProviderError | None:
    """The error that a fault asks for. None: the request is answered, or its fault is of another kind."""
    match fault:
        case LimitFault.QUOTA:
            return quota_error()
        case LimitFault():
            headers = _wait_headers(fault, faults.retry_after, now_ms)
            return ProviderError(429, "Rate limit reached (practice).", ErrorReason.RATE_LIMIT, headers)
        case 401:
            return ProviderError(401, "Incorrect API key provided (practice).", ErrorReason.KEY)
        case 404:
            return ProviderError(404, "The model does not exist (practice).", ErrorReason.MODEL)
        case int():
            return ProviderError(fault, f"The practice provider was asked to answer {fault}.")
        case None | DeliveryFault() | BodyFault() | UsageFault() | BatchFault() | ResponseFault() | AnswerFault():
            return None
        case _ as never:
            assert_never(never)


def _wait_headers(fault: LimitFault, seconds: float, now_ms: int) -> dict[str, str]:
    match fault:
        case LimitFault.WAIT_SECONDS:
            return {"Retry-After": f"{seconds:g}"}
        case LimitFault.WAIT_MS:
            return {"retry-after-ms": f"{seconds * 1000:g}"}
        case LimitFault.WAIT_DATE:
            return {"Retry-After": formatdate(now_ms / 1000 + seconds, usegmt=True)}
        case LimitFault.WAIT_UNKNOWN | LimitFault.QUOTA:
            return {}
        case _ as never:
            assert_never(never)


async def send_reply(
    request: web.Request, reply: PracticeReply, fault: AnyFault | None, faults: Faults, clock: Clock
) -> web.StreamResponse:
    match fault:
        case DeliveryFault():
            return await _send_badly(request, reply, fault, faults, clock)
        case BodyFault():
            return _send_whole(broken_reply(fault, reply, faults.huge_bytes))
        case None | int() | LimitFault() | UsageFault() | BatchFault() | ResponseFault() | AnswerFault():
            if reply.stream is None:
                return _send_whole(reply)
            return await _send_stream(request, reply, reply.stream)
        case _ as never:
            assert_never(never)


async def _send_badly(
    request: web.Request, reply: PracticeReply, fault: DeliveryFault, faults: Faults, clock: Clock
) -> web.StreamResponse:
    match fault:
        case DeliveryFault.CUT | DeliveryFault.CUT_BILLED:
            return cut_connection(request)
        case DeliveryFault.HANG | DeliveryFault.HANG_BILLED:
            while not _is_closed(request):
                await clock.sleep(_HANG_CHECK_SECONDS)
            return cut_connection(request)
        case DeliveryFault.CUT_HALF:
            if reply.stream is not None:
                return await _send_stream(request, reply, reply.stream, pieces_max=max(reply.stream.pieces // 2, 1))
            return await _send_half(request, reply)
        case DeliveryFault.SLOW:
            if reply.stream is not None:
                return await _send_stream(request, reply, reply.stream)
            return await _send_slowly(request, reply, faults.slow_seconds, clock)
        case _ as never:
            assert_never(never)


def cut_connection(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)  # aiohttp wants a response; nobody receives it


def _is_closed(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _send_whole(reply: PracticeReply) -> web.Response:
    return web.Response(status=reply.status, body=reply.body, headers=reply.headers)


async def _send_stream(
    request: web.Request, reply: PracticeReply, stream: ReplyStream, pieces_max: int | None = None
) -> web.StreamResponse:
    """All of a stream, or its first pieces and then the connection is cut."""
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    await response.prepare(request)
    sent = 0
    async for piece in stream.body:
        await response.write(piece)
        sent += 1
        if sent == pieces_max:
            return cut_connection(request)
    return response


async def _start_sized(request: web.Request, reply: PracticeReply) -> web.StreamResponse:
    """Announces the length of the whole body."""
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    response.content_length = len(reply.body)
    await response.prepare(request)
    return response


async def _send_half(request: web.Request, reply: PracticeReply) -> web.StreamResponse:
    response = await _start_sized(request, reply)
    await response.write(reply.body[: len(reply.body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


async def _send_slowly(request: web.Request, reply: PracticeReply, seconds: float, clock: Clock) -> web.StreamResponse:
    response = await _start_sized(request, reply)
    size = len(reply.body) // SLOW_PIECES + 1
    for start in range(0, len(reply.body), size):
        if _is_closed(request):
            break
        await response.write(reply.body[start : start + size])
        await clock.sleep(seconds / SLOW_PIECES)
    return response


def broken_reply(fault: BodyFault, right: PracticeReply, huge_bytes: int) -> PracticeReply:
    """The reply that is sent instead of the right one."""
    match fault:
        case BodyFault.HTML:
            return PracticeReply(200, _ERROR_PAGE, {"Content-Type": "text/html"})
        case BodyFault.TYPE:
            return PracticeReply(200, b'["choices", {"usage": "none"}, 3]')
        case BodyFault.CHARSET:
            headers = {"Content-Type": "application/json; charset=no-such-set"}
            return PracticeReply(200, b'{"choices": "\xff\xfe\xc3"}', headers)
        case BodyFault.TRUNCATED:
            return right._replace(body=right.body[: len(right.body) * 2 // 3])
        case BodyFault.EMPTY:
            return right._replace(body=b"")
        case BodyFault.HUGE:
            return PracticeReply(200, b'{"choices": "%s"}' % (b"x" * huge_bytes))
        case BodyFault.BOMB:
            return PracticeReply(200, gzip_bomb(), {**JSON, "Content-Encoding": "gzip"})
        case _ as never:
            assert_never(never)


@functools.cache
def gzip_bomb() -> bytes:
    """A gigabyte of blanks in a megabyte of gzip. The checksum is wrong, but no client should read that far."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = packer.compress(b'{"choices": "') + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush the packer has forgotten all earlier data, so the same piece can be repeated.
    piece = packer.compress(b" " * _BOMB_PIECE_BYTES) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + piece * (BOMB_BYTES // _BOMB_PIECE_BYTES) + packer.flush(zlib.Z_FINISH)
