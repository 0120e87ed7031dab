"""The HTTP client for URLs that users give: a name is resolved once, and only that address is connected to."""

import asyncio
import socket
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final, NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from backstay.core.addresses import HostAddress, first_inside, is_address, is_outside, read_inside, read_place
from backstay.core.errors import ErrorCode, HandlerError, OutcomeUnknown, Permanent, Transient, UsageError
from backstay.core.failures import error_of_failure, failure_of_exception

CONNECT_SECONDS: Final = 10.0
RESOLVE_SECONDS: Final = 5.0
REPLY_BYTES_MAX: Final = 16 << 10  # the status matters; of the body, enough for a person to read
CONNECTIONS_MAX: Final = 200
_HINT: Final = "an operator can allow it with BACKSTAY_INSIDE_HOSTS=host:port"
_CLIENT_ERRORS: Final = (aiohttp.ClientError, OSError)


class Answer(NamedTuple):
    """The answer, as far as it is read."""

    status: int
    text: str
    retry_after: str | None = None


class Inside(OSError):
    """A name or address is internal. An OSError, because a connector passes it on."""


class Guard(AbstractResolver):
    """Resolves names for the connector, and returns only addresses that are allowed."""

    def __init__(self, inside: frozenset[str], resolver: AbstractResolver | None = None) -> None:
        self._inside = inside
        self._resolver = resolver
        self._admitted: set[tuple[str, int]] = set()  # addresses of the allowed internal hosts

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self._resolver = self._resolver or aiohttp.ThreadedResolver()
        found = await self._resolver.resolve(host, port, family)
        addresses = [one["host"] for one in found]
        if f"{host.lower().rstrip('.')}:{port}" in self._inside:
            self._admitted.update((address, port) for address in addresses)
        elif first_inside(addresses) is not None:
            raise Inside(f"{host} leads to an internal address")
        return found

    async def close(self) -> None:
        if self._resolver is not None:
            await self._resolver.close()

    def refuses(self, place: HostAddress) -> bool:
        """Whether a host is refused by its address alone; a name must be resolved first."""
        return is_address(place.host) and place.name not in self._inside and not is_outside(place.host)

    def open_socket(self, found: aiohttp.AddrInfoType) -> socket.socket:
        """The last check before a connection: no socket is made for an internal address."""
        family, kind, protocol, _, (address, port, *_) = found
        allowed = (address, port) in self._admitted or f"{address}:{port}" in self._inside
        if not allowed and not is_outside(str(address)):
            raise Inside(f"{address} is an internal address")
        return socket.socket(family, kind, protocol)


class Outgoing:
    """Posts to URLs that users gave. It follows no redirect, uses no proxy and keeps no connection."""

    def __init__(self, inside_hosts: str = "", resolver: AbstractResolver | None = None) -> None:
        self._guard = Guard(read_inside(inside_hosts), resolver)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def check(self, url: str) -> HostAddress:
        """Refuses what can be refused without a look-up: invalid URLs, and internal addresses."""
        place = read_place(url)
        if self._guard.refuses(place):
            raise UsageError("the URL leads to an internal address", hint=_HINT)
        return place

    async def check_name(self, url: str) -> None:
        """As `check`, and resolves its name. A name that has no address now may have one when it is needed."""
        place = self.check(url)
        if is_address(place.host):
            return
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                await self._guard.resolve(place.host, place.port, socket.AF_UNSPEC)
        except Inside:
            raise UsageError("the URL leads to an internal address", hint=_HINT) from None
        except OSError:
            return

    async def post(self, url: str, body: str, headers: Mapping[str, str], timeout_seconds: float) -> Answer:
        """Sends once. Raises what a handler may raise: nothing was sent, or the outcome is unknown."""
        try:
            self.check(url)
        except UsageError as error:
            raise Permanent(error.message, ErrorCode.FORBIDDEN) from None
        limit = aiohttp.ClientTimeout(total=timeout_seconds, connect=min(CONNECT_SECONDS, timeout_seconds / 2))
        sent = {"content-type": "application/json", "user-agent": f"backstay/{version('backstay')}", **headers}
        try:
            async with self._opened().post(
                URL(url, encoded=True), data=body.encode(), headers=sent, timeout=limit, allow_redirects=False
            ) as answer:
                return Answer(answer.status, await _beginning(answer), answer.headers.get("retry-after"))
        except _CLIENT_ERRORS as error:
            # Not chained from the error, which may hold the headers that were sent.
            raise _meaning(error, timeout_seconds) from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                resolver=self._guard,
                socket_factory=self._guard.open_socket,
                use_dns_cache=False,  # a name is resolved for each connection, and that answer is what counts
                force_close=True,
                limit=CONNECTIONS_MAX,
            )
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )
        return self._session


async def _beginning(answer: aiohttp.ClientResponse) -> str:
    """The beginning of the body. The status already says what matters, so a body that breaks off counts as empty."""
    raw = b""
    try:
        while len(raw) < REPLY_BYTES_MAX and (chunk := await answer.content.read(REPLY_BYTES_MAX - len(raw))):
            raw += chunk
    except _CLIENT_ERRORS:
        pass  # the status counts; the rest of the body is lost
    answer.close()
    return raw.decode("utf-8", "replace")


def _meaning(error: Exception, timeout_seconds: float) -> HandlerError:
    """The meaning of an error of the client: refused, never sent, or sent with an unknown outcome."""
    if isinstance(error, Inside) or isinstance(error.__cause__, Inside) or isinstance(error.__context__, Inside):
        return Permanent("the URL leads to an internal address", ErrorCode.FORBIDDEN)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Transient("the host of the URL has no address", ErrorCode.GW_5XX)
    if type(error) is TimeoutError:
        return OutcomeUnknown(f"no answer within {timeout_seconds:g} s")
    return error_of_failure(failure_of_exception(error))
