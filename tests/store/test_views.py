"""views: what is read, bounded, and never of another owner."""

import pytest

from backstay.core.errors import DatabaseUnreachable, NotFound
from backstay.core.failures import ErrorCode, Failure, FailureKind
from backstay.core.ids import item_id
from backstay.core.models import CannotAsk, Delivery, Failed
from backstay.store import dead_letters, results
from backstay.store.dead_letters import LetterFilter
from backstay.store.item_views import ItemFilter, timeline
from backstay.store.store import Store
from tests.databases import Site
from tests.store.store_rig import BROKEN, OK, TASK, WRONG, Scene


async def test_another_owners_job_items_and_results_are_not_found(scene: Scene) -> None:
    job_id = await scene.ended(OK)
    with pytest.raises(NotFound):
        await scene.store.job_views.get(job_id, "bob")
    with pytest.raises(NotFound):
        await scene.store.item_views.get(item_id(job_id, 0), "bob")
    with pytest.raises(NotFound):
        [row async for row in scene.store.results.all(job_id, "bob")]
    assert await scene.store.job_views.page("bob") == []


async def test_jobs_are_listed_newest_first_page_by_page(scene: Scene) -> None:
    jobs = [await scene.submit() for _ in range(5)]
    first = await scene.store.job_views.page("ann", n=3)
    assert [job.id for job in first] == jobs[:1:-1]
    assert [job.id for job in await scene.store.job_views.page("ann", before=first[-1].id)] == jobs[1::-1]


async def test_results_come_in_the_order_of_submit_across_pages(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "ROWS_FIRST", 2)
    monkeypatch.setattr(results, "ROWS_MAX", 2)
    job_id = await scene.submit(5)
    for n, item in enumerate(reversed(await scene.claim())):
        await scene.settle(item, WRONG if n == 2 else OK)
    rows = [row async for row in scene.store.results.all(job_id, "ann")]
    assert [row.id for row in rows] == [item_id(job_id, n) for n in range(5)]
    assert [row.state for row in rows] == ["succeeded", "succeeded", "failed", "succeeded", "succeeded"]
    assert (rows[2].error_code, rows[2].message, rows[0].result) == ("GW_4XX", "400", '"done"')


@pytest.mark.parametrize(
    ("before", "lengths", "after"),
    [
        (100, [10] * 100, 200),
        (800, [10] * 800, 1_000),
        (1_000, [1 << 20] * 1_000, 4),
        (4, [8 << 20] * 4, 1),
        (1, [0], 2),
    ],
)
def test_the_longer_the_bodies_the_fewer_are_read_at_once(before: int, lengths: list[int], after: int) -> None:
    assert results.rows_next(before, lengths) == after


async def test_results_leave_out_what_has_not_ended(scene: Scene) -> None:
    job_id = await scene.submit(3)
    await scene.settle((await scene.claim(1))[0], OK)
    assert len([row async for row in scene.store.results.all(job_id, "ann")]) == 1


async def test_a_result_is_the_last_attempts(scene: Scene) -> None:
    job_id = await scene.submit()
    await scene.settle((await scene.claim())[0], BROKEN)
    await scene.site.advance(10)
    await scene.settle((await scene.claim())[0], OK)
    (row,) = [row async for row in scene.store.results.all(job_id, "ann")]
    assert (row.result, row.attempt_count, row.message) == ('"done"', 2, None)


async def test_failures_are_grouped_by_code(scene: Scene) -> None:
    job_id = await scene.ended(WRONG, items=3)
    (group,) = await scene.store.job_views.failures(job_id)
    assert tuple(group) == ("GW_4XX", 3, item_id(job_id, 0), None)


async def test_an_unknown_outcome_is_told_from_a_bug_of_a_handler_by_a_field(scene: Scene) -> None:
    job_id = await scene.submit(3)
    bug, *lost = await scene.claim()
    await scene.settle(bug, Failed(Failure(ErrorCode.UNKNOWN, FailureKind.BUSINESS, "ValueError: outcome unknown: 1")))
    for item in lost:
        await scene.settle(item, CannotAsk(), delivery=Delivery.AT_MOST_ONCE)
    groups = {group.flaw: group[:3] for group in await scene.store.job_views.failures(job_id)}
    assert groups == {None: ("UNKNOWN", 1, bug.id), "unknown": ("UNKNOWN", 2, lost[0].id)}
    assert await scene.store.dead_letters.count_unknown("ann") == 2
    assert [(await scene.item(job_id, n)).flaw for n in range(3)] == [None, "unknown", "unknown"]
    await scene.store.jobs.retry(job_id, "ann")
    assert await scene.store.dead_letters.count_unknown("ann") == 0


async def test_the_backlog_is_told_by_handler(scene: Scene) -> None:
    await scene.submit(3)
    await scene.settle((await scene.claim(1))[0], TASK)
    await scene.submit(2, handler="other")
    assert [tuple(row)[:4] for row in await scene.store.job_views.backlog()] == [("echo", 1, 3, 1), ("other", 1, 2, 0)]


async def test_only_what_can_be_worked_on_makes_a_handler_unfinished(scene: Scene) -> None:
    unfinished = scene.store.item_views.is_unfinished
    assert not await unfinished("echo")
    job_id = await scene.submit()
    assert await unfinished("echo")
    await scene.store.jobs.pause(job_id, "ann")
    assert not await unfinished("echo")
    await scene.store.jobs.resume(job_id, "ann")
    (item,) = await scene.claim()
    assert not await unfinished("echo")
    await scene.settle(item, TASK)
    assert await unfinished("echo")


async def test_the_next_due_item_is_known(scene: Scene) -> None:
    assert await scene.store.item_views.due_in_ms() is None
    job_id = await scene.submit()
    await scene.settle((await scene.claim())[0], BROKEN)
    due_at = (await scene.item(job_id)).due_at
    assert await scene.store.item_views.due_in_ms() == (due_at or 0) - scene.site.clock.ms


async def test_how_many_are_ahead_is_told(scene: Scene) -> None:
    job_id = await scene.submit(5)
    assert await scene.store.item_views.ahead(item_id(job_id, 3)) == 3


async def test_the_oldest_item_that_could_be_started_now_is_known(scene: Scene) -> None:
    since = scene.store.item_views.waiting_since
    assert await since("echo") is None
    start = scene.site.clock.ms
    await scene.submit()
    await scene.site.advance(60)
    await scene.submit(priority=9)  # it comes before, and is younger
    assert (await since("echo"), await since("other")) == (start, None)
    for item in await scene.claim():
        await scene.settle(item, BROKEN)
    assert await since("echo") is None  # they wait for their next try


async def test_a_page_of_items_is_its_owners_alone(scene: Scene) -> None:
    job_id = await scene.ended(OK)
    rows, _ = await scene.store.item_views.page(job_id, "ann", ItemFilter(), None, 10)
    assert [row.id for row in rows] == [item_id(job_id, 0)]
    with pytest.raises(NotFound):
        await scene.store.item_views.page(job_id, "bob", ItemFilter(), None, 10)


@pytest.mark.parametrize("file_id", ["nul \0", "lone \ud800", "Ünicode", "file-nobody-has"])
async def test_a_page_after_a_file_that_cannot_be_is_not_found(scene: Scene, file_id: str) -> None:
    with pytest.raises(NotFound, match="No such File object"):
        await scene.store.files.page("ann", file_id, 10, False, None)


async def test_a_page_of_dead_letters_that_reads_its_limit_says_where_to_go_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked for lies behind more failures than one page reads; each page ends in the middle of a job or between
    two."""
    monkeypatch.setattr(dead_letters, "LOOKED_MAX", 2)
    found = [await scene.ended(WRONG, items=items) for items in (2, 1)]
    for items in (1, 1, 2, 3, 2, 1):
        await scene.ended(BROKEN, items=items)
    wanted = LetterFilter(error_code=ErrorCode.GW_4XX)
    rows, before = await scene.store.dead_letters.page("ann", wanted, None, 10)
    seen, pages = [row.id for row in rows], 1
    while before is not None and pages < 10:
        rows, before = await scene.store.dead_letters.page("ann", wanted, before, 10)
        seen, pages = seen + [row.id for row in rows], pages + 1
    assert seen == [item_id(found[1], 0), item_id(found[0], 1), item_id(found[0], 0)]
    assert (pages >= 5, before) == (True, None)


async def test_the_items_in_hand_are_told_by_worker(scene: Scene) -> None:
    await scene.submit(3)
    await scene.claim(2, worker="w1:7")
    await scene.claim(1, worker="w2:1")
    held = {(lease.worker, lease.items) for lease in await scene.store.workers.leases()}
    assert held == {("w1", 2), ("w2", 1)}


async def test_a_timeline_tells_calls_from_an_end_without_one(scene: Scene) -> None:
    job_id = await scene.submit(deadline_ms=600_000)
    (item,) = await scene.claim()
    await scene.site.advance(2)
    await scene.settle(item, BROKEN)
    await scene.end(job_id, "deadline")
    view, attempts = await scene.item(job_id), await scene.store.item_views.attempts(item.id)
    told = [(moment.what, moment.detail) for moment in timeline(view, attempts, [])]
    assert told == [
        ("submitted", None),
        ("call 1 ended: retry", "2.000 s, GW_5XX, 502"),
        ("ended without another try: failed", "GW_TIMEOUT, the deadline passed"),
    ]


async def test_a_store_that_is_not_open_says_so_and_can_be_closed(site: Site) -> None:
    store = Store(site.database())
    for ask in (store.job_views.page("ann"), store.jobs.pause(1, "ann")):
        with pytest.raises(DatabaseUnreachable, match="the database is not open") as refused:
            await ask
        assert refused.value.hint == "open it first: async with Backstay(url)"
    await store.close()


async def test_an_item_says_when_it_began_changed_and_is_tried_again(scene: Scene) -> None:
    job = await scene.submit()
    row = await scene.store.item_views.row(item_id(job, 0), "ann")
    assert (row.started_at, row.updated_at, row.retry_after) == (None, row.created_at, None)
    await scene.site.advance(10)
    [item] = await scene.claim()
    began = scene.site.clock.ms
    row = await scene.store.item_views.row(item.id, "ann")
    assert (row.started_at, row.updated_at, row.retry_after) == (began, began, None)
    await scene.site.advance(5)
    await scene.settle(item, BROKEN, retry="queue")
    [shown] = (await scene.store.item_views.page(job, "ann", ItemFilter(), None, 10))[0]
    row = await scene.store.item_views.row(item.id, "ann")
    for seen in (row, shown):
        assert (seen.started_at, seen.updated_at) == (began, began + 5_000)
        assert seen.retry_after == seen.due_at
        assert (seen.retry_after or 0) > seen.updated_at
