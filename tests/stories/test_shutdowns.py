"""SIGTERM while items run: finish or hand back, lose nothing, spend no attempt, and say goodbye to the database."""

from pathlib import Path

import pytest

from backstay import Job
from backstay.core.ids import item_id
from backstay.core.states import ItemState
from backstay.store.item_views import ItemDetail
from tests.databases import fresh_database
from tests.stories.stage import Stage, paid_twice, terminate

pytestmark = pytest.mark.slow

database_url = fresh_database("postgres", later="sqlite")

ITEMS = 30
CONCURRENCY = 10


async def items_of(stage: Stage, job: Job) -> list[ItemDetail]:
    return [await stage.store.item_views.get(item_id(job.id, position), "local") for position in range(ITEMS)]


async def stop_in_flight(stage: Stage, kind: str, finishing: bool, **environment: str) -> None:
    """Ends a worker by SIGTERM when all its calls are under way; the provider finishes them in time, or does not."""
    await stage.manners(kind, holding=True)
    worker = stage.worker(CONCURRENCY, **environment)
    await stage.in_flight(kind, CONCURRENCY)
    terminate(worker)
    await stage.said(worker, "worker stopping")
    if finishing:
        await stage.manners(kind, holding=False)
    assert await stage.ended(worker) == 0
    said_goodbye = await stage.working(worker)
    assert said_goodbye.stopped_at is not None, "the last word in the database is that this worker has left"
    await stage.manners(kind, holding=False)


async def test_a_worker_told_to_stop_finishes_what_is_in_flight_and_takes_no_more(
    database_url: str, tmp_path: Path
) -> None:
    async with Stage(database_url, tmp_path) as stage:
        job = await stage.submit("unaskable", range(ITEMS))
        await stop_in_flight(stage, "unaskable", finishing=True)
        assert len(await stage.bill("unaskable")) == CONCURRENCY
        states = [(item.state, item.attempt_count, item.leased_by) for item in await items_of(stage, job)]
        assert states.count((ItemState.SUCCEEDED, 1, None)) == CONCURRENCY
        assert states.count((ItemState.QUEUED, 0, None)) == ITEMS - CONCURRENCY

        stage.worker(CONCURRENCY)
        assert (await job.wait(timeout_seconds=60)).succeeded == ITEMS
        assert paid_twice(await stage.bill("unaskable")) == []


async def test_what_cannot_finish_is_handed_back_without_an_attempt_and_the_repeat_is_recorded(
    database_url: str, tmp_path: Path
) -> None:
    async with Stage(database_url, tmp_path) as stage:
        job = await stage.submit("unaskable", range(ITEMS))
        await stop_in_flight(stage, "unaskable", finishing=False, STORY_SHUTDOWN_SECONDS="0.2")
        items = await items_of(stage, job)
        assert {(item.state, item.attempt_count, item.leased_by) for item in items} == {("queued", 0, None)}
        assert sum(item.repeats for item in items) == CONCURRENCY

        stage.worker(CONCURRENCY)
        ended = await job.wait(timeout_seconds=60)
        assert (ended.succeeded, ended.repeats) == (ITEMS, CONCURRENCY)
        assert {result.attempts for result in (await stage.results(job)).values()} == {1}
        assert len(paid_twice(await stage.bill("unaskable"))) == CONCURRENCY


async def test_what_was_cut_off_at_a_provider_that_can_be_asked_is_asked_about_and_paid_once(
    database_url: str, tmp_path: Path
) -> None:
    async with Stage(database_url, tmp_path) as stage:
        job = await stage.submit("askable", range(ITEMS))
        await stop_in_flight(stage, "askable", finishing=False, STORY_SHUTDOWN_SECONDS="0.1")
        items = await items_of(stage, job)
        assert {(item.attempt_count, item.leased_by) for item in items} == {(0, None)}
        assert sum(item.state == "submitting" for item in items) == CONCURRENCY, "kept to be asked about"

        stage.worker(CONCURRENCY)
        assert (await job.wait(timeout_seconds=60)).succeeded == ITEMS
        assert paid_twice(await stage.bill("askable")) == []
