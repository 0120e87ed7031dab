"""One kept connection to a provider: a request goes out in one piece, and one answer comes back, or an error."""

import asyncio
import zlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import httptools

from backstay.core.errors import OutcomeUnknown
from backstay.llm.crowd import LARGE_BYTES, Crowd

HEAD_BYTES_MAX: Final = 64 << 10
ERROR_BYTES_MAX: Final = 64 << 10  # a refusal says what it has to say in less
_AT_ONCE_BYTES_MAX: Final = 64 << 10  # longer bodies are not copied to stand beside their headers
_GZIP: Final = zlib.MAX_WBITS | 16


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes | bytearray
    cut: bool = False  # there was more than is ever read


class Connection(asyncio.Protocol):
    """Whatever goes wrong once a request was written leaves its outcome unknown; after it the connection is closed.

    Nothing here is awaited but the answer: with thousands of short exchanges a second, every task and every timer
    between the socket and who waits costs more than reading the answer does.
    """

    def __init__(self, crowd: Crowd, bytes_max: int) -> None:
        self._crowd = crowd
        self._bytes_max = bytes_max
        self._transport: Any = None  # asyncio's and uvloop's have no class in common
        self._parser: Any = None
        self._answer: asyncio.Future[Answer] | None = None
        self.idle_since = 0.0
        self._forget()

    def _forget(self) -> None:
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._size = 0  # of what came, as it came
        self._status = 0  # of the answer, once its headers are there
        self._limit = 0
        self._to_the_end = False  # the body ends where the connection does
        self._unpack: Any = None

    # --- for who asks

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, head: bytes, body: bytes, seconds: float, ends_at: float) -> "asyncio.Future[Answer]":
        """Writes a request; the answer comes with the future. Its connection must be usable, and at nothing else."""
        loop = asyncio.get_running_loop()
        self._forget()
        self._parser = httptools.HttpResponseParser(self)
        self._answer = loop.create_future()
        timer = loop.call_at(ends_at, self._break, f"no answer within {seconds:g} s")
        self._answer.add_done_callback(lambda _: timer.cancel())
        if len(body) <= _AT_ONCE_BYTES_MAX:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
        return self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._crowd.leave(self)

    def read_on(self) -> None:
        """There is room for a large answer."""
        if self.usable:
            self._transport.resume_reading()

    # --- for the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # what nobody asked for must not be taken for the answer to the next request
            return
        self._size += len(data)
        if self._status == 0 and self._size > HEAD_BYTES_MAX + len(data):
            self._break("the provider's answer is no HTTP: its headers do not end")
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self._answer.done():
                self._break(f"the provider's answer is no HTTP: {error}")
            else:
                self.close()
        if self._size > LARGE_BYTES and self._status and not self._answer.done() and not self._crowd.enter(self):
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            if self._to_the_end and exc is None:
                self.on_message_complete()
            else:
                self._break("the provider closed the connection before its answer was whole")
        self._transport = None
        self._crowd.leave(self)

    # --- for the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("utf-8", "surrogateescape").lower()] = value.decode("utf-8", "surrogateescape")

    def on_headers_complete(self) -> None:
        if self._status:
            self.close()  # a second answer to one request
            return
        status = self._parser.get_status_code()
        if status < 200:  # it says that there will be one
            self._headers = {}
            return
        headers = self._headers
        self._status = status
        self._limit = self._bytes_max if status < 300 else ERROR_BYTES_MAX
        self._to_the_end = "content-length" not in headers and "transfer-encoding" not in headers
        packed = headers.get("content-encoding", "").strip().lower()
        if packed and packed != "identity":
            self._unpack = _unpacker(packed)

    def on_body(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            return
        try:
            self._body += self._unpack(data, self._limit + 1 - len(self._body)) if self._unpack else data
        except zlib.error as error:
            self._break(f"the provider's answer cannot be unpacked: {error}")
            return
        if len(self._body) > self._limit:
            self._end(cut=True)
            self.close()

    def on_message_complete(self) -> None:
        if self._status == 0 or self._answer is None or self._answer.done():
            return
        if isinstance(self._unpack, _Unpack) and not self._unpack.whole:
            self._break("the provider's answer ends before it is unpacked")
            return
        self._end()
        if self._to_the_end or not self._parser.should_keep_alive():
            self.close()

    def _end(self, cut: bool = False) -> None:
        assert self._answer is not None, "an answer to no question"
        body = self._body[: min(self._limit, ERROR_BYTES_MAX)] if cut else self._body
        self._answer.set_result(Answer(self._status, self._headers, body, cut))
        self._crowd.leave(self)

    def _break(self, why: str) -> None:
        """A refusal is one by its status alone; of all else nobody knows what became of it."""
        if self._answer is not None and not self._answer.done():
            if self._status >= 300:
                self._answer.set_result(Answer(self._status, self._headers, b"", cut=True))
            else:
                self._answer.set_exception(OutcomeUnknown(why))
        self.close()


class _Unpack:
    """Unpacks as it comes, never more than is asked for: a few bytes can stand for very many."""

    def __init__(self, bits: int | None) -> None:
        self._bits = bits
        self._machine: Any = None if bits is None else zlib.decompressobj(bits)

    def __call__(self, data: bytes, bytes_max: int) -> bytes:
        if self._machine is None:  # some mean the bare stream by it, and some the one with a header
            self._machine = zlib.decompressobj(zlib.MAX_WBITS if data[0] & 0xF == 8 else -zlib.MAX_WBITS)
        return bytes(self._machine.decompress(data, bytes_max))

    @property
    def whole(self) -> bool:
        return self._machine is None or bool(self._machine.eof)


def _unpacker(packed: str) -> Callable[[bytes, int], bytes]:
    if packed in ("gzip", "x-gzip"):
        return _Unpack(_GZIP)
    if packed == "deflate":
        return _Unpack(None)
    return _refuse


def _refuse(data: bytes, bytes_max: int) -> bytes:
    raise zlib.error("it is packed in a way that was not asked for")
