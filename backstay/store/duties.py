"""Duties: what one process of many does for all."""

from backstay.store.database import Database
from backstay.store.queries import one


class Duties:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def take(self, name: str, lease_ms: int) -> bool:
        """Whether it is ours to do now. It is nobody else's until the lease is over, whether we live or not."""
        return bool(await self._db.write(one("take_duty", {"name": name, "lease_ms": lease_ms})))
