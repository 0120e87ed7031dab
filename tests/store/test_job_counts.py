"""The counters of large jobs, on PostgreSQL: written apart, seen by everyone, added up, and exact to the last item."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from backstay.core.events import JobEnded
from backstay.core.models import Outcome, Succeeded, Usage
from backstay.core.states import JobState
from backstay.store.items import Want
from backstay.store.job_counts import LargeJobs
from backstay.store.store import Store
from tests.databases import Leaping, Site, Ticker
from tests.engine.rig import Rig
from tests.store.audit import Auditor
from tests.store.store_rig import LEASE_MS, OK, RECONCILE_MS, TASK, WRONG, Scene, chunk, decided, new_job

BOTH = "SELECT succeeded, (SELECT coalesce(sum(succeeded), 0) FROM job_counts WHERE job_id = jobs.id) FROM jobs"


@pytest.fixture
async def postgres_site(reused_postgres_url: str) -> Site:
    site = Site(reused_postgres_url, Ticker())
    await site.empty()
    return site


@pytest.fixture
async def large(postgres_site: Site) -> AsyncIterator[Scene]:
    """A job with at least two items left is large."""
    scene = Scene(postgres_site)
    await scene.store.open()
    scene.store.counters.large.items_min = 2
    yield scene
    await scene.store.close()


async def settle_each(scene: Scene, items: int, outcome: Outcome = OK, store: Store | None = None) -> None:
    for item in await scene.claim(items):
        settlement = decided(item, outcome, scene.site.clock.ms, retry="none")
        await (store or scene.store).items.settle([settlement])


async def test_settlements_of_a_large_job_do_not_touch_its_row_and_views_count_them(large: Scene) -> None:
    job = await large.submit(6)
    await settle_each(large, 3)
    assert await large.site.rows(BOTH) == [(0, 3)]
    assert (await large.job(job)).succeeded == 3
    [listed] = await large.store.job_views.page("ann", 10)
    assert listed.succeeded == 3


async def test_the_last_item_of_a_large_job_ends_it_in_its_own_transaction(large: Scene) -> None:
    job = await large.submit(6)
    await settle_each(large, 5)
    assert (await large.job(job)).state is JobState.RUNNING
    [last] = await large.claim(1)
    settled = await large.settle(last, WRONG, retry="none")
    assert settled.ended_jobs == [(job, JobState.COMPLETED)]
    view = await large.job(job)
    assert (view.succeeded, view.failed, view.state) == (5, 1, JobState.COMPLETED)
    assert await large.site.rows("SELECT * FROM job_counts") == []


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_job_ends_when_its_counts_are_added_up_whoever_wrote_them(large: Scene, forgotten: bool) -> None:
    job = await large.submit(6)
    other = Store(large.site.database())
    await other.open()
    await settle_each(large, 2)  # in its eyes four items are left
    await settle_each(large, 2, store=other)
    other.counters.large.note_left([(job, 1_000_000, JobState.RUNNING)])  # it has not heard of the others for long
    await settle_each(large, 2, store=other)
    assert (await large.job(job)).succeeded == 6
    assert (await large.job(job)).state is JobState.RUNNING
    if forgotten:
        await large.site.advance(4)
        assert await large.store.counters.add_up_forgotten() == [(job, JobState.COMPLETED)]
    else:
        assert await other.counters.add_up(at_once=True) == [(job, JobState.COMPLETED)]
    view = await large.job(job)
    assert (view.succeeded, view.state) == (6, JobState.COMPLETED)
    await other.close()


async def test_what_was_just_added_up_waits_for_the_next_time_and_is_not_forgotten(large: Scene) -> None:
    await large.submit(9)
    await settle_each(large, 3)
    await large.store.counters.add_up(at_once=True)
    await settle_each(large, 3)
    await large.store.counters.add_up()
    assert await large.site.rows(BOTH) == [(3, 3)]
    await large.site.advance(1)
    await large.store.counters.add_up()
    assert await large.site.rows(BOTH) == [(6, 0)]


async def test_tasks_failures_and_tokens_are_counted_apart_and_money_is_not(large: Scene) -> None:
    job = await large.submit(9)
    for outcome in (OK, TASK, WRONG, Succeeded("1", Usage(10, 20, None)), Succeeded("1", Usage(1, 2, 300))):
        await settle_each(large, 1, outcome)
    view = await large.job(job)
    assert (view.succeeded, view.processing, view.failed) == (3, 1, 1)
    assert (view.input_tokens, view.output_tokens, view.spent_micros) == (11, 22, 300)
    row = "SELECT succeeded, processing, failed, input_tokens, spent_micros FROM jobs"
    assert await large.site.rows(row) == [(1, 0, 0, 1, 300)], "the one that cost money"


async def test_retried_items_of_a_large_job_are_counted_right(large: Scene) -> None:
    job = await large.submit(6)
    await settle_each(large, 6, WRONG)
    assert (await large.job(job)).state is JobState.FAILED
    await large.store.jobs.retry(job, "ann")
    await settle_each(large, 6, OK)
    view = await large.job(job)
    assert (view.succeeded, view.failed, view.state) == (6, 0, JobState.COMPLETED)


async def test_many_workers_count_a_job_exactly_and_end_it_once(postgres_site: Site) -> None:
    workers, items = 8, 400
    stores = [await postgres_site.open_store() for _ in range(workers + 1)]
    for store in stores:
        store.counters.large.items_min = 40
    submitted = await stores[0].submissions.open(new_job(), chunk(0, items, True))
    rng, ended = Random(7), list[tuple[int, JobState]]()

    async def work(number: int, store: Store) -> None:
        want = Want("echo", rng.randint(1, 9), RECONCILE_MS)
        while claimed := (await store.items.claim([want], f"w{number}", LEASE_MS)).items:
            for item in claimed:
                outcome = OK if rng.random() < 0.7 else WRONG
                settlement = decided(item, outcome, postgres_site.clock.ms, retry="none")
                ended.extend((await store.items.settle([settlement])).ended_jobs)
            if rng.random() < 0.2:
                ended.extend(await store.counters.add_up(at_once=rng.random() < 0.5))

    await asyncio.gather(*(work(number, store) for number, store in enumerate(stores[1:])))
    await postgres_site.advance(4)
    ended.extend(await stores[0].counters.add_up_forgotten())
    view = await stores[0].job_views.get(submitted.id, "ann")
    [(succeeded, failed)] = await postgres_site.rows(
        "SELECT count(*) FILTER (WHERE state = 'succeeded'), count(*) FILTER (WHERE state = 'failed') FROM items"
    )
    assert (view.succeeded, view.failed) == (succeeded, failed)
    assert succeeded + failed == items
    assert ended == [(submitted.id, JobState.COMPLETED)]
    assert await postgres_site.rows("SELECT * FROM job_counts") == []
    await Auditor(postgres_site).check()
    await postgres_site.close()


async def test_a_worker_adds_up_the_counts_of_its_jobs(reused_postgres_url: str) -> None:
    site = Site(reused_postgres_url, Leaping())
    await site.empty()
    rig = Rig(site, await site.open_store())
    rig.store.counters.large.items_min = 0  # so the last settlement does not end the job

    @rig.app.handler("quick")
    async def quick(item: int) -> int:
        return item

    job = await rig.submit(range(300), "quick")
    async with rig.working():
        view = await job.wait(timeout_seconds=20)
    assert (view.state, view.succeeded) == (JobState.COMPLETED, 300)
    assert [event.job_id for event in rig.told(JobEnded)] == [job.id]
    await site.close()


def test_a_process_remembers_a_bounded_number_of_large_jobs() -> None:
    large = LargeJobs(items_min=10)
    large.note_left((job, 100, JobState.RUNNING) for job in range(2_000))
    assert 1_999 in large
    assert 0 not in large
    large.note_apart({1_999: 95})
    assert 1_999 not in large
    assert large.was_large(1_999)
    large.note_left([(1_999, 0, JobState.COMPLETED)])
    assert not large.was_large(1_999)
