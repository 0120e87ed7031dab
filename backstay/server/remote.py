"""Remote work: its handlers, a deadline for each kind, and the secrets that requests and answers carry."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from backstay.app import Backstay
from backstay.client import Client
from backstay.clock import Clock
from backstay.core.errors import UsageError
from backstay.core.ids import show_item
from backstay.handlers.outgoing import Outgoing
from backstay.handlers.registry import Registry
from backstay.handlers.remote import NAME, Links, RemoteHandler
from backstay.run.equipment import default_folder
from backstay.server.signing import KEY_NAME, Signer, sealed
from backstay.settings import Settings
from backstay.store.inbox import Inbox
from backstay.store.urls import is_postgres

PURPOSE: Final = "callback"
_KIND_LENGTH_MAX: Final = 50
_DEADLINE_SECONDS_MAX: Final = 366 * 86_400


def secret_of(signer: Signer, owner: str) -> str:
    """What an owner's requests to remote workers are signed with, as Standard Webhooks writes it."""
    return signer.secret_of(f"remote\0{owner}", 1)


def links(outgoing: Outgoing, inbox: Inbox, signer: Signer, clock: Clock, public_url: str | None) -> Links:
    def sign(owner: str, name: str, body: str) -> Mapping[str, str]:
        return sealed([secret_of(signer, owner)], name, clock.now_ms(), body)

    def tag(item: int, fence: int) -> str:
        return signer.tag(PURPOSE, show_item(item), fence)

    if public_url is not None and not public_url.startswith(("http://", "https://")):
        raise UsageError("public_url must begin with http:// or https://", hint="set BACKSTAY_PUBLIC_URL")
    return Links(outgoing, inbox, public_url, tag, sign)


def add_remote(registry: Registry, made: Links, settings: Settings) -> None:
    """`remote`, and `remote.KIND` for each kind that has a deadline of its own."""
    if NAME in registry:
        return
    registry.add(RemoteHandler(made))
    for kind, seconds in read_kinds(settings.remote_kinds).items():
        registry.add(RemoteHandler(made, f"{NAME}.{kind}", seconds))


def read_kinds(text: str) -> dict[str, float]:
    """Kinds of remote work and their deadlines in seconds, from `writing:1200, speaking:3600`."""
    kinds: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        kind, _, number = part.partition(":")
        kind, number = kind.strip(), number.strip()
        named = kind.isascii() and kind.replace("-", "").replace("_", "").isalnum() and len(kind) <= _KIND_LENGTH_MAX
        if not named or not number.isdigit() or not 1 <= int(number[:10]) <= _DEADLINE_SECONDS_MAX or kind in kinds:
            raise UsageError(f"remote_kinds: {part[:60]!r} is no kind:seconds", hint="writing:1200, speaking:3600")
        kinds[kind] = float(number)
    return kinds


@asynccontextmanager
async def remote_here(app: Backstay, client: Client) -> AsyncIterator[None]:
    """For a worker beside the service: while the block runs it does remote work too, if it knows the service's address
    and key. One that does not leaves it to others."""
    key = app.settings.secret_key or _key_beside(app)
    if key is None or app.settings.public_url is None:
        yield
        return
    outgoing = Outgoing(app.settings.inside_hosts)
    made = links(outgoing, client.store.inbox, Signer(key), client.clock, app.settings.public_url)
    add_remote(app.handlers, made, app.settings)
    try:
        yield
    finally:
        await outgoing.close()


def _key_beside(app: Backstay) -> str | None:
    """The key that a service on this machine made for itself."""
    place = app.settings.data or (None if is_postgres(app.url) else str(default_folder(app.url)))
    if place is None or place.startswith("s3://"):
        return None
    path = Path(place) / KEY_NAME
    return path.read_text(encoding="ascii").strip() if path.is_file() else None
