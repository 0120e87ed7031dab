"""A bound on bodies that are held in memory: frameworks read them whole before anyone has looked at the key.

So it is looked at here, before the first byte: a stranger must not fill the memory with bodies that never end.
"""

import asyncio
from typing import Final

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backstay.server.auth import principal
from backstay.server.problems import OPENAI_PATHS, Problem, said

BODY_BYTES_MAX: Final = 4 << 20
READ_SECONDS: Final = 60.0  # for all of a body
KEYED: Final = ("/api/", *OPENAI_PATHS)
TOO_LARGE: Final = f"the body has more than {BODY_BYTES_MAX:,} bytes"
CUT_OFF: Final = {"connection": "close"}
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
        try:
            if declared.isdigit() and int(declared[:20]) > BODY_BYTES_MAX:
                raise Problem(413, TOO_LARGE, lingers=True)
            if scope["path"].startswith(KEYED):
                await principal(request)
        except Problem as problem:
            return await said(request, problem)(scope, receive, send)
        size, ends_at = 0, asyncio.get_running_loop().time() + READ_SECONDS
        whole = False

        async def counted() -> Message:
            nonlocal size, whole
            try:
                async with asyncio.timeout_at(None if whole else ends_at):  # then it is the end that is waited for
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, "the body did not come in time", CUT_OFF) from None
            size += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if size > BODY_BYTES_MAX:
                raise HTTPException(413, TOO_LARGE, CUT_OFF)  # a Problem would come out as what FastAPI makes of it
            return message

        return await self._app(scope, counted, send)
