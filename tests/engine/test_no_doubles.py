"""Submits that overlap: a unique job within its period, and items that are known by keys of their own."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from backstay.core.errors import UsageError
from backstay.core.ids import item_id
from backstay.core.states import JobState
from backstay.store import submissions
from backstay.store.queries import Ask
from backstay.sync import SyncBackstay
from tests.engine.conftest import MakeRig
from tests.engine.provider import HttpError, Provider
from tests.engine.rig import Rig

WAIT = 20
HOUR = 3600.0


async def a_rig(make: MakeRig) -> Rig:
    rig: Rig = await make()
    rig.serves(Provider(), retry="none")
    rig.serves(Provider(), "other")
    return rig


async def jobs(rig: Rig) -> int:
    found: int = await rig.site.one("SELECT count(*) FROM jobs")
    return found


async def test_the_same_payloads_within_the_period_are_one_job(make_rig: MakeRig) -> None:
    rig = await a_rig(make_rig)
    job = await rig.submit(["a", "b"], unique="payload", unique_seconds=HOUR)
    await rig.site.advance(HOUR - 60)
    assert (await rig.submit(["a", "b"], unique="payload", unique_seconds=HOUR)).id == job.id
    others = [
        await rig.submit(["a"], unique="payload", unique_seconds=HOUR),
        await rig.submit(["a", "b"], "other", unique="payload", unique_seconds=HOUR),
        await rig.submit(["a", "b"]),
    ]
    assert len({job.id, *(other.id for other in others)}) == 4
    await rig.site.advance(61)
    again = await rig.submit(["a", "b"], unique="payload", unique_seconds=HOUR)
    assert again.id != job.id
    assert (await rig.submit(["a", "b"], unique="payload", unique_seconds=HOUR)).id == again.id
    assert await jobs(rig) == 5


async def test_the_same_key_is_one_job_whatever_its_items_and_even_as_a_stream(make_rig: MakeRig) -> None:
    rig = await a_rig(make_rig)
    job = await rig.submit(["a"], unique="report", unique_seconds=HOUR)

    def stream() -> Iterator[str]:
        yield "b"

    assert (await rig.submit(stream(), unique="report", unique_seconds=HOUR)).id == job.id
    assert [(await job.show()).total, await jobs(rig)] == [1, 1]


async def test_an_ended_job_counts_and_a_cancelled_one_does_not(make_rig: MakeRig) -> None:
    rig = await a_rig(make_rig)
    job = await rig.submit(["a"], unique="report", unique_seconds=HOUR)
    await rig.tick()
    assert (await rig.submit(["a"], unique="report", unique_seconds=HOUR)).id == job.id
    other = await rig.submit(["a"], unique="of May", unique_seconds=HOUR)
    await other.cancel()
    assert (await rig.submit(["a"], unique="of May", unique_seconds=HOUR)).id != other.id


async def test_many_at_once_make_one_unique_job(make_rig: MakeRig) -> None:
    rig = await a_rig(make_rig)
    await rig.submit(["old"], unique="report", unique_seconds=HOUR)
    await rig.site.advance(HOUR)
    many = [rig.submit([f"{n}"], unique="report", unique_seconds=HOUR) for n in range(8)]
    assert len({job.id for job in await asyncio.gather(*many)}) == 1
    assert await jobs(rig) == 2


async def test_owners_do_not_share_unique_jobs_or_item_keys(make_rig: MakeRig) -> None:
    rig = await a_rig(make_rig)
    await rig.submit([{"id": 1}], unique="report", unique_seconds=HOUR, item_key="id")
    await rig.site.rows("UPDATE jobs SET owner = 'bob'")
    await rig.site.rows("UPDATE item_keys SET owner = 'bob'")
    view = await (await rig.submit([{"id": 1}], unique="report", unique_seconds=HOUR, item_key="id")).show()
    assert (await jobs(rig), view.total, view.known) == (2, 1, 0)


async def test_a_unique_job_that_waits_for_another_is_made_once(make_rig: MakeRig) -> None:
    rig = await a_rig(make_rig)
    job = await rig.submit(["a"])
    later = await job.then("other", unique="summary", unique_seconds=HOUR)
    assert (await job.then("other", unique="summary", unique_seconds=HOUR)).id == later.id
    for _ in range(2):
        await rig.tick()
    assert (await later.show()).state is JobState.COMPLETED


async def test_a_stream_that_breaks_off_leaves_its_key_and_its_item_keys_free(make_rig: MakeRig) -> None:
    rig = await a_rig(make_rig)

    async def broken() -> AsyncIterator[Any]:
        for n in range(submissions.CHUNK_ITEMS + 1):
            yield {"id": n}
        raise ValueError("the file ended too early")

    with pytest.raises(ValueError, match="too early"):
        await rig.submit(broken(), unique="report", unique_seconds=HOUR, item_key="id")
    view = await (await rig.submit([{"id": 1}], unique="report", unique_seconds=HOUR, item_key="id")).show()
    assert (view.state, view.total, view.known) == ("queued", 1, 0)


async def _killed() -> AsyncIterator[Any]:
    """A stream whose process is killed after the second chunk: no more of its code runs."""
    for n in range(2 * submissions.CHUNK_ITEMS + 1):
        yield {"id": n}
    await asyncio.Event().wait()


async def stored(rig: Rig, chunks: int) -> None:
    """Waits until the job that is being submitted has so many chunks."""
    total = chunks * submissions.CHUNK_ITEMS
    async with asyncio.timeout(WAIT):
        while (await rig.site.one("SELECT coalesce(max(total), 0) FROM jobs")) < total:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def kill_a_submit(rig: Rig, **options: Any) -> int:
    """Returns the job that it leaves, with two chunks of items."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backstay.client.Job.cancel", lambda _: asyncio.sleep(0))  # the dead do not tidy up
        task = asyncio.create_task(rig.submit(_killed(), **options))
        await stored(rig, 2)
        task.cancel()
        await asyncio.wait([task])
    found: int = await rig.site.one("SELECT max(id) FROM jobs")
    return found


async def test_a_unique_job_whose_submitter_was_killed_is_replaced_after_an_hour(make_rig: MakeRig) -> None:
    rig = await a_rig(make_rig)
    report: dict[str, Any] = {"unique": "report", "unique_seconds": 30 * HOUR, "item_key": "id"}
    left = await kill_a_submit(rig, **report)
    await rig.site.advance(HOUR - 60)
    assert (await rig.submit([{"id": 1}], **report)).id == left
    await rig.site.advance(61)
    many = [rig.submit([{"id": 1}, {"id": n + 10_000}], **report) for n in range(4)]
    [made] = {job.id for job in await asyncio.gather(*many)}
    old = await rig.store.job_views.get(left, "ann")
    assert (old.stop_reason, old.idempotency_key, await jobs(rig)) == ("cancel", None, 2)
    told = await rig.site.rows(f"SELECT detail FROM events WHERE subject = 'job:{left}'")
    assert [detail for (detail,) in told if detail] == [submissions.BROKEN_OFF]
    for _ in range(3):
        await rig.tick()
    assert (await rig.store.job_views.get(left, "ann")).state == "cancelled"
    assert (await rig.store.job_views.get(made, "ann")).state == "completed"


async def test_a_stream_that_still_comes_and_a_job_that_others_feed_are_not_replaced(make_rig: MakeRig) -> None:
    rig = await a_rig(make_rig)
    report: dict[str, Any] = {"unique": "report", "unique_seconds": 30 * HOUR}
    chunk_comes = asyncio.Semaphore(0)

    async def slow() -> AsyncIterator[int]:
        for n in range(2 * submissions.CHUNK_ITEMS + 2):
            if n % submissions.CHUNK_ITEMS == 1 and n > 1:
                await chunk_comes.acquire()
            yield n

    submit = asyncio.create_task(rig.submit(slow(), **report))
    await stored(rig, 1)
    for _ in range(2):
        await rig.site.advance(HOUR - 60)
        same = await rig.submit([0], **report)
        chunk_comes.release()
        await stored(rig, 2)
    assert (await submit).id == same.id
    first = await rig.submit(["a"])
    later = await first.then("other", unique="summary", unique_seconds=30 * HOUR)
    await rig.site.advance(2 * HOUR)
    assert (await first.then("other", unique="summary", unique_seconds=30 * HOUR)).id == later.id


async def test_only_new_items_are_made_and_the_known_ones_are_counted(make_rig: MakeRig) -> None:
    rig = await a_rig(make_rig)
    first = await rig.submit([{"id": n} for n in range(3)], item_key="id")
    second = await rig.submit([{"id": n, "place": place} for place, n in enumerate((2, 3, 3, 4))], item_key="id")
    view = await second.show()
    assert ((await first.show()).known, view.total, view.known, view.sealed) == (0, 2, 2, True)
    await rig.tick()
    assert [result.payload for result in await rig.results(second)] == [{"id": 3, "place": 1}, {"id": 4, "place": 3}]
    keys = await rig.site.rows("SELECT owner, handler, key, item_id FROM item_keys ORDER BY key")
    items = [item_id(first.id, 0), item_id(first.id, 1), item_id(first.id, 2), item_id(second.id, 0)]
    assert keys == [("ann", "call", str(n), item) for n, item in enumerate([*items, item_id(second.id, 1)])]


async def test_the_same_key_of_another_handler_is_another_item(make_rig: MakeRig) -> None:
    rig = await a_rig(make_rig)
    await rig.submit([{"id": 1}], item_key="id")
    assert (await (await rig.submit([{"id": 1}], "other", item_key="id")).show()).known == 0


async def test_a_job_with_nothing_new_is_completed_and_has_no_items(make_rig: MakeRig) -> None:
    rig = await a_rig(make_rig)
    await rig.submit(["a"], item_key=str.upper)
    view = await (await rig.submit(["a", "A"], item_key=str.upper)).show()
    assert (view.state, view.total, view.known) == ("completed", 0, 2)


async def test_a_failed_item_is_known_and_a_cancelled_one_is_not(make_rig: MakeRig) -> None:
    rig = await a_rig(make_rig)
    failing = Provider()
    rig.serves(failing, "failing", retry="none")
    failing.script = [HttpError(400)]
    await rig.submit([{"id": 1}], "failing", item_key="id")
    await rig.tick()
    assert (await (await rig.submit([{"id": 1}], "failing", item_key="id")).show()).known == 1
    cancelled = await rig.submit([{"id": 1}], item_key="id")
    await cancelled.cancel()
    view = await (await rig.submit([{"id": 1}], item_key="id")).show()
    assert (view.total, view.known) == (1, 0)


async def test_keys_are_deleted_with_their_items(make_rig: MakeRig) -> None:
    rig = await a_rig(make_rig)
    job = await rig.submit([{"id": 1}], item_key="id")
    await rig.tick()
    await rig.store.jobs.disown(job.id, "ann")
    await rig.store.jobs.purge(job.id)
    assert await rig.site.one("SELECT count(*) FROM item_keys") == 0
    assert (await (await rig.submit([{"id": 1}], item_key="id")).show()).total == 1


async def test_overlapping_submits_at_once_make_every_item_once(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = await a_rig(make_rig)
    monkeypatch.setattr("backstay.client.chunks.CHUNK_ITEMS", 10)
    orders = [list(range(50)), list(range(49, -1, -1)), list(range(25, 75)), list(range(50))]
    made = await asyncio.gather(*(rig.submit([{"id": n} for n in order], item_key="id") for order in orders))
    views = [await job.show() for job in made]
    assert sum(view.total for view in views) == 75
    assert sum(view.total + view.known for view in views) == 200
    assert await rig.site.one("SELECT count(*) FROM item_keys WHERE item_id IN (SELECT id FROM items)") == 75
    assert await rig.site.one("SELECT count(*) FROM items") == 75


async def test_known_keys_cost_one_statement_for_each_chunk(make_sqlite_rig: MakeRig) -> None:
    """Counted, not timed: a machine may be busy."""
    rig = await a_rig(make_sqlite_rig)
    items = [{"id": n} for n in range(2 * submissions.CHUNK_ITEMS)]
    await rig.submit(items, item_key="id")
    asked: list[str] = []
    real = Ask

    def counted(name: str, *rest: Any, **more: Any) -> Any:
        asked.append(name)
        return real(name, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submissions, "Ask", counted)
        view = await (await rig.submit(items, item_key="id")).show()
    assert (view.known, view.total) == (len(items), 0)
    assert asked == ["create_job", "take_keys", "count_known", "take_keys", "count_known", "seal_job"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"unique_seconds": 5}, "unique_seconds needs unique"),
        ({"unique": "k"}, "unique needs unique_seconds"),
        ({"unique": "", "unique_seconds": 5}, "unique must be"),
        ({"unique": "k", "unique_seconds": 0}, "unique_seconds must be above 0"),
        ({"unique": "k", "unique_seconds": 5, "idempotency_key": "k"}, "cannot be used together"),
        ({"item_key": "id", "idempotency_key": "k"}, "cannot be used together"),
        ({"item_key": ""}, "item_key must be"),
        ({"item_key": "name"}, "item 1 has no key: its field 'name' has none"),
        ({"item_key": lambda item: item["name"]}, "item 1 has no key: its item_key gives none"),
        ({"item_key": lambda item: item["nam"]}, "item 0 has no key: its item_key failed: KeyError: 'nam'"),
        ({"item_key": "flag"}, "item 0 has no key"),
    ],
)
async def test_options_that_cannot_be_are_refused_and_nothing_is_written(
    make_sqlite_rig: MakeRig, options: dict[str, Any], said: str
) -> None:
    rig = await a_rig(make_sqlite_rig)
    with pytest.raises(UsageError, match=said):
        await rig.submit([{"name": "x", "flag": True}, {"name": ""}], **options)
    assert [await jobs(rig), await rig.site.one("SELECT count(*) FROM item_keys")] == [0, 0]


async def test_unique_payloads_must_be_known_at_once(make_sqlite_rig: MakeRig) -> None:
    rig = await a_rig(make_sqlite_rig)
    for items in (iter(["a"]), None):
        with pytest.raises(UsageError, match="needs all items at once"):
            await rig.submit(items, unique="payload", unique_seconds=5, after=None if items else 1)
    assert await jobs(rig) == 0


@pytest.mark.parametrize("by", ["id", str])
async def test_items_that_an_earlier_job_makes_cannot_have_keys(make_sqlite_rig: MakeRig, by: Any) -> None:
    rig = await a_rig(make_sqlite_rig)
    job = await rig.submit([{"id": 1}])
    for submit in (job.then("other", item_key=by), rig.submit(None, "other", after=job, item_key=by)):
        with pytest.raises(UsageError, match="item_key needs items"):
            await submit
    assert await jobs(rig) == 1
    assert (await (await rig.submit([{"id": 1}], "other", after=job, item_key=by)).show()).total == 1


def test_a_program_without_asyncio_submits_without_doubles(sqlite_file_url: str) -> None:
    with SyncBackstay(sqlite_file_url) as backstay:

        @backstay.app.handler()
        def double(item: int) -> int:
            return item * 2

        job = backstay.submit(double, [1], unique="payload", unique_seconds=60)
        assert backstay.submit(double, [1], unique="payload", unique_seconds=60).id == job.id
        backstay.submit(double, [1, 2], item_key=str)
        assert backstay.submit(double, [2, 3], item_key=str).show().known == 1
