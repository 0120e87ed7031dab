"""Limits of requests. Bodies: read whole up to a limit, or line by line; checked for key, size and time. Rate limits:
requests per key and minute, counted in Redis for all processes, or in this process without Redis.

The key is checked before the first byte of a body is read, so that a stranger cannot fill the memory. Bodies under /api
and /v1 are JSON that is held in memory, and are read here, whole. The few routes in `STREAMED` read their bodies piece
by piece and bound the size themselves; for them the time alone is bounded here.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Final, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backstay.clock import Clock
from backstay.llm import lines
from backstay.server.auth import principal
from backstay.server.cache import SharedState
from backstay.server.problems import OPENAI_PATHS, OPENAI_PREFIXES, Problem, problem_response
from backstay.server.service import service_of

HELD_BYTES_MAX: Final = 4 << 20
PATIENCE_SECONDS: Final = 60.0
BYTES_PER_SECOND_MIN: Final = 1_024
KEYED: Final = ("/api/", *OPENAI_PATHS)
# Whole paths: the id at the end of another path could look like one of these names.
STREAMED: Final = frozenset(
    ("POST", path)
    for path in (
        "/api/jobs",
        "/api/uploads",
        *(f"{prefix}/{name}" for prefix in OPENAI_PREFIXES for name in ("files", "messages/batches")),
    )
)
JOB_BYTES_MAX: Final = 16 << 20
LINE_BYTES_MAX: Final = 16 << 20

M = TypeVar("M", bound=BaseModel)


async def whole_bytes(request: Request, bytes_max: int, hint: str = "") -> bytes:
    """A body that fits into memory."""
    held = bytearray()
    async for chunk in body_chunks(request, bytes_max, hint):
        held += chunk
    return bytes(held)


async def whole_body(request: Request, shape: type[M]) -> M:
    """A JSON body that fits into memory, checked."""
    hint = "send the items as lines: content-type application/x-ndjson"
    held = await whole_bytes(request, JOB_BYTES_MAX, hint)
    check_characters(held)
    try:
        return shape.model_validate_json(held)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        if first["type"] == "json_invalid":
            raise Problem(422, f"the body is not JSON: {first['msg'].removeprefix('Invalid JSON: ')}") from None
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise Problem(422, f"{where}: {first['msg']}") from None


def check_characters(body: bytes) -> None:
    """Raises a Problem if a JSON body contains a lone surrogate: no database and no encoder accepts it.

    JSON can write it as an escape, and Python's reader also takes it as bytes that are not UTF-8, and in UTF-16.
    """
    if body.isascii() and b"\\u" not in body and b"\0" not in body:
        return
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        hint = "write both halves of the surrogate pair, or leave it out"
        raise Problem(400, "a text in the body contains a lone surrogate (half of a character)", hint=hint) from None
    except (ValueError, RecursionError):
        return  # it is not JSON; the route reports that


async def numbered_lines(request: Request, bytes_max: int) -> AsyncIterator[tuple[int, str]]:
    """Every line that is not blank, with its number, from 1."""
    rest, number = bytearray(), 0  # grows in place: a line that comes byte by byte is not copied for each of them
    async for chunk in body_chunks(request, bytes_max, "split it into several jobs"):
        *whole, last = chunk.split(b"\n")
        for line in whole:
            number += 1
            if text := _text(number, bytes(rest) + line):
                yield number, text
            rest.clear()
        rest += last
        _check_length(number + 1, rest)
    if text := _text(number + 1, bytes(rest)):
        yield number + 1, text


def _text(number: int, line: bytes) -> str:
    _check_length(number, line)
    try:
        return lines.text_of(line)
    except lines.LineRefused as refused:
        raise Problem(422, f"line {number} {refused}") from None


def _check_length(number: int, line: bytes | bytearray) -> None:
    if len(line) > LINE_BYTES_MAX:
        raise Problem(413, f"line {number} has more than {LINE_BYTES_MAX:,} bytes", hint="write one item per line")


async def body_chunks(request: Request, bytes_max: int, hint: str) -> AsyncIterator[bytes]:
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "a compressed body is not supported", hint="send the body uncompressed")
    too_large = Problem(413, f"the body has more than {bytes_max:,} bytes", hint=hint)
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared[:20]) > bytes_max:
        raise too_large
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > bytes_max:
                raise too_large
            yield chunk
    except ClientDisconnect:
        raise Problem(400, "the body ended too early") from None


class BodyLimits:
    """The middleware that checks the key before a body is read, and limits size and time of bodies."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "GET":
            return await self._app(scope, receive, send)
        request = Request(scope)
        is_keyed = scope["path"].startswith(KEYED)
        is_streamed = (scope["method"], scope["path"]) in STREAMED
        body = Body(receive, is_streamed)
        try:
            if not is_streamed:
                _check_declared_length(request)
            if is_keyed:
                await principal(request)
            if is_keyed and not is_streamed:
                await body.hold()
        except Problem as problem:
            return await problem_response(request, problem)(scope, receive, send)
        return await self._app(scope, body.receive, send)


class Body:
    """A body while it arrives. Waiting for it uses up patience, and each byte of a streamed body gives some of it back.

    So a sender that is silent for a minute, or slower than `BYTES_PER_SECOND_MIN` for longer, is cut off; one that
    makes progress is not, however long it takes. The time that the service takes to store what came costs no patience.
    """

    def __init__(self, receive: Receive, is_streamed: bool) -> None:
        self._receive = receive
        self._is_streamed = is_streamed
        self._patience = PATIENCE_SECONDS
        self._size = 0
        self._held: Message | None = None
        self._over = False  # nothing more is expected

    async def hold(self) -> None:
        """Reads all of it, and refuses text that no database can store."""
        pieces = []
        while not self._over:
            message = await self.receive()
            pieces.append(message.get("body", b""))
        body = b"".join(pieces)
        check_characters(body)
        self._held = {**message, "body": body}

    async def receive(self) -> Message:
        if self._held is not None:
            held, self._held = self._held, None
            return held
        return await (self._receive() if self._over else self._next())

    async def _next(self) -> Message:
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(began + self._patience):
                message = await self._receive()
        except TimeoutError:
            self._over = True
            hint = f"send at least {BYTES_PER_SECOND_MIN:,} bytes a second"
            raise Problem(408, "the body did not arrive in time", hint=hint, lingers=True) from None
        size = len(message.get("body", b""))
        self._size += size
        self._over = not message.get("more_body", False)
        self._patience -= asyncio.get_running_loop().time() - began
        if self._is_streamed:
            self._patience = min(self._patience + size / BYTES_PER_SECOND_MIN, PATIENCE_SECONDS)
        elif self._size > HELD_BYTES_MAX:
            self._over = True
            raise _too_large()
        return message


def _check_declared_length(request: Request) -> None:
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared[:20]) > HELD_BYTES_MAX:
        raise _too_large()


def _too_large() -> Problem:
    return Problem(413, f"the body has more than {HELD_BYTES_MAX:,} bytes", lingers=True)


WINDOW_SECONDS: Final = 60
COUNTED_HERE_MAX: Final = 100_000  # names in one minute; more are counted together
CALLBACKS: Final = "/callbacks/"
PATHS: Final = ("/api/", CALLBACKS, *OPENAI_PATHS)
_THE_REST: Final = "the rest"


class RateLimit:
    """One count for each name and minute."""

    def __init__(self, clock: Clock, per_minute: int, shared: SharedState | None = None) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._shared = shared
        self._window = 0
        self._here: dict[str, int] = {}

    async def hit(self, name: str) -> tuple[int, int]:
        """How many requests the name has left after this one (below 0: this one was too many), and the
        seconds until the next window."""
        now = self._clock.now_ms() // 1000
        window = now // WINDOW_SECONDS
        here = self._count_here(name, window)
        found = None
        if self._shared is not None:
            found = await self._shared.count(f"rate:{name}:{window}", 2 * WINDOW_SECONDS)
        # The local count also applies if Redis has lost its own.
        return self.per_minute - max(here, found or 0), WINDOW_SECONDS - now % WINDOW_SECONDS

    def _count_here(self, name: str, window: int) -> int:
        if window != self._window:
            self._window = window
            self._here = {}
        if name not in self._here and len(self._here) >= COUNTED_HERE_MAX:
            name = _THE_REST
        self._here[name] = counted = self._here.get(name, 0) + 1
        return counted


class RateLimitMiddleware:
    """Counts each request before anything is done for it, and adds the remaining number to its answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PATHS):
            return await self._app(scope, receive, send)
        request = Request(scope)
        limit = service_of(request).rate_limit
        left, reset = await limit.hit(await _counter_name(request))
        headers = {
            "ratelimit-policy": f'"requests";q={limit.per_minute};w={WINDOW_SECONDS}',
            "ratelimit": f'"requests";r={max(left, 0)};t={reset}',
        }
        if left < 0:
            await problem_response(request, _too_many(limit.per_minute, {**headers, "retry-after": str(reset)}))(
                scope, receive, send
            )
            return None
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *raw]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _too_many(per_minute: int, headers: dict[str, str]) -> Problem:
    why = f"rate limit exceeded: more than {per_minute:,} requests in a minute"
    return Problem(429, why, hint="wait for the seconds in Retry-After", headers=headers, label="rate_limit_exceeded")


def address_counter(request: Request, what: str) -> str:
    """The count of an address, one for each purpose: guesses of keys do not use up the logins of the same address."""
    return f"{what}:{request.client.host if request.client else ''}"


async def _counter_name(request: Request) -> str:
    """One counter for each key. Requests without a valid key share that of their address, which limits guessing."""
    if request.url.path.startswith(CALLBACKS):
        return address_counter(request, "callbacks")
    try:
        found = await principal(request)
    except Problem:
        return address_counter(request, "keys")
    return f"key:{found.key_id}" if found.key_id else f"here:{found.owner}"
