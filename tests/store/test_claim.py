"""claim: the due items in order, each to one worker, and nothing that is held."""

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from backstay.core.states import JobState
from backstay.store.claim import Want
from tests.sites import START_MS, Site
from tests.store.scene import BROKEN, LEASE_MS, OK, RECONCILE_MS, Scene, chunk, new_job


async def test_a_claim_gives_a_lease_a_fence_and_the_body(scene: Scene) -> None:
    job_id = await scene.submit(1)
    (item,) = await scene.claim()
    assert (item.job_id, item.state, item.fence, item.attempt_count, item.body) == (
        job_id,
        "submitting",
        1,
        0,
        '"body-0"',
    )
    held = await scene.item(job_id)
    assert (held.leased_by, held.lease_expires_at) == ("w1", START_MS + LEASE_MS)
    assert held.reconcile_after == START_MS + RECONCILE_MS
    assert held.last_attempt_at == START_MS


async def test_the_first_claim_makes_the_job_running_and_tells_its_terms_once(scene: Scene) -> None:
    job_id = await scene.submit(2, retry="gateway", delivery="at_most_once")
    want = [Want("echo", 1, RECONCILE_MS)]
    first = await scene.store.claim(want, "w1", LEASE_MS)
    assert [(job.id, job.owner, job.retry, job.delivery) for job in first.jobs] == [
        (job_id, "ann", "gateway", "at_most_once")
    ]
    assert ((await scene.job(job_id)).state, (await scene.job(job_id)).started_at) == (JobState.RUNNING, START_MS)
    assert (await scene.store.claim(want, "w1", LEASE_MS, met={job_id})).jobs == []


async def test_what_one_worker_got_no_other_gets(scene: Scene) -> None:
    await scene.submit(3)
    first = await scene.claim(2, worker="w1")
    second = await scene.claim(10, worker="w2")
    assert len(first) == 2
    assert len(second) == 1
    assert not {item.id for item in first} & {item.id for item in second}
    assert await scene.claim(10, worker="w3") == []


async def test_a_claim_takes_no_more_than_it_asked_for(scene: Scene) -> None:
    await scene.submit(10)
    assert len(await scene.claim(4)) == 4


async def test_a_claim_takes_only_its_handlers_items(scene: Scene) -> None:
    await scene.submit(handler="other")
    assert await scene.claim(handler="echo") == []
    assert len(await scene.claim(handler="other")) == 1


async def test_one_claim_serves_several_handlers(scene: Scene) -> None:
    await scene.submit(2, handler="a")
    await scene.submit(2, handler="b")
    wants = [Want("a", 1, 1), Want("b", 2, 1), Want("none", 5, 1)]
    taken = await scene.store.claim(wants, "w1", LEASE_MS)
    assert Counter(item.handler for item in taken.items) == {"a": 1, "b": 2}


async def test_of_jobs_of_one_priority_the_older_goes_first(scene: Scene) -> None:
    old = await scene.submit()
    await scene.site.advance(1)
    await scene.submit()
    assert [item.job_id for item in await scene.claim(1)] == [old]


async def test_a_high_priority_overtakes_what_is_older(scene: Scene) -> None:
    await scene.submit(3)
    await scene.site.advance(60)
    urgent = await scene.submit(priority=9)
    assert [item.job_id for item in await scene.claim(1)] == [urgent]


async def test_a_low_priority_is_not_starved(scene: Scene) -> None:
    patient = await scene.submit(priority=0)
    await scene.site.advance(9 * 3_600 + 1)
    await scene.submit(5, priority=9)
    assert [item.job_id for item in await scene.claim(1)] == [patient]


async def test_ten_items_do_not_wait_behind_twenty_thousand(scene: Scene) -> None:
    store = await scene.site.open_store()
    await store.open_job(new_job(), chunk(0, 20_000, last=True))
    await scene.site.advance(5)
    small = await store.open_job(new_job(), chunk(0, 10, last=True))
    taken = await store.claim([Want("echo", 40, 1)], "w1", LEASE_MS)
    assert sum(item.job_id == small.id for item in taken.items) == 10


async def test_an_item_that_waits_for_its_time_is_not_claimed_before_it(scene: Scene) -> None:
    job_id = await scene.submit()
    await scene.settle((await scene.claim())[0], BROKEN)
    due_at = (await scene.item(job_id)).due_at
    assert due_at is not None
    await scene.site.advance((due_at - START_MS - 1) / 1000)
    assert await scene.claim() == []
    await scene.site.advance(0.001)
    assert [item.attempt_count for item in await scene.claim()] == [1]


async def test_without_promoting_a_due_item_still_waits(scene: Scene) -> None:
    await scene.submit()
    await scene.settle((await scene.claim())[0], BROKEN)
    await scene.site.advance(3_600)
    want = [Want("echo", 1, 1)]
    assert (await scene.store.claim(want, "w1", LEASE_MS, promoting=False)).items == []
    assert len((await scene.store.claim(want, "w1", LEASE_MS, promoting=True)).items) == 1


async def test_a_paused_job_is_passed_over_and_blocks_nobody(scene: Scene) -> None:
    held = await scene.submit(3)
    await scene.site.advance(1)
    free = await scene.submit(1)
    await scene.store.pause(held, "ann")
    assert [item.job_id for item in await scene.claim(1)] == [free]
    assert await scene.claim() == []


async def test_a_stopped_job_is_passed_over(scene: Scene) -> None:
    job_id = await scene.submit(3)
    await scene.store.cancel(job_id, "ann")
    assert await scene.claim() == []


async def test_a_job_past_its_limit_is_passed_over(scene: Scene) -> None:
    await scene.submit(job_timeout_ms=1_000)
    await scene.site.advance(1)
    assert await scene.store.stop_overdue() != []
    assert await scene.claim() == []


async def test_an_expired_lease_does_not_make_an_item_claimable(scene: Scene) -> None:
    await scene.submit()
    await scene.claim()
    await scene.site.advance(3_600)
    assert await scene.claim(worker="w2") == []


async def test_a_finished_item_is_never_claimed_again(scene: Scene) -> None:
    await scene.ended(OK, items=2)
    await scene.site.advance(100_000)
    assert await scene.claim() == []


async def test_claimers_of_one_loop_get_disjoint_sets(scene: Scene) -> None:
    store = await scene.site.open_store()
    await store.open_job(new_job(), chunk(0, 400, last=True))
    want = [Want("echo", 30, 1)]
    takes = await asyncio.gather(*(store.claim(want, f"w{n}", LEASE_MS) for n in range(20)))
    ids = [item.id for taken in takes for item in taken.items]
    assert len(ids) == len(set(ids)) == 400


async def _claim_all(site: Site, worker: str) -> list[int]:
    store = await site.lend_store()
    ids: list[int] = []
    while taken := (await store.claim([Want("echo", 7, 1)], worker, LEASE_MS)).items:
        ids += [item.id for item in taken]
    await store.close()
    return ids


async def test_claimers_of_other_threads_and_connections_get_disjoint_sets(scene: Scene) -> None:
    store = await scene.site.open_store()
    await store.open_job(new_job(), chunk(0, 300, last=True))
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(3) as pool:
        runs = [loop.run_in_executor(pool, asyncio.run, _claim_all(scene.site, f"w{n}")) for n in range(3)]
        takes = await asyncio.gather(*runs)
    ids = [item for taken in takes for item in taken]
    assert len(ids) == len(set(ids)) == 300


@pytest.mark.parametrize("items", [0, 1])
async def test_an_empty_queue_gives_nothing(scene: Scene, items: int) -> None:
    assert await scene.claim(items) == []
