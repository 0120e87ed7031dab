"""The HTTP client of one endpoint: one request, one reply, over a pool of connections. Its errors show whether the
request can have arrived."""

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar

from aiohappyeyeballs import AddrInfoType, start_connection
from yarl import URL

from backstay.clock import Tasks
from backstay.core.errors import ErrorCode, Permanent, ProviderHeld, Throttled, Transient
from backstay.llm.credentials import WAIT_SECONDS, Credentials
from backstay.llm.endpoint import Endpoint, Veil, account_of, headers_of, parts_of
from backstay.llm.http.connection import (
    ADDRESS_SECONDS,
    KEEPALIVE_SECONDS,
    NEXT_ADDRESS_SECONDS,
    Connection,
    HttpAnswer,
    LargeReplies,
    Proxy,
    decode,
    proxy_of,
    send_probes,
)
from backstay.llm.provider import ProviderReply
from backstay.llm.providers import provider_named

if TYPE_CHECKING:
    from backstay.llm.http.aiohttp_session import AiohttpSession

OWN: Final = "own"
AIOHTTP: Final = "aiohttp"
CONNECT_SECONDS: Final = 10.0
REPLY_BYTES_MAX: Final = 64 << 20
_HEADS_REMEMBERED_MAX: Final = 1_000
_JSON: Final = "application/json"
_TRACE: Final = "traceparent"
_KEY_REFUSED: Final = 401


class Wire:
    """Sends each request once: the client does not decide about retries.

    Calls use connections of our own, which cost a fifth of aiohttp's time. Rare requests (files, proxies) use aiohttp,
    and so do all requests if the setting `http` says so.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        key: str | Credentials | None,
        connections_max: int,
        reply_bytes_max: int = REPLY_BYTES_MAX,
        http: str = OWN,
    ) -> None:
        provider = provider_named(endpoint.api)
        self._form = provider.requests
        self._reference_header = provider.access.reference_header or ""
        self._base = parts_of(endpoint.base_url)
        self._form.check_base(self._base)
        self._origin = URL(self._base.geturl()).origin()
        self._connections_max = connections_max
        self._reply_bytes_max = reply_bytes_max
        self._http = http
        self._over_aiohttp = False
        self._further = headers_of(endpoint, os.environ)
        self.credentials = key if isinstance(key, Credentials) else None
        self.on_missing_key: Callable[[float], None] = lambda _: None  # gets the seconds until it is worth a try
        self._headers: dict[str, str] = {}
        fixed = None if isinstance(key, Credentials) else key
        self.signer = None if provider.signer is None else provider.signer(self._base, fixed)
        self.veil = Veil(self._further.values())
        self._heads: dict[tuple[str, str], bytes] = {}
        self._key: str | None = None
        self._set_key(fixed)
        self._proxy: Proxy | None = None
        self._pool: Pool | None = None
        self._session: AiohttpSession | None = None
        self.account = account_of(self._key) if self.credentials is None else self.credentials.account

    def __repr__(self) -> str:
        return f"<Wire to {self._base.netloc}>"

    async def open(self) -> None:
        if self._pool is not None:
            return
        self._proxy = proxy_of(self._base)
        self._over_aiohttp = self._proxy is not None or self._http == AIOHTTP
        base = URL(self._base.geturl())
        secure = base.scheme == "https"
        self._pool = Pool(
            base.raw_host or "",
            base.port or (443 if secure else 80),
            secure,
            self._connections_max,
            self._reply_bytes_max,
        )

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        session, self._session = self._session, None
        if pool is not None:
            pool.close()
        if session is not None:
            await session.close()

    async def post(
        self, path: str, body: str, timeout_seconds: float, ref: str | None = None, traceparent: str | None = None
    ) -> ProviderReply:
        """`ref` identifies the request at the provider, for questions to its support."""
        data, key = body.encode(), self._use_key()
        names: dict[str, str] = {}
        if ref and self._reference_header:
            names[self._reference_header] = ref
        if traceparent:
            names[_TRACE] = traceparent
        if self.signer is not None:
            names |= await self.signer.sign("POST", self._address(path), data, {"content-type": _JSON})
        if self._over_aiohttp:
            headers = {"content-type": _JSON, **names}
            answer = await self._files().exchange("POST", self._address(path), timeout_seconds, headers, data)
            return self._reply(answer, key, path)
        lines = "".join(f"{name}: {value}\r\n" for name, value in names.items())
        tail = f"content-type: {_JSON}\r\n{lines}content-length: {len(data)}\r\n\r\n".encode("latin-1")
        return await self._exchange(self._head("POST", path) + tail, data, timeout_seconds, key, path)

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, timeout_seconds: float = 60
    ) -> ProviderReply:
        return await self.exchange("GET", path, params=params, timeout_seconds=timeout_seconds)

    async def delete(self, path: str, timeout_seconds: float = 60) -> ProviderReply:
        return await self.exchange("DELETE", path, timeout_seconds=timeout_seconds)

    async def exchange(
        self,
        method: str,
        target: str,
        data: bytes = b"",
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float = 60,
    ) -> ProviderReply:
        """Any other request. The target is a path below the base URL, or a URL that the provider gave: to another host
        no secret is sent."""
        url, key = self._target(target).update_query(params or {}), self._use_key()
        if self.signer is not None:
            headers = {**(headers or {}), **await self.signer.sign(method, url, data, headers or {})}
        is_own = url.origin() == self._origin
        if self._over_aiohttp or not is_own:
            session = self._files()
            answer = await session.exchange(method, url, timeout_seconds, headers, data or None, is_own)
            return self._reply(answer, key if is_own else None)
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        length = f"content-length: {len(data)}\r\n" if data else ""
        head = self._head_of(method, url) + f"{lines}{length}\r\n".encode("latin-1")
        return await self._exchange(head, data, timeout_seconds, key)

    async def upload(
        self, path: str, fields: Mapping[str, str], filename: str, file: BinaryIO, timeout_seconds: float = 600
    ) -> ProviderReply:
        """Sends a file with form fields before it. The file is closed afterwards."""
        url, key = self._address(path), self._use_key()
        return self._reply(await self._files().upload(url, fields, filename, file, timeout_seconds), key)

    async def download(self, target: str, into: BinaryIO, bytes_max: int, timeout_seconds: float = 600) -> int:
        """Downloads from a path, or from a URL that the provider gave, into a file; returns the number of bytes."""
        key = self._use_key()
        try:
            return await self._files().download(self._target(target), self._origin, into, bytes_max, timeout_seconds)
        except ProviderHeld:
            self._check_refused(key)
            raise

    def _use_key(self) -> str | None:
        """The key of the next request. It never waits: between the check of a claim and its call nothing may."""
        if self.credentials is None:
            return self._key
        try:
            key = self.credentials.current()
        except Throttled as error:
            self.on_missing_key(error.retry_after_seconds or WAIT_SECONDS)
            raise
        if key != self._key:
            self._set_key(key)
        return key

    def _set_key(self, key: str | None) -> None:
        self._key = key
        self._headers.clear()  # changed in place: the session for files has the same ones
        self._headers |= {**_own_headers(), **self._form.auth_headers(self._base, key), **self._further}
        self._heads.clear()
        self.veil.add(key)

    def _check_refused(self, key: str | None) -> None:
        """A refused key may have run out early: if there is another one, the request is sent again with that."""
        if self.credentials is not None and key is not None and self.credentials.refuse(key):
            raise Throttled("the provider refused the API key; the request waits for a new key", WAIT_SECONDS)

    async def _exchange(
        self, head: bytes, body: bytes, seconds: float, key: str | None, path: str = ""
    ) -> ProviderReply:
        if self._pool is None:
            raise _closed_error()
        # At most half of it, so that a failed connection can be distinguished from a request without an answer.
        answer = await self._pool.exchange(head, body, seconds, min(CONNECT_SECONDS, seconds / 2))
        return self._reply(answer, key, path)

    def _reply(self, answer: HttpAnswer, key: str | None, path: str = "") -> ProviderReply:
        status, headers, raw, cut = answer
        if status == _KEY_REFUSED:
            self._check_refused(key)
        return ProviderReply(status, self.veil.over_headers(headers), self.veil.over(decode(raw)), cut, path)

    def _files(self) -> "AiohttpSession":
        if self._pool is None:
            raise _closed_error()
        if self._session is None:
            from backstay.llm.http.aiohttp_session import (
                AiohttpSession,  # it takes a while to import, and most runs need none
            )

            limits = (self._connections_max, CONNECT_SECONDS, self._reply_bytes_max)
            self._session = AiohttpSession(self._headers, self._proxy, self.veil, *limits)
        return self._session

    def _head(self, method: str, path: str) -> bytes:
        head = self._heads.get((method, path))
        if head is None:
            if len(self._heads) >= _HEADS_REMEMBERED_MAX:
                self._heads.clear()
            head = self._heads[method, path] = self._head_of(method, self._address(path))
        return head

    def _target(self, target: str) -> URL:
        return URL(target) if target.startswith(("https://", "http://")) else self._address(target)

    def _address(self, path: str) -> URL:
        """A call always goes to the endpoint's own host."""
        if not path.startswith("/"):
            raise Permanent(f"the url of a request must begin with a slash, not {path[:40]!r}", ErrorCode.GW_4XX)
        return self._form.address(self._base, path)

    def _head_of(self, method: str, url: URL) -> bytes:
        """The beginning of a request, up to the headers that differ for every request."""
        lines = [f"{method} {url.raw_path_qs} HTTP/1.1", f"host: {url.host_port_subcomponent}"]
        lines += (f"{name}: {value}" for name, value in self._headers.items())
        return "".join(f"{line}\r\n" for line in lines).encode("latin-1")


def _closed_error() -> Transient:
    return Transient("the HTTP client is closed, so nothing was sent")


def _own_headers() -> dict[str, str]:
    return {
        "accept": _JSON,
        "accept-encoding": "gzip, deflate",
        "user-agent": f"backstay/{version('backstay')}",
    }


T = TypeVar("T")


class Pool:
    """The connections to one host: opened when needed, kept while they are used, and limited in number. A request has
    its connection for itself until the answer is there."""

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
        """Closes connections that have not been used for long."""
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
        reached = await start_connection(await self._resolve(), happy_eyeballs_delay=NEXT_ADDRESS_SECONDS)
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

    async def _resolve(self) -> list[AddrInfoType]:
        """The host's addresses, asked for once however many connections are opened."""
        if self._addresses is None or (self._addresses.done() and self._loop.time() >= self._addresses_until):
            looking = self._loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self._addresses = self._tasks.spawn(looking)
            self._addresses.add_done_callback(self._keep_addresses)
        return await asyncio.shield(self._addresses)

    def _keep_addresses(self, looked: "asyncio.Task[list[AddrInfoType]]") -> None:
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
