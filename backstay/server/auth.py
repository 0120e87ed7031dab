"""The caller of a request: the owner and role of a key, or for requests from this machine the service's own owner."""

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, NamedTuple

from fastapi import Depends, Request

from backstay.clock import Clock
from backstay.server.problems import Problem
from backstay.server.service import Service, service_of
from backstay.store.keys import ApiKey, Keys, Role, is_key

REMEMBERED_SECONDS: Final = 2.0  # a revoked key works this much longer
REMEMBERED_MAX: Final = 10_000
USED_SECONDS: Final = 60.0
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_FOUND: Final = "backstay.principal"
# Headers that proxies, tunnels and content networks add to what they pass on.
_FORWARDED: Final = frozenset(
    {
        "forwarded",
        "via",
        "max-forwards",
        "proxy-connection",
        "cdn-loop",
        "x-real-ip",
        "x-client-ip",
        "true-client-ip",
        "x-cluster-client-ip",
        "fastly-client-ip",
        "fly-client-ip",
        "x-proxyuser-ip",
    }
)
_FORWARDED_STARTS: Final = ("x-forwarded", "x-original-", "x-envoy-", "x-azure-", "x-arr-", "cf-", "tailscale-")
_OWN_SITES: Final = ("same-origin", "none")  # Sec-Fetch-Site of requests that no other site caused


class Principal(NamedTuple):
    owner: str
    role: Role
    key_id: str | None = None

    @property
    def name(self) -> str:
        """The name under which their acts are recorded."""
        return self.owner if self.key_id is None else f"key {self.key_id}"


class KeyRing:
    """Remembers keys for a moment, so that not every request has to verify its key."""

    def __init__(self, keys: Keys, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock
        self._remembered: OrderedDict[bytes, tuple[float, ApiKey | None]] = OrderedDict()
        self._used: dict[str, float] = {}

    async def find(self, text: str) -> ApiKey | None:
        digest = hashlib.sha256(text.encode()).digest()  # not the key itself, which could end up in a memory dump
        now = self._clock.monotonic()
        known = self._remembered.get(digest)
        if known is None or now >= known[0] + REMEMBERED_SECONDS:
            known = self._remembered[digest] = (now, await self._keys.verify(text))
            self._remembered.move_to_end(digest)
            while len(self._remembered) > REMEMBERED_MAX:
                self._remembered.popitem(last=False)
            await self._note_use(known[1], now)
        return known[1]

    async def by_id(self, key_id: str) -> ApiKey | None:
        """The key of a session, if it is still valid."""
        key = await self._keys.find(key_id)
        await self._note_use(key, self._clock.monotonic())
        return key

    async def _note_use(self, key: ApiKey | None, now: float) -> None:
        if key is not None and now >= self._used.get(key.id, float("-inf")) + USED_SECONDS:
            self._used[key.id] = now
            await self._keys.touch(key.id)


def key_in_request(request: Request) -> str | None:
    """The key in a request, as OpenAI's, Azure's and Anthropic's clients send it."""
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and text.strip():
        return text.strip()
    return request.headers.get("api-key") or request.headers.get("x-api-key") or None


async def principal(request: Request) -> Principal:
    """The caller; it is looked up once for each request."""
    found: Principal | None = request.scope.get(_FOUND)
    if found is None:
        found = request.scope[_FOUND] = await _principal(request)
    return found


async def _principal(request: Request) -> Principal:
    service = service_of(request)
    text = key_in_request(request)
    if text is not None and is_key(text):
        key = await service.ring.find(text)
        if key is None:
            raise _unauthorized("the API key is not valid")
        return Principal(key.owner, key.role, key.id)
    if service.options.open_here and is_from_this_machine(request):
        return Principal(service.owner, Role.ADMIN)
    raise _unauthorized("an API key is needed")


def _unauthorized(why: str) -> Problem:
    hint = "send Authorization: Bearer bks_…; `backstay key create` creates a key"
    return Problem(401, why, hint=hint, headers={"www-authenticate": "Bearer"})


def is_from_this_machine(request: Request) -> bool:
    """Whether a program on this machine sent the request to a local name, and neither a page of another site nor a
    proxy did.

    A proxy that changes the host to ours and adds nothing looks like a program on this machine. Some show
    themselves by HTTP/1.0; others do not, so behind a proxy keys must be required.
    """
    headers = request.headers
    host = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
    near = request.client is not None and request.client.host in LOOPBACK
    asked_by_page = "origin" in headers and not _same_origin(request)
    foreign = asked_by_page or headers.get("sec-fetch-site", "none") not in _OWN_SITES
    passed_on = any(name in _FORWARDED or name.startswith(_FORWARDED_STARTS) for name in headers)
    passed_on = passed_on or request.scope["http_version"] == "1.0"
    return near and host.strip("[]") in LOOPBACK and not foreign and not passed_on


def _same_origin(request: Request) -> bool:
    return request.headers["origin"] == f"{request.url.scheme}://{request.headers.get('host', '')}"


async def require_role(request: Request, role: Role) -> Principal:
    """The caller, if their role allows it. Quick routes call this; the others use Reader, Writer or Admin."""
    found = await principal(request)
    if not found.role.includes(role):
        raise Problem(403, f"the role of this key is {found.role.value}", hint=f"use a key with the role {role.value}")
    return found


def require(role: Role) -> Callable[[Request], Awaitable[Principal]]:
    async def check(request: Request) -> Principal:
        return await require_role(request, role)

    return check


def operates(found: Principal, service: Service) -> bool:
    """An admin of the service's own owner: what they do affects all owners."""
    return found.role.includes(Role.ADMIN) and found.owner == service.owner


async def operator(request: Request) -> Principal:
    found = await require_role(request, Role.ADMIN)
    require_operator(found, service_of(request))
    return found


def require_operator(found: Principal, service: Service) -> None:
    if not operates(found, service):
        hint = "use an admin key of the service's own owner, or `backstay provider` on its machine"
        raise Problem(403, "this concerns all owners, and the key belongs to one owner", hint=hint)


Reader = Annotated[Principal, Depends(require(Role.READ))]
Writer = Annotated[Principal, Depends(require(Role.WRITE))]
Admin = Annotated[Principal, Depends(require(Role.ADMIN))]
Operator = Annotated[Principal, Depends(operator)]

__all__ = [
    "Admin",
    "KeyRing",
    "Operator",
    "Principal",
    "Reader",
    "Writer",
    "is_from_this_machine",
    "key_in_request",
    "operates",
    "principal",
    "require_operator",
    "require_role",
]
