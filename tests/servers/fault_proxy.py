"""A TCP proxy of the tests' own, which can do to a connection what a network does: cut it, swallow it, slow it down."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum, auto
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

HOST = "127.0.0.1"
PIECE_BYTES = 1 << 16


class Fault(Enum):
    NONE = auto()
    CUT = auto()  # nobody listens, and open connections were reset
    BLACK_HOLE = auto()  # connections open and stay, and nothing that is sent arrives, in either direction
    DEAF = auto()  # what the client sends vanishes; what the server sends arrives: half-open


class FaultProxy:
    """`async with FaultProxy(host, port) as proxy:` passes everything on until it is told otherwise.

    Faults hold for the connections that are open and for those to come. It lives in the test's event loop, so a test
    may count on a fault as soon as the call has returned.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._fault = Fault.NONE
        self._passing = asyncio.Event()
        self._passing.set()
        self.delay_seconds = 0.0  # before each piece is passed on; with `delay`
        self.port = 0
        self.connections = 0  # that were ever opened through it
        self.vanished = 0  # bytes that came and were not passed on

    @property
    def open(self) -> int:
        """How many connections go through it now."""
        return len(self._links)

    @classmethod
    def of(cls, url: str) -> Self:
        """In front of the server that a URL names."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        return cls(parts.hostname, parts.port)

    def url(self, url: str) -> str:
        """The same URL with this proxy in the server's place."""
        parts = urlsplit(url)
        account = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        return urlunsplit(parts._replace(netloc=f"{account}{HOST}:{self.port}"))

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._refuse()
        self._passing.set()
        self.reset()
        if self._serving:
            await asyncio.wait(self._serving)

    async def pass_on(self) -> None:
        """All is well again: for connections still open too, but what vanished is gone."""
        self._fault = Fault.NONE
        self.delay_seconds = 0.0
        self._passing.set()
        await self._listen()

    async def cut(self) -> None:
        """Nobody is there: open connections are reset, new ones refused."""
        self._fault = Fault.CUT
        await self._refuse()
        self.reset()

    def black_hole(self) -> None:
        """Bytes vanish both ways, and nobody is told."""
        self._fault = Fault.BLACK_HOLE

    def half_open(self) -> None:
        """What the client sends vanishes, and what the server sends still arrives."""
        self._fault = Fault.DEAF

    def forget(self) -> None:
        """Open connections go silent for good, and nobody is told; new ones are fine. Routers do so."""
        for link in self._links:
            link.forgotten = True

    def stall(self) -> None:
        """Open connections stand still for good: nothing more is taken from them; new ones are fine."""
        for link in self._links:
            link.stalled = True

    def delay(self, seconds: float) -> None:
        """Every piece is late by so much, in both directions."""
        self.delay_seconds = seconds

    def hold(self) -> None:
        """Nothing moves until `pass_on`, and nothing is lost: a network that stands still."""
        self._passing.clear()

    def reset(self) -> None:
        """Resets the open connections; new ones are welcome unless it was cut."""
        for link in list(self._links):
            link.reset()

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, HOST, self.port, reuse_address=True)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            behind = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(writer, behind[1])
        self._links.add(link)
        if self._server is None:  # it was cut meanwhile
            link.reset()
        try:
            await asyncio.gather(
                self._carry(reader, behind[1], link, (Fault.BLACK_HOLE, Fault.DEAF)),
                self._carry(behind[0], writer, link, (Fault.BLACK_HOLE,)),
            )
        finally:
            self._links.discard(link)
            link.reset()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: "_Link", deadly: Sequence[Fault]
    ) -> None:
        """One direction, in which bytes vanish under these faults. A reset is passed on as one."""
        try:
            while piece := await reader.read(PIECE_BYTES):
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                await self._passing.wait()
                if link.stalled:
                    await link.ended.wait()
                    return
                if self._fault not in deadly and not link.forgotten:
                    writer.write(piece)
                    await writer.drain()
                else:
                    self.vanished += len(piece)
            if self._fault not in deadly and not link.forgotten and writer.can_write_eof():
                writer.write_eof()
        except OSError:
            if self._fault not in deadly and not link.forgotten:
                link.reset()


class _Link:
    """One connection through the proxy: its two ends."""

    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self._writers = writers
        self.forgotten = False
        self.stalled = False
        self.ended = asyncio.Event()

    def reset(self) -> None:
        self.ended.set()
        for writer in self._writers:
            end = writer.get_extra_info("socket")
            if end is not None and not writer.transport.is_closing():
                with suppress(OSError):
                    # Closed with nothing to linger for, so that the other side sees a reset and not an end.
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            writer.transport.abort()
