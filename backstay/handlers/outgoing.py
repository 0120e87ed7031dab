"""The HTTP client for URLs that users give. Only public addresses are allowed, and a name is resolved only once."""

import asyncio
import re
import socket
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from backstay.core.errors import ErrorCode, HandlerError, OutcomeUnknown, Permanent, Transient, UsageError
from backstay.core.failures import error_of_failure, failure_of_exception

URL_LENGTH_MAX: Final = 2_048
HOST_LENGTH_MAX: Final = 253
_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.?")
# How C libraries write an address: a host whose last part is a number in any base is an address.
_ENDS_IN_A_NUMBER: Final = re.compile(r"(?:.*\.)?(?:\d+|0x[0-9a-f]*)\.?")

# A list of our own, because the meaning of Python's `is_global` changes between versions.
_INSIDE_4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
            "168.63.129.16/32",  # a public address that clouds use internally
        ),
    )
)
_UNICAST_6: Final = IPv6Network("2000::/3")
# Special uses, tunnels to IPv4 (Teredo, 6to4) and documentation; NAT64 and mapped addresses lie outside of unicast.
_INSIDE_6: Final = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))


class HostAddress(NamedTuple):
    """Where a URL leads: a host's name or address, in lower case, and a port."""

    scheme: str
    host: str
    port: int

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port}"


def is_outside(address: str) -> bool:
    """Whether an address is public: not of this machine, its network or its cloud."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, IPv4Address):
        return found.is_global and not any(found in network for network in _INSIDE_4)
    return _is_outside_6(found)


def _is_outside_6(found: IPv6Address) -> bool:
    inside = any(found in network for network in _INSIDE_6)
    return found in _UNICAST_6 and found.is_global and not inside


def read_place(url: str) -> HostAddress:
    """The host and port of a URL. A URL that can be read in two ways is refused."""
    if not url or len(url) > URL_LENGTH_MAX:
        raise UsageError(f"a URL must have 1 to {URL_LENGTH_MAX:,} characters")
    if not url.isascii() or not url.isprintable() or any(sign in url for sign in " \\<>\"'`{}|^"):
        hint = "write it in ASCII, with other characters as %XX"
        raise UsageError("the URL contains characters that are not allowed in a URL", hint=hint)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError("the URL is not valid", hint="write it like https://host:8443/path") from None
    if parts.scheme not in _PORTS or not url.lower().startswith(f"{parts.scheme}://"):
        raise UsageError("the URL must begin with https:// or http://")
    if "@" in parts.netloc:
        raise UsageError("the URL must not contain a user name or a password")
    if parts.fragment or url.endswith("#"):
        raise UsageError("the URL must not have a fragment")
    if port == 0 or parts.netloc.endswith(":"):
        raise UsageError("the URL has no valid port")
    return HostAddress(parts.scheme, _host(parts.hostname or "", "[" in parts.netloc), port or _PORTS[parts.scheme])


def _host(host: str, bracketed: bool) -> str:
    """A host in one of the accepted forms: plain IPv6 in brackets, plain IPv4 with four numbers, or a name."""
    try:
        if bracketed:
            return str(IPv6Address(host)) if "%" not in host else _no_host()
        if _ENDS_IN_A_NUMBER.fullmatch(host):
            return str(IPv4Address(host))
    except ValueError:
        return _no_host()
    if len(host) > HOST_LENGTH_MAX or not _NAME.fullmatch(host):
        return _no_host()
    return host.rstrip(".")


def _no_host() -> str:
    raise UsageError(
        "the URL has no valid host", hint="write a host name, or an address like 203.0.113.7 or [2001:db8::7]"
    )


def is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def read_inside(text: str) -> frozenset[str]:
    """The internal hosts that are allowed nevertheless, from `host:port, host:port`."""
    return frozenset(_inside(part.strip().lower()) for part in text.split(",") if part.strip())


def _inside(part: str) -> str:
    try:
        place = read_place(f"http://{part}/")
    except UsageError as error:
        raise UsageError(f"inside_hosts: {part!r} is not a valid host:port") from error
    if not part.endswith(f":{place.port}"):
        raise UsageError(f"inside_hosts: {part!r} has no port", hint="write host:port, host:port")
    return place.name


def first_inside(addresses: Iterable[str]) -> str | None:
    """The first address that is not public; one is enough to refuse them all."""
    return next((address for address in addresses if not is_outside(address)), None)


CONNECT_SECONDS: Final = 10.0
RESOLVE_SECONDS: Final = 5.0
REPLY_BYTES_MAX: Final = 16 << 10  # the status matters; of the body, enough for a person to read
CONNECTIONS_MAX: Final = 200
_HINT: Final = "an operator can allow it with BACKSTAY_INSIDE_HOSTS=host:port"
_CLIENT_ERRORS: Final = (aiohttp.ClientError, OSError)


class PostReply(NamedTuple):
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

    async def post(self, url: str, body: str, headers: Mapping[str, str], timeout_seconds: float) -> PostReply:
        """Sends once. Raises what a handler may raise: nothing was sent, or the outcome is unknown."""
        try:
            self.check(url)
        except UsageError as error:
            raise Permanent(error.message, ErrorCode.FORBIDDEN) from None
        limit = aiohttp.ClientTimeout(total=timeout_seconds, connect=min(CONNECT_SECONDS, timeout_seconds / 2))
        sent = {"content-type": "application/json", "user-agent": f"backstay/{version('backstay')}", **headers}
        try:
            async with self._open_session().post(
                URL(url, encoded=True), data=body.encode(), headers=sent, timeout=limit, allow_redirects=False
            ) as answer:
                return PostReply(answer.status, await _read_beginning(answer), answer.headers.get("retry-after"))
        except _CLIENT_ERRORS as error:
            # Not chained from the error, which may hold the headers that were sent.
            raise _handler_error(error, timeout_seconds) from None

    def _open_session(self) -> aiohttp.ClientSession:
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


async def _read_beginning(answer: aiohttp.ClientResponse) -> str:
    """The beginning of the body. The status already says what matters, so a body that breaks off counts as empty."""
    raw = b""
    try:
        while len(raw) < REPLY_BYTES_MAX and (chunk := await answer.content.read(REPLY_BYTES_MAX - len(raw))):
            raw += chunk
    except _CLIENT_ERRORS:
        pass  # the status counts; the rest of the body is lost
    answer.close()
    return raw.decode("utf-8", "replace")


def _handler_error(error: Exception, timeout_seconds: float) -> HandlerError:
    """The error for the engine: refused, never sent, or sent with an unknown outcome."""
    if isinstance(error, Inside) or isinstance(error.__cause__, Inside) or isinstance(error.__context__, Inside):
        return Permanent("the URL leads to an internal address", ErrorCode.FORBIDDEN)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Transient("the host of the URL has no address", ErrorCode.GW_5XX)
    if type(error) is TimeoutError:
        return OutcomeUnknown(f"no answer within {timeout_seconds:g} s")
    return error_of_failure(failure_of_exception(error))
