"""The API keys of owners, and the idempotency keys of requests. A key's secret is shown once and never stored."""

import hashlib
import hmac
import re
from enum import StrEnum
from typing import Final, NamedTuple

from backstay.clock import new_id, new_secret
from backstay.core.display import NextCommand, Sentence
from backstay.core.errors import NotFound
from backstay.core.models import require_owner
from backstay.store.databases.database import Database
from backstay.store.queries import Ask, Script, one, record

KEYS_SHOWN_MAX: Final = 1_000
_ID: Final = re.compile("[0-9a-f]{12}")
_FORM: Final = re.compile(r"bks_([0-9a-f]{12})_([0-9A-Za-z_-]{43})")


class Role(StrEnum):
    """The rights of a key; each role includes the rights of those before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def includes(self, other: "Role") -> bool:
        return _ORDER[self] >= _ORDER[other]


_ORDER: Final = {role: rank for rank, role in enumerate(Role)}


@record
class ApiKey(NamedTuple):
    id: str
    owner: str
    name: str
    role: Role
    digest: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    used_at: int | None
    left_at: int | None  # dashboard sessions that began before this are over


class NewKey(NamedTuple):
    """A key as it is shown once: `text` holds the secret."""

    id: str
    text: str
    created_at: int
    expires_at: int | None


class Keys:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def create(self, owner: str, role: Role, name: str = "", lives_seconds: float | None = None) -> NewKey:
        require_owner(owner)
        key_id, secret = new_id()[:12], new_secret()
        lives_ms = None if lives_seconds is None else int(lives_seconds * 1000)
        values = {"id": key_id, "owner": owner, "name": name[:100], "role": role.value, "digest": _digest(secret)}
        [added] = await self._db.write(one("add_key", {**values, "lives_ms": lives_ms}))
        return NewKey(key_id, f"bks_{key_id}_{secret}", added["created_at"], added["expires_at"])

    async def verify(self, text: str) -> ApiKey | None:
        """The key that belongs to this text, if it is valid."""
        form = _FORM.fullmatch(text)
        found = None if form is None else await self.find(form[1])
        if form is None or found is None or not hmac.compare_digest(found.digest, _digest(form[2])):
            return None
        return found

    async def find(self, key_id: str) -> ApiKey | None:
        """The key of an id, if it is valid. The caller has checked its secret before."""
        rows: list[ApiKey] = await self._db.read(one("key", {"id": key_id}))
        return rows[0] if rows else None

    async def list(self, owner: str) -> "list[ApiKey]":
        return await self._db.read(one("keys", {"owner": owner, "n": KEYS_SHOWN_MAX}))

    async def revoke(self, key_id: str, owner: str) -> None:
        await self._end(key_id, owner, 0)

    async def rotate(self, key_id: str, owner: str, grace_seconds: float, lives_seconds: float | None = None) -> NewKey:
        """A new key with the same name and role; the old one stays valid for a grace period."""
        name, role = await self._end(key_id, owner, max(int(grace_seconds * 1000), 0))
        return await self.create(owner, Role(role), name, lives_seconds)

    async def end_sessions(self, key_id: str, left_at: int) -> None:
        """Ends all dashboard sessions of the key that began before now."""
        await self._db.write(one("end_sessions", {"id": key_id, "left_at": left_at}))

    async def touch(self, key_id: str) -> None:
        await self._db.write(one("touch_key", {"id": key_id}))

    async def _end(self, key_id: str, owner: str, grace_ms: int) -> tuple[str, str]:
        values = {"id": key_id, "owner": owner, "grace_ms": grace_ms}
        rows = await self._db.write(one("revoke_key", values)) if _ID.fullmatch(key_id) else ()
        if not rows:
            raise NotFound(f"no key {key_id}", hint=Sentence("`", NextCommand("key list"), "` shows all keys"))
        return rows[0]["name"], rows[0]["role"]


def is_key(text: str) -> bool:
    """Whether a text looks like one of our keys, even if it is wrong."""
    return text.startswith("bks_")


def _digest(secret: str) -> str:
    """Plain SHA-256: the secret has 256 random bits, so it cannot be guessed."""
    return hashlib.sha256(secret.encode()).hexdigest()


AGE_MS: Final = 24 * 3_600_000
LEASE_MS: Final = 30_000  # after so long without a sign of life the answering process is considered dead
FORGOTTEN_MAX: Final = 20


class KeyClaim(NamedTuple):
    """The right to answer a key, for the process that holds its token."""

    owner: str
    key: str
    token: str


@record
class KeptReply(NamedTuple):
    """The stored answer. Without a status, a process is still working on it; without a body, it was not kept."""

    digest: str
    status: int | None
    headers: str | None
    body: str | None


class Replies:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def take(self, owner: str, key: str) -> KeyClaim | KeptReply:
        """Claims the key for its first request, or finds the answer that the first request got."""
        claim = KeyClaim(owner, key, new_id())
        return await self._db.write(lambda: _take(claim))

    async def hold(self, claim: KeyClaim) -> None:
        await self._db.write(one("hold_reply", {**claim._asdict(), "lease_ms": LEASE_MS}))

    async def keep(self, claim: KeyClaim, reply: KeptReply) -> None:
        values = {"digest": reply.digest, "answered": reply.status, "headers": reply.headers, "body": reply.body}
        await self._db.write(one("keep_reply", {**claim._asdict(), **values}))

    async def give(self, claim: KeyClaim) -> None:
        await self._db.write(one("give_reply", claim._asdict()))


def _take(claim: KeyClaim) -> Script[KeyClaim | KeptReply]:
    yield Ask("forget_replies", {"age_ms": AGE_MS, "n": FORGOTTEN_MAX})
    values = {**claim._asdict(), "lease_ms": LEASE_MS, "age_ms": AGE_MS}
    if (yield Ask("take_reply", values)):
        return claim
    rows: list[KeptReply] = yield Ask("reply", {"owner": claim.owner, "key": claim.key})
    return rows[0] if rows else KeptReply("", None, None, None)  # it was given back just now: try again
