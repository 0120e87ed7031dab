"""The id of something that was deleted is never given out again: whoever remembers it must not find another's thing."""

import pytest

from backstay.core.errors import NotAllowed
from backstay.core.ids import item_id
from backstay.core.states import BatchStatus
from backstay.store.batches import NewBatch
from backstay.store.store import Store
from tests.databases import Site
from tests.store.store_rig import OK, Scene

# By table: a row of those that are numbered by the database and shown to people by their number.
ROWS = {
    "jobs": "(owner, handler, state, priority, ref_seed, created_at, timeout_ms, timeout_at) "
    "VALUES ('ann', 'echo', 'queued', 0, 's', 1, 1, 1)",
    "inbox": "(owner, item_id, fence, kind, received_at, body, digest) VALUES ('ann', 1, 1, 'failed', 1, '{}', 'd')",
    "archives": "(owner, blob, items, bytes, first_at, last_at, created_at) VALUES ('ann', 'b', 1, 1, 1, 1, 1)",
    "replays": "(owner, by, at, filter, items) VALUES ('ann', 'ann', 1, '{}', 1)",
    "deliveries": "(webhook_id, owner, event_id, event_type, body, created_at) VALUES ('w', 'ann', 'e', 't', '{}', 1)",
}


@pytest.mark.parametrize("table", ROWS)
async def test_a_number_is_not_given_out_again_when_the_newest_row_is_deleted(site: Site, table: str) -> None:
    insert = f"INSERT INTO {table} {ROWS[table]} RETURNING id"
    first = await site.one(insert)
    await site.rows(f"DELETE FROM {table}")
    assert await site.one(insert) > first


async def test_the_ids_of_a_deleted_job_and_its_items_never_return(scene: Scene, store: Store) -> None:
    first = await scene.ended(OK, items=3)
    assert await store.jobs.disown(first, "ann") == 3
    await store.jobs.purge(first)
    assert await scene.site.rows(f"SELECT id FROM jobs WHERE id = {first}") == []
    second = await scene.submit(items=3)
    assert second > first
    items = [row[0] for row in await scene.site.rows("SELECT id FROM items ORDER BY id")]
    assert items == [item_id(second, position) for position in range(3)]


async def test_a_job_that_has_an_owner_is_never_purged(scene: Scene, store: Store) -> None:
    job = await scene.ended(OK, items=3)
    before = await scene.everything()
    await store.jobs.purge(job)
    assert await scene.everything() == before


async def test_a_job_is_not_deleted_while_its_results_are_written_out(scene: Scene, store: Store) -> None:
    job = await scene.ended(OK, items=3)
    await store.batches.create(NewBatch("batch_1", "ann", "/v1/x", "file_1", "24h", 86_400_000, None, None), None)
    await store.batches.begin("batch_1", 3, None)
    await store.batches.attach("batch_1", job)
    await store.batches.finalize("batch_1")
    with pytest.raises(NotAllowed, match="are being written out"):
        await store.jobs.disown(job, "ann")
    await store.batches.end(await store.batches.get("batch_1", "ann"), BatchStatus.COMPLETED, None, None)
    assert await store.jobs.disown(job, "ann") == 3
