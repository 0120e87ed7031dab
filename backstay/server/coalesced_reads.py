"""Jobs, items and batches as they are now: those who ask at the same time are answered from one read."""

from backstay.core.errors import NotFound
from backstay.core.ids import show_item
from backstay.core.sentences import NextCommand, Sentence
from backstay.server.cache import Gathered
from backstay.store.batches import Batch, missing
from backstay.store.files import may_be_id
from backstay.store.listing import ItemRow
from backstay.store.snapshots import Asked, Snapshots
from backstay.store.views import JobView


class CoalescedReads:
    """Never older than the question; what is another owner's is not found."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._jobs: Gathered[Asked, JobView] = Gathered(snapshots.jobs)
        self._items: Gathered[Asked, ItemRow] = Gathered(snapshots.items)
        self._batches: Gathered[tuple[str, str], Batch] = Gathered(snapshots.batches)

    async def job(self, job_id: int, owner: str) -> JobView:
        found = await self._jobs.find((job_id, owner))
        if found is None:
            raise NotFound(f"no job {job_id}", hint=Sentence("`", NextCommand("jobs"), "` lists the jobs"))
        return found

    async def item(self, item_id: int, owner: str) -> ItemRow:
        found = await self._items.find((item_id, owner))
        if found is None:
            raise NotFound(f"no item {show_item(item_id)}")
        return found

    async def batch(self, batch_id: str, owner: str) -> Batch:
        found = await self._batches.find((batch_id, owner)) if may_be_id(batch_id) else None
        if found is None:
            raise missing(batch_id)
        return found
