"""A digest of a request's body, made while somebody else reads it."""

import hashlib
import re
from typing import Final

from starlette.types import Message, Receive

_BOUNDARY: Final = re.compile(r'^multipart/[^;]+;.*\bboundary="?([^";]{1,70})"?', re.IGNORECASE)


class BodyDigest:
    """Takes the body's place: what is received through it is digested as it passes.

    The boundary between the parts of a form is left out: a client draws a new one each time it sends the same form.
    """

    def __init__(self, receive: Receive, start: bytes, content_type: str, bytes_max: int) -> None:
        self._receive = receive
        self._digest = hashlib.sha256(start + b"\0")
        found = _BOUNDARY.match(content_type)
        self._boundary = found[1].encode() if found else b""
        self._tail = b""  # may be the beginning of a boundary
        self._left = bytes_max
        self._whole = False
        self._gone = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._gone = True
        elif not self._whole:
            self._add(message.get("body", b""))
            self._whole = not message.get("more_body", False)
        return message

    async def drain(self) -> bool:
        """Reads what nobody has read; says whether the body came whole and is not larger than any that is taken."""
        while not self._whole and not self._gone and self._left >= 0:
            await self.receive()
        return self._whole and self._left >= 0

    def hexdigest(self) -> str:
        """Of the whole body: nothing may be added after."""
        self._digest.update(self._tail)
        self._tail = b""
        return self._digest.hexdigest()

    def _add(self, chunk: bytes) -> None:
        self._left -= len(chunk)
        if not self._boundary:
            self._digest.update(chunk)
            return
        *before, last = (self._tail + chunk).split(self._boundary)
        for piece in before:
            self._digest.update(piece)
        keep = len(last) - len(self._boundary) + 1
        self._digest.update(last[: max(keep, 0)])
        self._tail = last[max(keep, 0) :]
