"""A bound on bodies that are held in memory: frameworks read them whole before anyone has looked at the key."""

from typing import Final

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backstay.server.lines import BODY_BYTES_MAX
from backstay.server.problems import Problem, said

STREAMED: Final = (
    "/api/jobs",
    "/api/uploads",
    "/files",
)  # these take their bodies piece by piece, with bounds of their own


class Bounded:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "GET" or scope["path"].endswith(STREAMED):
            return await self._app(scope, receive, send)
        request = Request(scope)
        declared = request.headers.get("content-length", "0")
        if declared.isdigit() and int(declared[:20]) > BODY_BYTES_MAX:
            return await said(request, _too_large())(scope, receive, send)
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > BODY_BYTES_MAX:
                raise _too_large()
            return message

        return await self._app(scope, counted, send)


def _too_large() -> Problem:
    return Problem(413, f"the body has more than {BODY_BYTES_MAX:,} bytes", headers={"connection": "close"})
