"""The library: submit, wait, and results of the handlers' own types."""

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from backstay.app import Backstay
from backstay.client import Options
from backstay.core.errors import ErrorCode, IdempotencyConflict, NotFound, Permanent, UsageError, WaitTimeout
from backstay.core.states import JobState
from backstay.engine import parts
from backstay.handlers.handler import Weighed
from backstay.store.job_views import JobView
from backstay.store.submissions import CHUNK_ITEMS
from backstay.sync import SyncBackstay
from tests.engine.conftest import MakeRig
from tests.engine.provider import Provider


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


@pytest.mark.parametrize("items", [[0, 1, 2], range(3), iter([0, 1, 2]), (n for n in range(3)), numbers(3)])
async def test_items_may_be_a_list_an_iterator_or_an_async_iterator(make_sqlite_rig: MakeRig, items: object) -> None:
    rig = await make_sqlite_rig()
    rig.serves(Provider())
    job = await rig.submit(items)
    await rig.tick()
    assert [result.value for result in await rig.results(job)] == [0, 1, 2]


@pytest.mark.parametrize("items", ["abc", b"abc", {"a": 1}, 3])
async def test_what_is_no_list_of_items_is_refused(make_sqlite_rig: MakeRig, items: object) -> None:
    rig = await make_sqlite_rig()
    rig.serves(Provider())
    with pytest.raises(UsageError, match="items must be"):
        await rig.submit(items)


async def test_no_items_are_refused_and_leave_no_job(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    with pytest.raises(UsageError, match="no items"):
        await rig.submit([])
    assert await rig.store.job_views.page("ann") == []


@pytest.mark.parametrize("count", [CHUNK_ITEMS - 1, CHUNK_ITEMS, CHUNK_ITEMS + 1])
async def test_a_job_of_about_a_chunk_is_whole(make_rig: MakeRig, count: int) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    job = await rig.submit(numbers(count), idempotency_key="k")
    view = await job.show()
    assert (view.total, view.sealed) == (count, True)
    assert (await rig.submit(numbers(count), idempotency_key="k")).id == job.id
    for other in (count - 1, count + 1):
        with pytest.raises(IdempotencyConflict):
            await rig.submit(numbers(other), idempotency_key="k")
    assert (await job.show()).total == count


async def test_a_submit_that_broke_off_goes_on_where_it_was(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())

    async def breaking() -> AsyncIterator[int]:
        async for number in numbers(CHUNK_ITEMS * 2):
            if number == CHUNK_ITEMS + 5:
                raise ConnectionError
            yield number

    with pytest.raises(ConnectionError):
        await rig.submit(breaking(), idempotency_key="k")
    (half,) = await rig.store.job_views.page("ann")
    assert (half.total, half.sealed) == (CHUNK_ITEMS, False)
    job = await rig.submit(numbers(CHUNK_ITEMS * 2), idempotency_key="k")
    view = await job.show()
    assert (job.id, view.total, view.sealed) == (half.id, CHUNK_ITEMS * 2, True)


async def test_two_who_submit_the_same_at_once_make_one_whole_job_together(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    count = CHUNK_ITEMS * 3 + 1
    first, second = await asyncio.gather(*(rig.submit(numbers(count), idempotency_key="k") for _ in range(2)))
    view = await first.show()
    assert (first.id, view.total, view.sealed) == (second.id, count, True)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"priority": 10}, "priority"),
        ({"priority": -1}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"deadline_seconds": 0}, "deadline"),
        ({"retry": "often"}, "retry policy"),
        ({"delivery": "twice"}, "delivery"),
        ({"idempotency_key": ""}, "idempotency key"),
        ({"idempotency_key": "x" * 256}, "idempotency key"),
        ({"idempotency_key": "a\0b"}, "idempotency key"),
        ({"idempotency_key": "\ud800"}, "idempotency key"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_a_bad_option_is_refused_and_leaves_no_job(
    make_rig: MakeRig, options: dict[str, object], match: str
) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    with pytest.raises(UsageError, match=match):
        await rig.submit(**options)
    assert await rig.store.job_views.page("ann") == []


async def test_a_budget_a_move_or_a_wait_that_cannot_be_kept_is_refused_and_leaves_no_job(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider(), cost=0.1)
    rig.serves(Provider(), "other")
    table: list[tuple[dict[str, Any], str]] = [
        *(
            ({"budget_micros": budget}, "budget_micros must be a whole number from 1 to 4611686018427387903, not")
            for budget in (0, -1, 1 << 62, 10**30, True, 1.0, 2.5, math.nan, math.inf, "5", b"5", [5])
        ),
        ({"handler_then": "nope", "move_seconds": 5}, "there is no handler 'nope'"),
        ({"handler_then": "call", "move_seconds": 5}, "'call' cannot be its own handler_then"),
        ({"handler_then": "other"}, "handler_then needs move_seconds"),
        ({"move_seconds": 5}, "move_seconds needs handler_then"),
        *(
            ({"handler_then": "other", "move_seconds": seconds}, "move_seconds must be above 0 and at most a year")
            for seconds in (0, math.nan, math.inf, 1e300, "5", True)
        ),
        ({"after_items": "all"}, "after_items needs after"),
    ]
    for options, said in table:
        with pytest.raises(UsageError, match=said):
            await rig.submit(**options)
    assert await rig.store.job_views.page("ann") == []
    assert (await (await rig.submit(budget_micros=(1 << 62) - 1)).show()).budget_micros == (1 << 62) - 1


@pytest.mark.parametrize("kind", [list, iter, numbers])
async def test_a_budget_that_cannot_be_kept_is_refused_and_leaves_no_job(make_rig: MakeRig, kind: Any) -> None:
    rig = await make_rig()
    provider = rig.serves(Provider())
    with pytest.raises(UsageError, match="a budget cannot be enforced for 'call'") as refused:
        await rig.submit(numbers(CHUNK_ITEMS + 1) if kind is numbers else kind([1, 2]), budget_micros=300)
    assert "declare the most that a call costs" in refused.value.hint
    assert await rig.store.job_views.page("ann") == []
    await rig.tick()
    assert provider.calls == 0


def test_the_sync_face_refuses_a_budget_that_cannot_be_kept(sqlite_file_url: str) -> None:
    app = Backstay(sqlite_file_url)

    @app.handler()
    def double(number: int) -> int:
        return 2 * number

    with SyncBackstay(app) as backstay, pytest.raises(UsageError, match="a budget cannot be enforced for 'double'"):
        backstay.submit(double, [1], budget_micros=300)


def test_a_job_and_its_results_can_be_read_at_a_prompt(tmp_path: Path) -> None:
    app = Backstay(f"sqlite:///{tmp_path}/jobs.db")

    @app.handler(retry="none")
    def shout(word: str) -> str:
        if word == "no":
            raise Permanent("it will not be said", ErrorCode.GW_4XX)
        return word.upper()

    with SyncBackstay(app) as backstay, backstay.working():
        job = backstay.submit(shout, ["hey", "no", "long" * 100])
        job.wait()
        assert repr(job) == "<SyncJob 1>"
        assert repr(job._job) == "<Job 1 of 'local'>"
        spoken, failed, long = map(repr, job.results())
    assert spoken == "<Result 1-0 succeeded: 'HEY'>"
    assert failed == "<Result 1-1 failed: GW_4XX: it will not be said>"
    assert long.startswith("<Result 1-2 succeeded: 'LONGLONG")
    assert long.endswith("…>")
    assert len(long) < 320


async def test_items_with_a_worst_cost_can_have_a_budget(make_rig: MakeRig) -> None:
    client = await (await make_rig()).app.open()
    items = (Weighed(f"{n}", 100, 1) for n in range(3))
    job = await client.submit("lane", items, Options(budget_micros=300), str, lambda: None)
    assert (await job.show()).budget_micros == 300


async def test_an_unknown_handler_is_refused_with_a_guess(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    rig.serves(Provider(), "summarise")
    with pytest.raises(UsageError, match="no handler") as refused:
        await rig.submit(["a"], "sumarise")
    assert refused.value.hint == "did you mean 'summarise'?"


class Page(BaseModel):
    url: str
    depth: int = 1


@dataclass
class Summary:
    words: int


async def test_payloads_and_results_have_the_handlers_own_types(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    seen: list[Page] = []

    @rig.app.handler()
    async def summarise(page: Page) -> Summary:
        seen.append(page)
        return Summary(words=len(page.url))

    job = await rig.submit([{"url": "a"}, Page(url="bc", depth=3)], "summarise")
    await rig.tick()
    assert sorted(page.depth for page in seen) == [1, 3]
    assert [result.value for result in await rig.results(job)] == [{"words": 1}, {"words": 2}]


@pytest.mark.parametrize("payload", [{"depth": 1}, {"url": 3}, "text", float("nan"), object()])
async def test_a_payload_that_does_not_fit_is_refused_before_anything_is_written(
    make_sqlite_rig: MakeRig, payload: object
) -> None:
    rig = await make_sqlite_rig()

    @rig.app.handler()
    async def summarise(page: Page) -> None: ...

    with pytest.raises(UsageError):
        await rig.submit([{"url": "fine"}, payload], "summarise")
    assert await rig.store.job_views.page("ann") == []


async def test_a_list_with_one_bad_payload_far_behind_leaves_no_job(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    with pytest.raises(UsageError, match="not JSON"):
        await rig.submit([*range(CHUNK_ITEMS + 1), object()])
    assert await rig.store.job_views.page("ann") == []


async def test_a_stream_that_breaks_off_ends_its_job_unless_it_can_be_continued(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    with pytest.raises(UsageError, match="not JSON"):
        await rig.submit(iter([*range(CHUNK_ITEMS + 1), object()]))
    [broken] = await rig.store.job_views.page("ann")
    assert (broken.state, broken.cancelled) == (JobState.CANCELLED, CHUNK_ITEMS)
    with pytest.raises(UsageError, match="not JSON"):
        await rig.submit(iter([*range(CHUNK_ITEMS + 1), object()]), idempotency_key="again")
    kept, _ = await rig.store.job_views.page("ann")
    assert (kept.state, kept.sealed, kept.total) == (JobState.QUEUED, False, CHUNK_ITEMS)


async def test_waiting_tells_progress_and_ends_with_the_job(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    job = await rig.submit(range(50))
    seen: list[JobView] = []
    async with rig.working(concurrency=5):
        view = await job.wait(progress=seen.append, timeout_seconds=20)
    assert (view.state, seen[-1]) == (JobState.COMPLETED, view)
    assert [one.done for one in seen] == sorted(one.done for one in seen)


async def test_waiting_has_an_end_of_its_own(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    rig.serves(Provider())
    job = await rig.submit()
    with pytest.raises(WaitTimeout):
        await job.wait(timeout_seconds=0.05)


async def test_a_worker_forgets_old_jobs_but_none_that_it_is_at_work_on(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "JOBS_REMEMBERED_MAX", 2)
    rig = await make_rig()
    rig.serves(Provider())
    engine = rig.engine(heart=False)
    await engine.start()
    polled = await rig.submit(["a"])
    taken = await rig.store.items.claim(await engine.gate.wants(1), "w:1", 60_000)
    engine.parts.remember(taken.jobs)
    for _ in range(6):
        job = await rig.submit(["b"])
        assert await engine.claim_once(1) == 1
        await rig.in_state(job, "succeeded")
        if polled.id not in engine.parts.known_jobs():  # forgotten just now, and still under way
            break
    assert engine.parts.plan(taken.items[0]).job.id == polled.id
    assert len(engine.parts.known_jobs()) <= 2
    await engine.stop(5)


async def test_a_job_that_is_not_mine_is_not_found(make_sqlite_rig: MakeRig) -> None:
    rig = await make_sqlite_rig()
    with pytest.raises(NotFound):
        await (await rig.app.job(99)).show()


async def test_who_waits_for_a_job_hears_that_it_was_deleted(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.serves(Provider())
    job = await rig.submit()
    waiting = asyncio.create_task(job.wait(timeout_seconds=60))
    await asyncio.sleep(0.05)  # it has found the job
    for table in ("items", "jobs"):
        await rig.site.rows(f"DELETE FROM {table}")
    with pytest.raises(NotFound, match=f"no job {job.id}"):
        await waiting
