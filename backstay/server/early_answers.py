"""An answer to a sender who is still sending: it is given time to hear it, and then cut off."""

import asyncio
from contextlib import suppress
from typing import Final

from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

LINGER_SECONDS: Final = 3.0
LINGER_BYTES_MAX: Final = 32 << 20


class LingeringResponse(JSONResponse):
    """Closes the connection only after reading on for a while.

    Closed at once, with bytes of the sender still unread, the system would reset the connection, and with it throw away
    the answer before the sender sees it.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        headers = [*self.raw_headers, (b"connection", b"close")]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                await _read_on(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _read_on(receive: Receive) -> None:
    left = LINGER_BYTES_MAX
    while left > 0:
        message = await receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            return
        left -= len(message.get("body", b""))
