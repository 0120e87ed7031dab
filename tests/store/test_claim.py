"""claim: the due items in order, each to one worker, and nothing that is held."""

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from backstay.core.ids import level_key
from backstay.core.states import JobState
from backstay.store.databases.postgres import PostgresDatabase
from backstay.store.items import Want
from backstay.store.queries import Ask
from backstay.store.store import Store
from tests.databases import START_MS, Site
from tests.store.silent_connections import opened
from tests.store.store_rig import BROKEN, LEASE_MS, OK, RECONCILE_MS, WRONG, Scene, chunk, decided, new_job


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
    first = await scene.store.items.claim(want, "w1", LEASE_MS)
    assert [(job.id, job.owner, job.retry, job.delivery) for job in first.jobs] == [
        (job_id, "ann", "gateway", "at_most_once")
    ]
    assert ((await scene.job(job_id)).state, (await scene.job(job_id)).started_at) == (JobState.RUNNING, START_MS)
    assert (await scene.store.items.claim(want, "w1", LEASE_MS, known_jobs={job_id})).jobs == []


async def test_terms_come_from_the_claim_that_starts_the_job_and_to_everyone_else_too(scene: Scene) -> None:
    """A claim tells the terms of a few jobs that it starts. Those of many, and of jobs that run, are read for it."""
    terms: dict[str, Any] = {"retry": "gateway", "delivery": "at_most_once", "priority": 3}
    jobs = [await scene.submit(2, **terms) for _ in range(25)]
    want = [Want("echo", len(jobs), RECONCILE_MS)]
    first = await scene.store.items.claim(want, "w1", LEASE_MS)
    then = await scene.store.items.claim(want, "w2", LEASE_MS)
    assert len(first.items) == len(then.items) == len(jobs)
    assert sorted(first.jobs) == sorted(then.jobs)
    assert {(job.retry, job.delivery, job.priority, job.handler) for job in first.jobs} == {(*terms.values(), "echo")}
    assert sorted(job.id for job in first.jobs) == jobs


async def test_a_small_submit_a_claim_and_a_settlement_are_one_statement_each(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each further one is a round trip that every item waits for."""
    asked: list[str] = []
    ask = PostgresDatabase._ask

    async def note(self: PostgresDatabase, connection: Any, one: Ask) -> list[Any]:
        asked.append(one.name)
        return await ask(self, connection, one)

    async with opened(postgres_url) as store:
        monkeypatch.setattr(PostgresDatabase, "_ask", note)
        await store.submissions.open(new_job(), chunk(0, 1, True))
        taken = await store.items.claim([Want("echo", 10, RECONCILE_MS)], "w1", LEASE_MS, promoting=False)
        assert len(taken.jobs) == 1
        await store.items.settle([decided(taken.items[0], OK, taken.items[0].claimed_at)])
    assert asked == ["submit_few", "claim", "settle_few"]


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
    taken = await scene.store.items.claim(wants, "w1", LEASE_MS)
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


async def test_a_claim_that_starts_at_a_low_priority_takes_the_rest_from_the_head(scene: Scene) -> None:
    low, high = await scene.submit(2, priority=0), await scene.submit(5, priority=9)
    want = Want("echo", 4, 1, from_key=level_key(3))
    assert Counter(item.job_id for item in (await scene.store.items.claim([want], "w1", LEASE_MS)).items) == {
        low: 2,
        high: 2,
    }


class Queue:
    """A worker that claims as fast as it is told, and tells how far it has come, as the engine does."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.done: Counter[int] = Counter()

    async def serve(self, items: int) -> None:
        while items > 0:
            taken = (await self.store.items.claim([Want("echo", min(items, 1_000), 1)], "w1", LEASE_MS)).items
            self.done.update(item.job_id for item in taken)
            await self.store.items.advance_turns({"echo": [max(item.order_key for item in taken)]})
            items -= len(taken)


@pytest.mark.parametrize("items_a_second", [0.1, 1, 1_000])
@pytest.mark.parametrize("gap_seconds", [60, 3_600, 86_400])
async def test_ten_items_do_not_wait_behind_a_big_job_at_any_rate_and_after_any_gap(
    site: Site, items_a_second: float, gap_seconds: int
) -> None:
    queue = Queue(await site.open_store())
    big = await queue.store.submissions.open(new_job(), chunk(0, 20_000, last=True))
    await queue.serve(min(int(items_a_second * gap_seconds), 15_000))
    await site.advance(gap_seconds)
    small = await queue.store.submissions.open(new_job(), chunk(0, 10, last=True))
    before = queue.done[big.id]
    await queue.serve(20)
    assert queue.done[small.id] == 10
    assert queue.done[big.id] - before == 10, "and it takes its own turns"


async def test_jobs_that_come_one_after_the_other_share_what_is_left(scene: Scene) -> None:
    queue = Queue(scene.store)
    jobs = []
    for _ in range(3):
        jobs.append(await scene.submit(3_000))
        await queue.serve(600)
        await scene.site.advance(3_600)
    before = Counter(queue.done)
    await queue.serve(900)
    assert all(280 <= queue.done[job] - before[job] <= 320 for job in jobs)


async def test_a_job_that_rested_does_not_make_the_others_wait_until_it_has_caught_up(scene: Scene) -> None:
    queue = Queue(scene.store)
    rested = await scene.submit(1_000)
    await queue.serve(10)
    await scene.store.jobs.pause(rested, "ann")
    await scene.store.jobs.park(rested)
    other = await scene.submit(2_000)
    await queue.serve(1_000)
    await scene.store.jobs.resume(rested, "ann")
    before = Counter(queue.done)
    await queue.serve(200)
    assert 90 <= queue.done[other] - before[other] <= 110
    new = await scene.submit(10)
    await queue.serve(40)
    assert queue.done[new] == 10


@pytest.mark.slow
async def test_what_is_retried_does_not_make_the_others_wait(scene: Scene) -> None:
    failed = await scene.submit(300)
    for item in await scene.claim(300):
        await scene.settle(item, WRONG)
    queue = Queue(scene.store)
    await scene.submit(1_000)
    await queue.serve(500)
    assert await scene.store.jobs.retry(failed, "ann") == 300
    new = await scene.submit(10)
    await queue.serve(40)
    assert queue.done[new] == 10
    assert queue.done[failed] >= 10


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
    assert (await scene.store.items.claim(want, "w1", LEASE_MS, promoting=False)).items == []
    assert len((await scene.store.items.claim(want, "w1", LEASE_MS, promoting=True)).items) == 1


async def test_a_paused_job_is_passed_over_and_blocks_nobody(scene: Scene) -> None:
    held = await scene.submit(3)
    await scene.site.advance(1)
    free = await scene.submit(1)
    await scene.store.jobs.pause(held, "ann")
    assert [item.job_id for item in await scene.claim(1)] == [free]
    assert await scene.claim() == []


async def test_a_stopped_job_is_passed_over(scene: Scene) -> None:
    job_id = await scene.submit(3)
    await scene.store.jobs.cancel(job_id, "ann")
    assert await scene.claim() == []


async def test_a_job_past_its_limit_is_passed_over(scene: Scene) -> None:
    await scene.submit(job_timeout_ms=1_000)
    await scene.site.advance(1)
    assert await scene.store.sweeps.stop_overdue() != []
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
    await store.submissions.open(new_job(), chunk(0, 400, last=True))
    want = [Want("echo", 30, 1)]
    takes = await asyncio.gather(*(store.items.claim(want, f"w{n}", LEASE_MS) for n in range(20)))
    ids = [item.id for taken in takes for item in taken.items]
    assert len(ids) == len(set(ids)) == 400


async def _claim_all(site: Site, worker: str) -> list[int]:
    store = await site.lend_store()
    ids: list[int] = []
    while taken := (await store.items.claim([Want("echo", 7, 1)], worker, LEASE_MS)).items:
        ids += [item.id for item in taken]
    await store.close()
    return ids


async def test_claimers_of_other_threads_and_connections_get_disjoint_sets(scene: Scene) -> None:
    store = await scene.site.open_store()
    await store.submissions.open(new_job(), chunk(0, 300, last=True))
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(3) as pool:
        runs = [loop.run_in_executor(pool, asyncio.run, _claim_all(scene.site, f"w{n}")) for n in range(3)]
        takes = await asyncio.gather(*runs)
    ids = [item for taken in takes for item in taken]
    assert len(ids) == len(set(ids)) == 300


@pytest.mark.parametrize("items", [0, 1])
async def test_an_empty_queue_gives_nothing(scene: Scene, items: int) -> None:
    assert await scene.claim(items) == []
