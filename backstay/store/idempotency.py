"""Idempotent replies: the answer to a request with an idempotency key is kept for a day."""

from typing import Final, NamedTuple

from backstay.clock import new_id
from backstay.store.databases.database import Database
from backstay.store.queries import Ask, Script, one, record

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
