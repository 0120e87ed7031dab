"""Many jobs and items in one read, as they are now: for simultaneous requests and for live pages."""

from collections.abc import Sequence

from backstay.store.batches import Batch
from backstay.store.database import Database
from backstay.store.listing import ItemRow
from backstay.store.queries import one
from backstay.store.views import JobView

Asked = tuple[int, str]  # an id, and the owner it must belong to


class Snapshots:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def jobs(self, asked: Sequence[Asked]) -> dict[Asked, JobView]:
        """The existing ones; those of another owner are left out."""
        found: list[JobView] = await self._db.read(one("jobs_seen", batch=asked))
        return {(view.id, view.owner): view for view in found}

    async def items(self, asked: Sequence[Asked]) -> dict[Asked, ItemRow]:
        """Items as in lists, each with the error of its last attempt."""
        found: list[ItemRow] = await self._db.read(one("items_seen", batch=asked))
        return {(item.id, item.owner): item for item in found}

    async def batches(self, asked: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Batch]:
        found: list[Batch] = await self._db.read(one("batches_seen", batch=asked))
        return {(batch.id, batch.owner): batch for batch in found}
