"""A load of GET requests over connections that stay open, with as little of a client as can be: the server decides."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from urllib.parse import urlsplit

import uvloop

from bench.probes import NotMeasured

CONNECTIONS = 32
WARM_UP = 500


class Asker(asyncio.Protocol):
    """Sends the same request again and again, each after the answer to the one before."""

    def __init__(self, request: bytes, left: list[int], done: asyncio.Future[None]) -> None:
        self.request = request
        self.left = left  # one count for all connections
        self.done = done
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment] # uvloop's own
        self.ask()

    def ask(self) -> None:
        if self.left[0] > 0:
            self.left[0] -= 1
            self.transport.write(self.request)
        else:
            self.transport.close()
            if not self.done.done():
                self.done.set_result(None)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        if not head.startswith(b"HTTP/1.1 200 "):
            self.fail(f"the server said {head[:60]!r}")
            return
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if len(body) >= int(length):
            self.buffer = b""
            self.ask()

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(f"the server hung up: {exc}")

    def fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(NotMeasured(why))


async def _ask_all(url: str, request: bytes, n: int) -> float:
    place = urlsplit(url)
    loop = asyncio.get_running_loop()
    left = [n]
    started = time.perf_counter()
    done: list[asyncio.Future[None]] = [loop.create_future() for _ in range(CONNECTIONS)]
    for each in done:
        await loop.create_connection(partial(Asker, request, left, each), str(place.hostname), int(place.port or 80))
    await asyncio.gather(*done)
    return time.perf_counter() - started


def requests_per_second(url: str, path: str, n: int, key: str = "") -> float:
    """The same GET n times over all connections together; every answer must be a 200."""
    request = f"GET {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nAuthorization: Bearer {key}\r\n\r\n".encode()

    async def whole() -> float:
        await _ask_all(url, request, WARM_UP)
        return await _ask_all(url, request, n)

    return n / uvloop.run(whole())
