"""Answers that are not whole are counted in the transaction of their items, and exactly: the auditor adds them up."""

import pytest

from backstay.core.failures import ErrorCode, Failure, FailureKind
from backstay.core.models import Failed, Flaw, Succeeded, Usage
from backstay.store.dead_letters import LetterFilter, ReplayRequest
from tests.store.store_rig import BROKEN, OK, Scene, decided

COUNTED = (Flaw.TRUNCATED, Flaw.REFUSED, Flaw.FILTERED)


def answer(flaw: Flaw | None, usage: Usage | None = None) -> Succeeded:
    return Succeeded("1", usage, 200, flaw)


def failed(flaw: Flaw | None, usage: Usage | None = None) -> Failed:
    failure = Failure(ErrorCode.GW_4XX, FailureKind.INFRASTRUCTURE, "not whole", provider_status=200)
    return Failed(failure, usage, task_ended=True, reply='{"status_code":200}', flaw=flaw)


async def counts(scene: Scene, job_id: int) -> tuple[int, int, int]:
    job = await scene.job(job_id)
    return job.truncated, job.refused, job.filtered


@pytest.mark.parametrize("usage", [None, Usage(1, 2, 3)], ids=["silent", "with usage"])
async def test_answers_are_counted_by_their_flaws(scene: Scene, usage: Usage | None) -> None:
    job_id = await scene.submit(8)
    flaws = [None, *COUNTED, Flaw.TRUNCATED, None, Flaw.REFUSED, Flaw.UNFINISHED]
    claimed = await scene.claim()
    for item, flaw in zip(claimed[:4], flaws[:4], strict=True):
        await scene.settle(item, answer(flaw, usage))
    assert await counts(scene, job_id) == (1, 1, 1)
    now = scene.site.clock.ms
    group = zip(claimed[4:], flaws[4:], strict=True)
    await scene.store.items.settle([decided(item, answer(flaw, usage), now) for item, flaw in group])
    assert await counts(scene, job_id) == (2, 2, 1)
    job = await scene.job(job_id)
    assert (job.state, job.succeeded, job.unfinished) == ("completed", 8, 1)
    rows = [row async for row in scene.store.results.all(job_id, "ann")]
    assert [row.flaw for row in rows] == flaws


async def test_an_answer_that_is_tried_again_is_counted_when_it_has_ended(scene: Scene) -> None:
    job_id = await scene.submit(2)
    for _ in range(2):
        for item in await scene.claim():
            await scene.settle(item, failed(Flaw.TRUNCATED, Usage(1, 2, 30)))
        assert await counts(scene, job_id) == (0, 0, 0)
        await scene.site.advance(60)
    first, second = await scene.claim()
    await scene.settle(first, failed(Flaw.TRUNCATED, Usage(1, 2, 30)))
    await scene.settle(second, answer(None, Usage(1, 2, 30)))
    assert await counts(scene, job_id) == (1, 0, 0)
    job = await scene.job(job_id)
    assert (job.succeeded, job.failed, job.spent_micros) == (1, 1, 180)
    [kept] = [row async for row in scene.store.results.all(job_id, "ann") if row.state == "failed"]
    assert (kept.result, kept.flaw, kept.attempt_count) == ('{"status_code":200}', "truncated", 3)


@pytest.mark.parametrize("flaw", [Flaw.TRUNCATED, Flaw.INVALID])
@pytest.mark.parametrize("ends", ["deadline", "timeout", "cancel"])
async def test_an_answer_that_was_to_be_tried_again_is_kept_however_its_item_ends(
    scene: Scene, ends: str, flaw: Flaw
) -> None:
    job_id = await scene.submit(2, deadline_ms=600_000 if ends == "deadline" else None)
    flawed, plain = await scene.claim()
    await scene.settle(flawed, failed(flaw, Usage(1, 2, 30)))
    await scene.settle(plain, BROKEN)
    await scene.end(job_id, ends)
    rows = [row async for row in scene.store.results.all(job_id, "ann")]
    told = [(row.state, row.flaw, row.result) for row in rows]
    other = ("cancelled" if ends == "cancel" else "failed", None, None)
    assert told == [("failed", flaw, '{"status_code":200}'), other]
    assert await counts(scene, job_id) == (int(flaw is Flaw.TRUNCATED), 0, 0)
    await scene.auditor.check()


@pytest.mark.parametrize("by", ["retry", "replay", "replay of some"])
async def test_a_retry_takes_what_it_queues_afresh_out_of_the_counts(scene: Scene, by: str) -> None:
    job_id = await scene.submit(7)
    flaws = (*COUNTED, Flaw.TRUNCATED, None, Flaw.UNKNOWN)
    whole, *claimed = await scene.claim()
    await scene.settle(whole, answer(Flaw.REFUSED))
    for item, flaw in zip(claimed, flaws, strict=True):
        await scene.settle(item, failed(flaw), retry="none")
    assert await counts(scene, job_id) == (2, 2, 1)
    if by == "retry":
        await scene.store.jobs.retry(job_id, "ann", claimed[0].id)
        assert await counts(scene, job_id) == (1, 2, 1)
        await scene.store.jobs.retry(job_id, "ann")
    elif by == "replay":
        assert (await scene.store.replays.replay("ann", LetterFilter(job_id), ReplayRequest("ann"))).items == 6
    else:
        ids = [item.id for item in claimed]
        assert (await scene.store.replays.replay_some("ann", LetterFilter(), ids, ReplayRequest("ann"))).items == 6
    assert await counts(scene, job_id) == (0, 1, 0), "what succeeded stays as it is"
    await scene.site.advance(3_600)
    for item in await scene.claim():
        await scene.settle(item, OK)
    assert await counts(scene, job_id) == (0, 1, 0)
    assert (await scene.job(job_id)).succeeded == 7


async def test_a_lost_lease_counts_nothing(scene: Scene) -> None:
    job_id = await scene.submit()
    [old] = await scene.claim(lease_ms=1_000)
    await scene.site.advance(600)
    [new] = (await scene.store.items.rescue("echo", False, 10, "w2", 90_000)).items
    await scene.settle(old, answer(Flaw.TRUNCATED))
    assert await counts(scene, job_id) == (0, 0, 0)
    await scene.settle(new, answer(Flaw.FILTERED))
    assert await counts(scene, job_id) == (0, 0, 1)


async def test_a_retry_takes_an_unfinished_answer_out_of_the_counts(scene: Scene) -> None:
    job_id = await scene.submit(2)
    for item in await scene.claim():
        await scene.settle(item, failed(Flaw.UNFINISHED), retry="none")
    assert (await scene.job(job_id)).unfinished == 2
    await scene.store.jobs.retry(job_id, "ann")
    assert (await scene.job(job_id)).unfinished == 0
