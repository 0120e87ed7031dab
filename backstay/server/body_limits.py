"""Bounds on the bodies of requests: whose they are, how large they may be, and how long they are waited for.

The key is checked before the first byte of a body is read, so that a stranger cannot fill the memory. Bodies under /api
and /v1 are JSON that is held in memory, and are read here, whole. The few routes in `STREAMED` read their bodies piece
by piece and bound the size themselves; for them the time alone is bounded here.
"""

import asyncio
from typing import Final

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backstay.server.auth import principal
from backstay.server.problems import OPENAI_PATHS, OPENAI_PREFIXES, Problem, problem_response
from backstay.server.request_bodies import check_characters

BODY_BYTES_MAX: Final = 4 << 20
PATIENCE_SECONDS: Final = 60.0
BYTES_PER_SECOND_MIN: Final = 1_024
KEYED: Final = ("/api/", *OPENAI_PATHS)
# Whole paths: by its end alone, a path whose last part is an id could be any of them.
STREAMED: Final = frozenset(
    ("POST", path) for path in ("/api/jobs", "/api/uploads", *(f"{prefix}/files" for prefix in OPENAI_PREFIXES))
)


class BodyLimits:
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
                _check_length(request)
            if is_keyed:
                await principal(request)
            if is_keyed and not is_streamed:
                await body.hold()
        except Problem as problem:
            return await problem_response(request, problem)(scope, receive, send)
        return await self._app(scope, body.receive, send)


class Body:
    """A body as it comes in. Waiting for it uses up patience, and each byte of a streamed body gives some of it back.

    So a sender who is silent for a minute, or slower than `BYTES_PER_SECOND_MIN` for longer, is cut off; one who makes
    progress is not, however long it takes. The time that the service takes to store what came costs no patience.
    """

    def __init__(self, receive: Receive, is_streamed: bool) -> None:
        self._receive = receive
        self._is_streamed = is_streamed
        self._patience = PATIENCE_SECONDS
        self._size = 0
        self._held: Message | None = None
        self._over = False  # nothing of it is waited for any more

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
        elif self._size > BODY_BYTES_MAX:
            self._over = True
            raise _too_large()
        return message


def _check_length(request: Request) -> None:
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared[:20]) > BODY_BYTES_MAX:
        raise _too_large()


def _too_large() -> Problem:
    return Problem(413, f"the body has more than {BODY_BYTES_MAX:,} bytes", lingers=True)
