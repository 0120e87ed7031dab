"""Claims of named items: exactly those that could be claimed anyway, found by their keys, each for one worker."""

import asyncio
import json
import sqlite3

import pytest

from backstay.core.ids import item_id
from backstay.core.models import Claimed
from backstay.store.items import ClaimedItems, Want
from backstay.store.queries import SQLITE, queries_for
from tests.store.store_rig import BROKEN, LEASE_MS, OK, RECONCILE_MS, Scene

STRANGER = 1 << 60


async def claim_named(
    scene: Scene, ids: list[int], handler: str = "echo", worker: str = "w1", known_jobs: tuple[int, ...] = ()
) -> ClaimedItems:
    return await scene.store.items.claim_named(
        [(Want(handler, len(ids), RECONCILE_MS), ids)], worker, LEASE_MS, known_jobs
    )


def ids_of(taken: ClaimedItems) -> list[int]:
    return [item.id for item in taken.items]


async def test_named_items_are_claimed_out_of_order_and_their_job_runs(scene: Scene) -> None:
    ahead, job = await scene.submit(2, priority=9), await scene.submit(4)
    wanted = [item_id(job, 3), item_id(job, 1), item_id(job, 1)]
    taken = await claim_named(scene, wanted)
    assert ids_of(taken) == [item_id(job, 1), item_id(job, 3)]
    assert [terms.id for terms in taken.jobs] == [job]
    assert (await scene.job(job)).state == "running"
    assert (await scene.job(job)).started_at == scene.site.clock.ms
    assert (await scene.job(ahead)).state == "queued"


async def test_a_named_claim_gives_what_an_ordinary_one_gives(scene: Scene) -> None:
    job = await scene.submit(3)
    await scene.claim(1)
    (named,) = (await claim_named(scene, [item_id(job, 2)])).items
    (ordinary,) = await scene.claim(2)
    differing = {"id", "body", "order_key"}
    assert [name for name in Claimed._fields if getattr(named, name) != getattr(ordinary, name)] == sorted(
        differing, key=Claimed._fields.index
    )
    rows = await scene.site.rows("SELECT leased_by, lease_expires_at, reconcile_after FROM items ORDER BY id")
    assert rows[1] == rows[2]
    assert (named.body, ordinary.body) == ('"body-2"', '"body-1"')


async def test_the_terms_of_a_job_that_was_met_are_not_given_again(scene: Scene) -> None:
    job = await scene.submit(2)
    assert len((await claim_named(scene, [item_id(job, 0)])).jobs) == 1
    assert (await claim_named(scene, [item_id(job, 1)], known_jobs=(job,))).jobs == []


async def test_what_is_done_held_moved_or_unknown_is_passed_over(scene: Scene) -> None:
    done, paused, cancelled = await scene.ended(OK), await scene.submit(), await scene.submit()
    other, taken = await scene.submit(handler="other"), await scene.submit()
    late, ready = await scene.submit(deadline_ms=1_000), await scene.submit()
    await claim_named(scene, [item_id(taken, 0)])
    await scene.store.jobs.pause(paused, "ann")
    await scene.store.jobs.cancel(cancelled, "ann")
    await scene.site.advance(2)
    jobs = (done, paused, cancelled, other, taken, late, ready)
    found = await claim_named(scene, [STRANGER, *(item_id(job, 0) for job in jobs)])
    assert ids_of(found) == [item_id(ready, 0)]
    assert (await scene.item(other)).state == "queued"


async def test_an_item_that_waits_is_claimed_when_it_is_due_though_nobody_promoted_it(scene: Scene) -> None:
    job = await scene.submit()
    (item,) = await scene.claim(1)
    await scene.settle(item, BROKEN)
    due_in = (await scene.site.one("SELECT due_at FROM items") - scene.site.clock.ms) / 1000
    await scene.site.advance(due_in - 0.001)
    assert ids_of(await claim_named(scene, [item_id(job, 0)])) == []
    await scene.site.advance(0.001)
    (again,) = (await claim_named(scene, [item_id(job, 0)])).items
    assert (again.fence, again.attempt_count) == (item.fence + 1, 1)
    assert await scene.site.one("SELECT due_at FROM items") is None
    await scene.settle(again, OK)
    assert await scene.states(job) == ["succeeded"]


async def test_items_of_several_handlers_are_claimed_together(scene: Scene) -> None:
    one, other = await scene.submit(2), await scene.submit(2, handler="other")
    wants = [
        (Want("echo", 2, RECONCILE_MS), [item_id(one, 0)]),
        (Want("other", 2, 0), [item_id(other, 1), item_id(one, 1)]),
    ]
    taken = await scene.store.items.claim_named(wants, "w1", LEASE_MS)
    assert ids_of(taken) == [item_id(one, 0), item_id(other, 1)]
    assert {terms.id for terms in taken.jobs} == {one, other}


async def test_of_many_who_name_the_same_items_each_item_has_one_holder(scene: Scene) -> None:
    job = await scene.submit(40)
    ids = [item_id(job, n) for n in range(40)]
    stores = [await scene.site.open_store() for _ in range(4)]
    wants = [(Want("echo", 40, RECONCILE_MS), ids)]
    parts = await asyncio.gather(
        *[store.items.claim_named(wants, f"w{n}", LEASE_MS) for n, store in enumerate(stores)],
        *[store.items.claim([Want("echo", 10, RECONCILE_MS)], f"v{n}", LEASE_MS) for n, store in enumerate(stores)],
    )
    won = [item for part in parts for item in ids_of(part)]
    assert sorted(won) == ids
    assert await scene.site.rows("SELECT DISTINCT fence FROM items") == [(1,)]


async def test_a_named_claim_whose_answer_was_lost_can_be_disowned(scene: Scene) -> None:
    job = await scene.submit()
    await claim_named(scene, [item_id(job, 0)], worker="w1:7")
    await scene.store.items.return_lost_claim("w1:7")
    assert ids_of(await claim_named(scene, [item_id(job, 0)], worker="w1:8")) == [item_id(job, 0)]


@pytest.mark.parametrize("name", ["claim_named", "hinted_items"])
def test_sqlite_finds_named_items_by_their_keys(sqlite_file_url: str, name: str) -> None:
    connection = sqlite3.connect(sqlite_file_url.removeprefix("sqlite:///"))
    query = queries_for(SQLITE)[name]
    values = {"handler": "echo", "worker": "w", "lease_ms": 1, "reconcile_ms": 1, "now": 1, "batch": json.dumps([[1]])}
    plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {query.sql}", values)]
    reads = [line for line in plan if " items " in line]
    assert set(reads) == {"SEARCH items USING INTEGER PRIMARY KEY (rowid=?)"}
    connection.close()
