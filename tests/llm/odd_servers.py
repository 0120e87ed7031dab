"""Servers that answer as no server should: a test says what goes back, byte for byte."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class OddServer:
    """Reads whole requests and keeps them. The answers are given in turn, the last one for ever."""

    def __init__(self, *answers: bytes | Answer) -> None:
        self.answers = answers
        self.requests: list[bytes] = []
        self.asked = asyncio.Event()
        self.connections = 0
        self.url = ""
        self._served: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def heads(self) -> list[str]:
        return [request.partition(b"\r\n\r\n")[0].decode() for request in self.requests]

    @property
    def bodies(self) -> list[bytes]:
        return [request.partition(b"\r\n\r\n")[2] for request in self.requests]

    @property
    def targets(self) -> list[str]:
        return [head.split(" ")[1] for head in self.heads]

    def header(self, name: str, number: int = 0) -> str | None:
        found = re.search(rf"^{name}: *(.*?)\r?$", self.heads[number], re.IGNORECASE | re.MULTILINE)
        return found[1] if found else None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["OddServer"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for writer in self._served.values():
                writer.transport.abort()
            await asyncio.gather(*self._served, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._served[task] = writer
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                self.requests.append(head + await reader.readexactly(int(length[1]) if length else 0))
                self.asked.set()
                answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
                if isinstance(answer, bytes):
                    writer.write(answer)
                else:
                    await answer(writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            writer.close()


def answer(body: bytes | str, status: int = 200, **headers: str) -> bytes:
    """A whole answer; header names are written with underscores."""
    raw = body.encode() if isinstance(body, str) else body
    named = {"content-type": "application/json", "content-length": str(len(raw))}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status} Odd\r\n{lines}\r\n".encode() + raw


def chunked(*pieces: bytes, end: bool = True, **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    head = f"HTTP/1.1 200 Odd\r\ntransfer-encoding: chunked\r\n{lines}\r\n".encode()
    return head + body + (b"0\r\n\r\n" if end else b"")


def then_closes(raw: bytes) -> Answer:
    async def close(writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()
        writer.close()

    return close


async def hangs_up(writer: asyncio.StreamWriter) -> None:
    writer.close()


async def resets(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def says_nothing(writer: asyncio.StreamWriter) -> None:
    """Until the client is tired of it."""
    await writer.wait_closed()
