"""How it stands with items that a message names: it may name any, whoever owns them, and some that never were."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from backstay.core.states import ItemState
from backstay.store.database import Database
from backstay.store.queries import one

CHUNK_ITEMS: Final = 2_000


class Standing(NamedTuple):
    state: ItemState
    handler: str
    owner: str


class Standings:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def of(self, ids: Iterable[int]) -> dict[int, Standing]:
        """Those of the items that there are."""
        named = sorted(set(ids))
        found: dict[int, Standing] = {}
        for start in range(0, len(named), CHUNK_ITEMS):
            batch = [(item,) for item in named[start : start + CHUNK_ITEMS]]
            for item, state, handler, owner in await self._db.read(one("items_standing", batch=batch)):
                found[item] = Standing(ItemState(state), handler, owner)
        return found
