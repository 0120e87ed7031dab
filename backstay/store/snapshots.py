"""Jobs and items as they are now, many at one look: for those who ask at the same time, and those who watch."""

from collections.abc import Sequence

from backstay.store.batches import Batch
from backstay.store.database import Database
from backstay.store.listing import ItemRow
from backstay.store.queries import one
from backstay.store.views import JobView, job_view

Asked = tuple[int, str]  # an id, and the owner it must belong to


class Snapshots:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def jobs(self, asked: Sequence[Asked]) -> dict[Asked, JobView]:
        """Those that there are; another owner's are not."""
        found = map(job_view, await self._db.read(one("jobs_seen", batch=asked)))
        return {(view.id, view.owner): view for view in found}

    async def items(self, asked: Sequence[Asked]) -> dict[Asked, ItemRow]:
        """As those of the list, each with what its last attempt said."""
        rows = await self._db.read(one("items_seen", batch=asked))
        return {(row[1], row[0]): ItemRow(*row[1:]) for row in rows}

    async def batches(self, asked: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Batch]:
        found = (Batch(*row) for row in await self._db.read(one("batches_seen", batch=asked)))
        return {(batch.id, batch.owner): batch for batch in found}
