"""The connections to one host: opened when needed, kept while they are used, and limited in number."""

import asyncio
import base64
import socket
import ssl
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar
from urllib.parse import SplitResult
from urllib.request import getproxies, proxy_bypass

from aiohappyeyeballs import AddrInfoType, start_connection
from yarl import URL

from backstay.clock import Tasks
from backstay.core.errors import ErrorCode, Transient, UsageError
from backstay.llm.http.connection import Connection, HttpAnswer, LargeReplies


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


# Below the five seconds after which many servers drop an idle connection: a request must not cross with the server's
# close.
KEEPALIVE_SECONDS: Final = 4.0
ADDRESS_SECONDS: Final = 60.0
NEXT_ADDRESS_SECONDS: Final = 0.25
# A call may be silent for many minutes, and many NATs drop a silent connection sooner. No platform has all of these
# options: macOS has the second instead of the first.
_PROBES: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPALIVE", 60), ("TCP_KEEPINTVL", 30), ("TCP_KEEPCNT", 5))

T = TypeVar("T")


def send_probes(sock: socket.socket) -> None:
    """Turns TCP keepalive on: the kernel checks from time to time whether the other side is still there."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES:
        if (option := getattr(socket, name, None)) is not None:
            with suppress(OSError):  # a kernel without this option uses its own default
                sock.setsockopt(socket.IPPROTO_TCP, option, value)


class Pool:
    """Sends every request once, over a connection of its own for as long as that takes."""

    def __init__(self, host: str, port: int, secure: bool, connections_max: int, bytes_max: int) -> None:
        self._host = host
        self._port = port
        self._ssl = ssl.create_default_context() if secure else None
        self._bytes_max = bytes_max
        self._large_replies = LargeReplies()
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()
        self._room = asyncio.Semaphore(connections_max)
        self._idle: list[Connection] = []  # the last one used is the first to be used again
        self._busy: set[Connection] = set()
        self._reaper: asyncio.TimerHandle | None = None
        self._addresses: asyncio.Task[list[AddrInfoType]] | None = None
        self._addresses_until = 0.0

    async def exchange(self, head: bytes, body: bytes, seconds: float, connect_seconds: float) -> HttpAnswer:
        """Transient when nothing was sent; OutcomeUnknown when it was sent and no answer came."""
        ends_at = self._loop.time() + seconds
        if self._room.locked():
            await self._in_time(self._room.acquire(), connect_seconds)
        else:
            await self._room.acquire()
        try:
            connection = self._last_used()
            if connection is None:
                connection = await self._in_time(self._connect(), connect_seconds)
            return await self._ask(connection, head, body, seconds, ends_at)
        finally:
            self._room.release()

    def close(self) -> None:
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()
        if self._reaper is not None:
            self._reaper.cancel()

    async def _ask(
        self, connection: Connection, head: bytes, body: bytes, seconds: float, ends_at: float
    ) -> HttpAnswer:
        self._busy.add(connection)
        try:
            return await connection.ask(head, body, seconds, ends_at)
        except BaseException:
            connection.close()  # its answer is no longer awaited, and no other request may get it
            raise
        finally:
            self._busy.discard(connection)
            if connection.usable:
                self._keep(connection)

    def _last_used(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and self._loop.time() < connection.idle_since + KEEPALIVE_SECONDS:
                return connection
            connection.close()
        return None

    def _keep(self, connection: Connection) -> None:
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._reaper is None:
            self._reaper = self._loop.call_later(KEEPALIVE_SECONDS, self._reap)

    def _reap(self) -> None:
        """Closes what has not been used for long."""
        oldest = self._loop.time() - KEEPALIVE_SECONDS
        kept = []
        for connection in self._idle:
            if connection.idle_since > oldest and connection.usable:
                kept.append(connection)
            else:
                connection.close()
        self._idle = kept
        self._reaper = self._loop.call_later(KEEPALIVE_SECONDS, self._reap) if kept else None

    async def _connect(self) -> Connection:
        reached = await start_connection(await self._resolved(), happy_eyeballs_delay=NEXT_ADDRESS_SECONDS)
        try:
            reached.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            send_probes(reached)
            name = self._host if self._ssl is not None else None
            _, connection = await self._loop.create_connection(
                lambda: Connection(self._large_replies, self._bytes_max),
                sock=reached,
                ssl=self._ssl,
                server_hostname=name,
            )
        except BaseException:
            reached.close()
            raise
        return connection

    async def _resolved(self) -> list[AddrInfoType]:
        """The host's addresses, asked for once however many connections are opened."""
        if self._addresses is None or (self._addresses.done() and self._loop.time() >= self._addresses_until):
            looking = self._loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self._addresses = self._tasks.spawn(looking)
            self._addresses.add_done_callback(self._resolved_now)
        return await asyncio.shield(self._addresses)

    def _resolved_now(self, looked: "asyncio.Task[list[AddrInfoType]]") -> None:
        found = not looked.cancelled() and looked.exception() is None
        self._addresses_until = self._loop.time() + (ADDRESS_SECONDS if found else 0)

    async def _in_time(self, step: Awaitable[T], seconds: float) -> T:
        """Errors here happen before anything is sent."""
        try:
            async with asyncio.timeout(seconds):
                return await step
        except TimeoutError:
            raise Transient(f"no connection to {self._host} within {seconds:g} s", ErrorCode.GW_TIMEOUT) from None
        except OSError as error:  # of TLS and of names as well
            reason = error.strerror or str(error) or type(error).__name__
            raise Transient(f"no connection to {self._host}:{self._port}: {reason}", ErrorCode.GW_5XX) from None
