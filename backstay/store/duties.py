"""Duties: what one process of many does for all, and what one of them has told for all."""

from backstay.store.database import Database
from backstay.store.queries import one


class Duties:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def take(self, name: str, lease_ms: int) -> bool:
        """Whether it is ours to do now. It is nobody else's until the lease is over, whether we live or not."""
        return bool(await self._db.write(one("take_duty", {"name": name, "lease_ms": lease_ms})))

    async def told(self, name: str) -> str:
        """What was told of it last; nothing yet is an empty text."""
        rows = await self._db.read(one("told", {"name": name}))
        return str(rows[0][0]) if rows else ""

    async def tell(self, name: str, told: str) -> bool:
        """Whether it is news, and so ours to tell; of all who notice at once, one hears yes."""
        if await self.told(name) == told:
            return False
        return bool(await self._db.write(one("tell", {"name": name, "word": told})))
