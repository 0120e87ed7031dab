"""One kept connection to a provider: a request is written in one piece, and one answer or an error comes back. And the
way to a host: its proxy, and probes that keep a silent connection open."""

import asyncio
import base64
import socket
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import SplitResult
from urllib.request import getproxies, proxy_bypass

import httptools
from yarl import URL

from backstay.core.errors import OutcomeUnknown, UsageError

HEAD_BYTES_MAX: Final = 64 << 10
LARGE_BYTES: Final = 1 << 20
LARGE_AT_ONCE_MAX: Final = 4
ERROR_BYTES_MAX: Final = 64 << 10  # a refusal needs less
_AT_ONCE_BYTES_MAX: Final = 64 << 10  # longer bodies are not copied together with their headers
_GZIP: Final = zlib.MAX_WBITS | 16
_GZIP_MARK: Final = 0x1F
_MEMBERS_MAX: Final = 1_000  # of one compressed answer: very many empty ones would keep the event loop busy
_NOT_UNPACKED: Final = ("br", "zstd")  # any other unknown word, such as "utf-8", means a plain body
_NAMES_REMEMBERED_MAX: Final = 1_000
_NAMES: Final[dict[bytes, str]] = {}  # of headers, as they were written
# Below the five seconds after which many servers drop an idle connection: a request must not cross with the server's
# close.
KEEPALIVE_SECONDS: Final = 4.0
ADDRESS_SECONDS: Final = 60.0
NEXT_ADDRESS_SECONDS: Final = 0.25
# A call may be silent for many minutes, and many NATs drop a silent connection sooner. No platform has all of these
# options: macOS has the second instead of the first.
_PROBES: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPALIVE", 60), ("TCP_KEEPINTVL", 30), ("TCP_KEEPCNT", 5))


class HttpAnswer(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes | bytearray
    cut: bool = False  # there was more than is ever read


class Reader(Protocol):
    def read_on(self) -> None: ...


class LargeReplies:
    """Keeps few large replies in memory at once: most are short, and a thousand long ones would fill a machine.

    A connection that has read much waits for its turn to read on.
    """

    def __init__(self, at_once_max: int = LARGE_AT_ONCE_MAX) -> None:
        self._at_once_max = at_once_max
        self._inside: set[Reader] = set()
        self._waiting: deque[Reader] = deque()

    def enter(self, reader: Reader) -> bool:
        """Whether it may read on; if not, it is called back when it may."""
        if reader in self._inside:
            return True
        if len(self._inside) < self._at_once_max:
            self._inside.add(reader)
            return True
        if reader not in self._waiting:
            self._waiting.append(reader)
        return False

    def leave(self, reader: Reader) -> None:
        if reader in self._inside:
            self._inside.discard(reader)
            if self._waiting:
                following = self._waiting.popleft()
                self._inside.add(following)
                following.read_on()
        elif reader in self._waiting:
            self._waiting.remove(reader)


class Connection(asyncio.Protocol):
    """Every error after a request was written leaves its outcome unknown, and closes the connection.

    Nothing here is awaited but the answer: with thousands of short exchanges a second, every task and every timer
    between the socket and the caller costs more than reading the answer.
    """

    def __init__(self, large_replies: LargeReplies, bytes_max: int) -> None:
        self._large_replies = large_replies
        self._bytes_max = bytes_max
        self._transport: Any = None  # asyncio's and uvloop's have no class in common
        self._parser: Any = None
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.idle_since = 0.0
        self._forget()

    def _forget(self) -> None:
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._size = 0  # received, still compressed
        self._status = 0  # of the answer, once its headers are there
        self._limit = 0
        self._to_the_end = False  # the body ends where the connection does
        self._unpack: Any = None

    # --- for the caller

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, head: bytes, body: bytes, seconds: float, ends_at: float) -> "asyncio.Future[HttpAnswer]":
        """Writes a request; the answer comes with the future. Its connection must be usable and idle."""
        loop = asyncio.get_running_loop()
        self._forget()
        self._parser = _lenient_parser(self)
        self._answer = loop.create_future()
        self._timer = loop.call_at(ends_at, self._break, f"no answer within {seconds:g} s")
        if len(body) <= _AT_ONCE_BYTES_MAX:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
        return self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        if self._timer is not None:
            self._timer.cancel()
        self._large_replies.leave(self)

    def read_on(self) -> None:
        """There is room for a large answer."""
        if self.usable:
            self._transport.resume_reading()

    # --- for the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # unexpected data must not be mistaken for the answer to the next request
            return
        self._size += len(data)
        if self._status == 0 and self._size > HEAD_BYTES_MAX + len(data):
            self._break("the provider's answer is not HTTP: its headers do not end")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._break("the provider's answer is not HTTP: it changes to another protocol")
        except httptools.HttpParserError as error:
            self._break(f"the provider's answer is not HTTP: {error}")
        if (
            self._size > LARGE_BYTES
            and self._status
            and not self._answer.done()
            and not self._large_replies.enter(self)
        ):
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            if self._to_the_end:  # or by a reset: half a JSON object cannot be parsed, so a cut is noticed
                self.on_message_complete()
            else:
                self._break("the provider closed the connection before its answer was complete")
        self._transport = None
        self._large_replies.leave(self)

    # --- for the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        if 0 in value:
            self._break("the provider's answer is not HTTP: there is a NUL in a header")
        if self._status:
            return  # trailers after the body are ignored
        self._headers[_NAMES.get(name) or _name(name)] = decode(value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        if self._status:
            self.close()  # a second answer to one request
            return
        status = self._parser.get_status_code()
        if status < 200:  # an interim status: the answer follows
            self._headers = {}
            return
        headers = self._headers
        self._status = status
        self._limit = self._bytes_max if status < 300 else ERROR_BYTES_MAX
        coding = headers.get("transfer-encoding")
        if coding is None:
            self._to_the_end = "content-length" not in headers
        else:
            self._to_the_end = coding.rpartition(",")[2].strip(" \t").lower() != "chunked"
        if "content-encoding" in headers:
            self._unpack = unpacker(headers["content-encoding"].strip().lower())

    def on_body(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            return
        try:
            self._body += self._unpack(data, self._limit + 1 - len(self._body)) if self._unpack else data
        except zlib.error as error:
            self._break(f"the provider's answer cannot be decompressed: {error}")
            return
        if len(self._body) > self._limit:
            self._end(cut=True)
            self.close()

    def on_message_complete(self) -> None:
        if self._status == 0 or self._answer is None or self._answer.done():
            return
        if isinstance(self._unpack, _Unpack) and not self._unpack.whole:
            self._break("the provider's compressed answer is incomplete")
            return
        self._end()
        if self._to_the_end or not self._parser.should_keep_alive():
            self.close()

    def _end(self, cut: bool = False) -> None:
        assert self._answer is not None, "an answer without a request"
        if self._timer is not None:
            self._timer.cancel()
        body = self._body[: min(self._limit, ERROR_BYTES_MAX)] if cut else self._body
        self._answer.set_result(HttpAnswer(self._status, self._headers, body, cut))
        self._large_replies.leave(self)

    def _break(self, why: str) -> None:
        """A refusal is certain by its status alone; in every other case the outcome is unknown."""
        if self._answer is not None and not self._answer.done():
            if self._status >= 300:
                self._answer.set_result(HttpAnswer(self._status, self._headers, b"", cut=True))
            else:
                self._answer.set_exception(OutcomeUnknown(why))
        self.close()


def _lenient_parser(protocol: Connection) -> httptools.HttpResponseParser:
    """Accepts what aiohttp accepts: folded headers, line feeds alone, spaces after the size of a chunk.

    None of these leaves open where an answer ends. An answer with two lengths does, so it is refused.
    """
    parser = httptools.HttpResponseParser(protocol)
    parser.set_dangerous_leniencies(
        lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
    )
    return parser


def decode(raw: bytes | bytearray) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("utf-8", "surrogateescape")


def _name(written: bytes) -> str:
    """The name of a header in lower case; a provider sends the same ones every time."""
    if len(_NAMES) >= _NAMES_REMEMBERED_MAX:
        _NAMES.clear()
    return _NAMES.setdefault(written, decode(written).lower())


class _Unpack:
    """Decompresses in steps, never more than asked for: a few bytes can stand for very many."""

    def __init__(self, bits: int | None) -> None:
        self._bits = bits
        self._machine: Any = None  # of the gzip member that is being read; there may be several in a row
        self._members = 0

    def __call__(self, data: bytes, bytes_max: int) -> bytes:
        unpacked = b""
        while data and len(unpacked) < bytes_max:
            if self._machine is None or self._machine.eof:
                if self._members and self._bits == _GZIP and data[0] != _GZIP_MARK:
                    break  # some servers pad after the last member
                self._machine = self._next(data)
            unpacked += self._machine.decompress(data, bytes_max - len(unpacked))
            data = self._machine.unused_data
        return unpacked

    def _next(self, data: bytes) -> Any:
        self._members += 1
        if self._members > _MEMBERS_MAX:
            raise zlib.error(f"it is compressed in more than {_MEMBERS_MAX} pieces")
        if self._bits is None:  # some servers mean the bare stream by it, others the one with a header
            self._bits = zlib.MAX_WBITS if data[0] & 0xF == 8 else -zlib.MAX_WBITS
        return zlib.decompressobj(self._bits)

    @property
    def whole(self) -> bool:
        return self._machine is None or bool(self._machine.eof)


def unpacker(packed: str) -> Callable[[bytes, int], bytes] | None:
    if packed in ("gzip", "x-gzip"):
        return _Unpack(_GZIP)
    if packed == "deflate":
        return _Unpack(None)
    return _refuse if packed in _NOT_UNPACKED else None


def _refuse(data: bytes, bytes_max: int) -> bytes:
    raise zlib.error("it has a compression that was not asked for")


# The way to a host


def send_probes(sock: socket.socket) -> None:
    """Turns TCP keepalive on: the kernel checks from time to time whether the other side is still there."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES:
        if (option := getattr(socket, name, None)) is not None:
            with suppress(OSError):  # a kernel without this option uses its own default
                sock.setsockopt(socket.IPPROTO_TCP, option, value)


class Proxy(NamedTuple):
    url: URL  # without its login
    headers: dict[str, str]


def proxy_of(base: SplitResult) -> Proxy | None:
    """The proxy of the scheme, otherwise the one for all schemes, as in curl and httpx; None for a host in no_proxy."""
    named = getproxies()
    scheme = base.scheme if named.get(base.scheme) else "all"
    if not named.get(scheme) or proxy_bypass(base.netloc):
        return None
    proxy = _url(named[scheme])
    if proxy.scheme not in ("http", "https") or not proxy.host:
        said = "a SOCKS proxy" if proxy.scheme.startswith("socks") else "an invalid proxy URL"
        raise UsageError(
            f"the variable {scheme}_proxy (or {scheme.upper()}_PROXY) names {said}; only HTTP proxies are supported",
            hint="set it to an http:// or https:// proxy, or add the host to no_proxy to connect without a proxy",
        )
    if proxy.user is None:
        return Proxy(proxy, {})
    login = base64.b64encode(f"{proxy.user}:{proxy.password or ''}".encode()).decode()
    # Under this name aiohttp takes a proxy's login for requests through a tunnel and for those without one.
    return Proxy(proxy.with_user(None), {"Authorization": f"Basic {login}"})


def _url(named: str) -> URL:
    try:
        return URL(named if "://" in named else f"http://{named}")
    except ValueError:
        return URL()
