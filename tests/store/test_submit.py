"""submit: items come in by chunks, once, whoever sends them again."""

import asyncio

import pytest

from backstay.core.errors import IdempotencyConflict, NotAllowed, UsageError
from backstay.core.ids import POSITIONS_MAX, item_id
from backstay.core.states import JobState
from backstay.store.submissions import Chunk, check_same
from tests.databases import START_MS
from tests.store.store_rig import OK, Scene, chunk, new_job


async def test_a_job_and_its_first_items_come_in_together(scene: Scene) -> None:
    job_id = await scene.submit(3)
    job = await scene.job(job_id)
    assert (job.state, job.total, job.sealed, job.created_at) == (JobState.QUEUED, 3, True, START_MS)
    assert await scene.states(job_id) == ["queued"] * 3
    assert (await scene.item(job_id, 2)).body == '"body-2"'


async def test_a_job_grows_by_chunks_until_its_last(scene: Scene) -> None:
    job = await scene.open_job(2, last=False)
    assert not (await scene.job(job.id)).sealed
    await scene.store.submissions.add_items("echo", job, chunk(2, 3, last=True))
    assert ((await scene.job(job.id)).total, (await scene.job(job.id)).sealed) == (5, True)
    assert [(await scene.item(job.id, n)).body for n in range(5)] == [f'"body-{n}"' for n in range(5)]


async def test_a_sealed_job_takes_no_more_items(scene: Scene) -> None:
    job = await scene.open_job(2)
    with pytest.raises(NotAllowed):
        await scene.store.submissions.add_items("echo", job, chunk(2, 1, last=True))
    assert (await scene.job(job.id)).total == 2


async def test_a_stopped_job_takes_no_more_items(scene: Scene) -> None:
    job = await scene.open_job(1, last=False)
    await scene.store.jobs.cancel(job.id, "ann")
    with pytest.raises(NotAllowed):
        await scene.store.submissions.add_items("echo", job, chunk(1, 1, last=True))


async def test_of_two_submitters_of_the_same_chunk_one_is_refused(scene: Scene) -> None:
    job = await scene.open_job(2, last=False)
    await scene.store.submissions.add_items("echo", job, chunk(2, 2, last=False))
    with pytest.raises(NotAllowed):
        await scene.store.submissions.add_items("echo", job, chunk(2, 2, last=False))
    assert (await scene.job(job.id)).total == 4


async def test_a_chunk_that_leaves_a_gap_is_refused(scene: Scene) -> None:
    job = await scene.open_job(2, last=False)
    with pytest.raises(NotAllowed):
        await scene.store.submissions.add_items("echo", job, chunk(3, 1, last=True))


async def test_a_job_has_an_end_to_its_size(scene: Scene) -> None:
    job = await scene.open_job(1, last=False)
    with pytest.raises(UsageError, match="at most"):
        await scene.store.submissions.add_items("echo", job, Chunk(POSITIONS_MAX, ["1"], "", last=True))


async def test_the_same_key_finds_the_same_job(scene: Scene) -> None:
    first = await scene.open_job(2, idempotency_key="k")
    again = await scene.open_job(2, idempotency_key="k")
    assert (again.id, again.new, again.total) == (first.id, False, 2)
    check_same(again, chunk(0, 2, last=True).digest)
    assert await scene.site.one("SELECT count(*) FROM items") == 2


async def test_the_same_key_with_another_body_is_a_conflict(scene: Scene) -> None:
    await scene.open_job(2, idempotency_key="k")
    again = await scene.open_job(2, idempotency_key="k")
    with pytest.raises(IdempotencyConflict):
        check_same(again, chunk(0, 2, last=True, word="other").digest)


async def test_keys_of_different_owners_do_not_meet(scene: Scene) -> None:
    assert await scene.submit(owner="ann", idempotency_key="k") != await scene.submit(owner="bob", idempotency_key="k")


async def test_a_submitter_that_died_half_way_is_resumed_where_it_stopped(scene: Scene) -> None:
    await scene.open_job(2, last=False, idempotency_key="k")
    found = await scene.open_job(2, last=False, idempotency_key="k")
    assert (found.new, found.total, found.sealed) == (False, 2, 0)
    check_same(found, chunk(0, 2, last=False).digest)
    await scene.store.submissions.add_items("echo", found, chunk(2, 1, last=True))
    assert ((await scene.job(found.id)).total, (await scene.job(found.id)).sealed) == (3, True)


async def test_one_key_used_by_two_at_once_makes_one_job(scene: Scene) -> None:
    stores = [await scene.site.open_store() for _ in range(2)]
    job = new_job(idempotency_key="k")
    opened = await asyncio.gather(*(store.submissions.open(job, chunk(0, 50, last=True)) for store in stores * 4))
    assert len({one.id for one in opened}) == 1
    assert [one.new for one in opened].count(True) == 1
    assert await scene.site.one("SELECT count(*) FROM items") == 50


async def test_an_item_is_timed_from_when_it_came_in_and_dated_from_its_job(scene: Scene) -> None:
    job = await scene.open_job(1, last=False, deadline_ms=60_000)
    await scene.site.advance(10)
    await scene.store.submissions.add_items("echo", job, chunk(1, 1, last=True))
    late = await scene.item(job.id, 1)
    assert (late.created_at, late.deadline_at) == (START_MS + 10_000, START_MS + 60_000)


async def test_a_job_whose_items_ended_before_it_was_sealed_ends_when_it_is(scene: Scene) -> None:
    job = await scene.open_job(1, last=False)
    await scene.settle((await scene.claim())[0], OK)
    assert (await scene.job(job.id)).state is JobState.RUNNING
    await scene.store.submissions.add_items("echo", job, Chunk(1, (), "", last=True))
    assert (await scene.job(job.id)).state is JobState.COMPLETED


async def test_a_paused_job_that_is_sealed_after_its_last_item_ended_is_held_no_more(scene: Scene) -> None:
    job = await scene.open_job(1, last=False)
    await scene.settle((await scene.claim())[0], OK)
    await scene.store.jobs.pause(job.id, "ann")
    await scene.store.submissions.add_items("echo", job, Chunk(1, (), "", last=True))
    assert (await scene.job(job.id)).state is JobState.COMPLETED
    assert (await scene.store.providers.holds()).jobs == {}


async def test_a_cancelled_job_that_is_sealed_after_its_last_item_ended_is_cancelled(scene: Scene) -> None:
    job = await scene.open_job(1, last=False)
    await scene.settle((await scene.claim())[0], OK)
    await scene.store.jobs.cancel(job.id, "ann")
    await scene.store.submissions.add_items("echo", job, Chunk(1, (), "", last=True))
    for job_id, reason in await scene.store.sweeps.stopped_jobs():
        await scene.store.sweeps.end_stopped(job_id, reason)
    assert (await scene.job(job.id)).state is JobState.CANCELLED
    assert await scene.store.sweeps.stopped_jobs() == []


@pytest.mark.parametrize("body", ['"a\\u0000b"', '"\\ud800"', '"é ☃ 𝄞"'])
async def test_any_json_text_comes_back_as_it_went_in(scene: Scene, body: str) -> None:
    job = await scene.store.submissions.open(new_job(), Chunk(0, [body], "", last=True))
    assert (await scene.claim())[0].body == body
    assert (await scene.store.item_views.get(item_id(job.id, 0), "ann")).body == body
