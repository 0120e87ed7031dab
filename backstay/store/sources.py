"""Sources: the files that some items are made from. An item is done again only while its source is there."""

import json
from collections.abc import Sequence

from backstay.store.database import Database
from backstay.store.files import may_be_id
from backstay.store.queries import Ask, Script, one


class Sources:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def expired(self, file_id: str, owner: str) -> bool:
        """Whether there was such a file, and its time is over."""
        values = {"id": file_id, "owner": owner}
        return may_be_id(file_id) and bool(await self._db.read(one("file_expired", values)))

    async def there(self, item_id: int, owner: str) -> bool:
        """Whether an item still has the file that it is made from, or needs none."""
        return bool(await self._db.read(lambda: with_sources(owner, [item_id])))


def source_of(body: str) -> str | None:
    """The file that a payload names; None when it names none, as far as that can be read."""
    try:
        named = json.loads(body)
    except ValueError:
        return None
    file = named.get("file") if isinstance(named, dict) else None
    return file if isinstance(file, str) else None


def with_sources(owner: str, items: Sequence[int]) -> Script[set[int]]:
    """Those of some items that need no source, or still have theirs."""
    bodies = yield Ask("bodies_with_sources", batch=[(item,) for item in items])
    if not bodies:
        return set(items)
    sources = {row["id"]: source_of(row["body"]) for row in bodies}
    named = sorted({file for file in sources.values() if file is not None and may_be_id(file)})
    there = {row["id"] for row in (yield Ask("files_there", {"owner": owner}, [(file,) for file in named]))}
    return {item for item in items if item not in sources or sources[item] in there}
