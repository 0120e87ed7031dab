"""Duties: work that one process does for all of them."""

from backstay.store.database import Database
from backstay.store.queries import one


class Duties:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def take(self, name: str, lease_ms: int) -> bool:
        """Whether this process gets the duty. No other process gets it before the lease ends, even if this one dies."""
        return bool(await self._db.write(one("take_duty", {"name": name, "lease_ms": lease_ms})))
