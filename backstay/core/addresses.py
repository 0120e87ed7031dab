"""Where a request for a user may go: only to public addresses, and only by URLs that can be read in one way."""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from backstay.core.errors import UsageError

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
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
            *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
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
        raise UsageError("the URL cannot be read") from None
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
