"""The provider's own batches: requests go in shards and come back each once."""

import asyncio
import json
from typing import Any

import pytest

from backstay.client import Job, Options
from backstay.core.states import ItemState, JobState
from backstay.llm.batch import BatchHandler
from backstay.llm.endpoint import Lane
from backstay.llm.lines import LlmRequest, seal
from backstay.llm.shards import ShardBounds
from tests.databases import Site
from tests.llm.lane_rig import CHAT, HALF, MINUTES_10, LaneRig, Provider, chats, lane


async def test_requests_become_one_batch_and_come_back_each_once(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, price=HALF) as rig:
        job = await rig.request(chats(40))
        view = await rig.done(job)
        assert (view.state, view.succeeded, view.repeats) == (JobState.COMPLETED, 40, 0)
        assert [batch["request_counts"]["total"] for batch in await rig.batches()] == [40]
        for n, result in enumerate(await rig.results(job)):
            assert result.value is not None
            assert result.value["status_code"] == 200
            assert f"say {n}" in result.value["body"]["choices"][0]["message"]["content"]
        bill = rig.provider.bill
        assert (bill.charged, bill.bodies_paid_twice) == (40, [])
        costs = [(await rig.attempts(job, n))[-1].cost_micros for n in range(40)]
        assert sum(cost or 0 for cost in costs) == bill.total.cost_micros


async def test_bodies_are_forwarded_byte_for_byte_under_a_name_of_ours(sqlite_site: Site) -> None:
    body = '{ "model":"m",\t"temperature":1.00, "messages" : [{"role":"user","content":"h\\u00e9 ✓"}] }'
    async with lane(sqlite_site, Lane.BATCH) as rig:
        rig.provider.refuse["DELETE /files/*"] = 500  # what cannot be deleted stays
        client = await rig.app.open()
        sealed = seal(LlmRequest("r", CHAT, body))
        job = await client.submit(rig.handler.name, [sealed], Options(), str, lambda: None)
        assert (await rig.done(job)).succeeded == 1
        [batch] = await rig.batches()
        line = await rig.content(batch["input_file_id"])
        ref = json.loads(line)["custom_id"]
        assert line == f'{{"custom_id":"{ref}","method":"POST","url":"{CHAT}","body":{body}}}\n'
        assert (await rig.item(job)).provider_task_id == f"{batch['id']}/{ref}"
        file = await rig.ask("GET", f"/files/{batch['input_file_id']}")
        assert file["filename"] == f"backstay-{batch['metadata']['backstay']}.jsonl"


@pytest.mark.parametrize(
    ("bodies", "bounds", "sizes"),
    [
        ([*chats(3), *chats(2, model="other")], ShardBounds(), [2, 3]),
        (chats(25), ShardBounds(requests_max=10), [5, 10, 10]),
        (chats(6, user="x" * 1000), ShardBounds(bytes_max=2500), [2, 2, 2]),
        (chats(4, user="x"), ShardBounds(bytes_max=1), [1, 1, 1, 1]),
        (chats(6), ShardBounds(tokens_max=20), [3, 3]),
    ],
    ids=["model", "count", "bytes", "one too large", "tokens"],
)
async def test_shards_keep_to_their_bounds(
    sqlite_site: Site, bodies: list[dict[str, Any]], bounds: ShardBounds, sizes: list[int]
) -> None:
    async with lane(sqlite_site, Lane.BATCH, bounds=bounds) as rig:
        job = await rig.request(bodies)
        assert (await rig.done(job)).succeeded == len(bodies)
        assert sorted(batch["request_counts"]["total"] for batch in await rig.batches()) == sizes


async def test_a_shard_has_the_requests_of_one_job_only(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        jobs = [await rig.request(chats(2, user=f"job {n}")) for n in range(2)]
        async with rig.working():
            for job in jobs:
                assert (await job.wait(timeout_seconds=30)).succeeded == 2
        assert [batch["request_counts"]["total"] for batch in await rig.batches()] == [2, 2]


@pytest.mark.slow
async def test_a_request_that_is_not_valid_fails_alone(sqlite_site: Site) -> None:
    bodies = chats(4)
    bodies[2]["stream"] = True
    async with lane(sqlite_site, Lane.BATCH) as rig:
        job = await rig.request(bodies)
        view = await rig.done(job)
        assert (view.succeeded, view.failed) == (3, 1)
        results = await rig.results(job)
        assert [result.ok for result in results] == [True, True, False, True]
        assert "streaming_unsupported" in (results[2].message or "")
        assert [result.attempts for result in results] == [1, 1, 1, 1]
        assert rig.provider.bill.charged == 3


async def test_a_batch_over_the_limit_of_waiting_tokens_comes_again_smaller_at_once(sqlite_site: Site) -> None:
    provider = Provider(batch_enqueued_tokens=1)
    async with lane(sqlite_site, Lane.BATCH, provider, ShardBounds(requests_max=400)) as rig:
        job = await rig.request(chats(400))
        async with rig.working(concurrency=20_000):
            await rig.until(lambda: rig.provider.asked["POST /batches"] == 1)

            async def back() -> bool:
                return (await rig.item(job)).error_code == "GW_4XX"

            await rig.until(back)
            await rig.in_state(job, "queued", 399)
            rig.provider.change(batch_enqueued_tokens=None)
            assert (await rig.item(job)).due_at is not None
            await rig.site.advance(2)
            await rig.until(lambda: rig.provider.asked["POST /batches"] == 2)
            await rig.until(lambda: rig.provider.bill.charged == 200)
            await rig.site.advance(10)
            view = await job.wait(timeout_seconds=30)
        assert view.succeeded == 400
        assert [batch["request_counts"]["total"] for batch in await rig.batches()] == [200, 200, 0]
        assert (await rig.item(job)).attempt_count == 1


async def test_a_creation_that_is_refused_as_busy_without_a_time_comes_again_smaller(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        rig.provider.refuse["POST /batches"], rig.provider.retry_after = 429, None
        job = await rig.request(chats(300))
        async with rig.working(concurrency=20_000):
            await rig.until(lambda: rig.attempts(job, 299))
        assert isinstance(rig.handler, BatchHandler)
        assert rig.handler._waiting.requests_max("m", 10_000) == 150


@pytest.mark.slow
async def test_the_next_batch_goes_out_when_the_tokens_of_another_one_come_free(sqlite_site: Site) -> None:
    provider = Provider(batch_enqueued_tokens=1_200, batch_seconds=0.3)
    async with lane(sqlite_site, Lane.BATCH, provider) as rig:
        job = await rig.request(chats(400))
        view = await rig.done(job)
        made = [batch["request_counts"]["total"] for batch in await rig.batches()]
        assert (view.succeeded, view.repeats, rig.provider.bill.charged) == (400, 0, 400)
        assert made.count(0) <= 5  # refused
        assert len(made) <= 15
        calls = [(await rig.item(job, n)).calls for n in range(0, 400, 40)]
        assert max(calls) <= 7  # nothing is claimed while there is no room


@pytest.mark.slow
async def test_an_upload_that_broke_off_is_simply_tried_again(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        rig.provider.lose["POST /files"] = 1
        job = await rig.request(chats(5))
        view = await rig.done(job)
        assert (view.succeeded, view.repeats, len(await rig.batches())) == (5, 0, 1)
        assert rig.provider.bill.bodies_paid_twice == []


async def test_nothing_is_created_under_claims_that_grew_too_old(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:

        async def sleep_through() -> None:
            rig.provider.before.clear()
            await rig.site.advance(MINUTES_10)

        rig.provider.before["POST /files"] = sleep_through
        job = await rig.request(chats(3))
        engine = rig.engine()
        await engine.start()
        await engine.claim_once(10)
        await rig.until(lambda: rig.attempts(job, 2))
        await engine.stop(0)
        assert (rig.provider.asked["POST /files"], rig.provider.asked["POST /batches"]) == (1, 0)
        assert ((await rig.item(job)).state, (await rig.item(job)).attempt_count) == (ItemState.QUEUED, 0)


@pytest.mark.slow
async def test_a_cancelled_job_cancels_its_batch_once(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, Provider(batch_seconds=60.0)) as rig:
        job = await rig.request(chats(20))
        async with rig.working():
            await rig.in_state(job, "processing", 19)
            await job.cancel()
            view = await job.wait(timeout_seconds=30)
        assert (view.state, view.cancelled) == (JobState.CANCELLED, 20)
        assert rig.provider.asked["POST /batches/*/cancel"] == 1
        assert (await rig.batches())[0]["status"] == "cancelled", "what was done before would have been kept"


@pytest.mark.slow
async def test_a_job_cancelled_during_the_upload_makes_no_batch(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            reached.set()
            await go_on.wait()

        rig.provider.before["POST /files"] = wait
        job = await rig.request(chats(3))
        async with rig.working() as worker:
            await reached.wait()
            await job.cancel()
            await rig.until(lambda: all(flight.context.stopped for flight in worker.engine.flights.all()))
            go_on.set()
            assert (await job.wait(timeout_seconds=30)).cancelled == 3
            later = await rig.request(chats(1, user="later"))
            assert (await later.wait(timeout_seconds=30)).succeeded == 1
        assert rig.provider.asked["POST /batches"] == 1


@pytest.mark.slow
async def test_a_job_cancelled_while_its_batch_is_created_cancels_the_batch(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, Provider(batch_seconds=60.0)) as rig:
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            reached.set()
            await go_on.wait()

        rig.provider.before["POST /batches"] = wait
        job = await rig.request(chats(3))
        async with rig.working() as worker:
            await reached.wait()
            await job.cancel()
            await rig.until(lambda: all(flight.context.stopped for flight in worker.engine.flights.all()))
            go_on.set()
            assert (await job.wait(timeout_seconds=30)).cancelled == 3
        assert [batch["status"] for batch in await rig.batches()] == ["cancelled"]


async def test_the_file_of_a_batch_is_deleted_when_all_its_results_are_there(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        bodies = chats(3)
        bodies[1]["metadata"] = {"practice_fault": "400"}
        assert (await rig.done(await rig.request(bodies))).succeeded == 2
        [batch] = await rig.batches()
        files = {file["id"] for file in (await rig.ask("GET", "/files"))["data"]}
        assert files == {batch["output_file_id"], batch["error_file_id"]}


@pytest.mark.slow
async def test_the_file_of_a_batch_that_left_requests_out_is_kept(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        bodies = chats(2)
        bodies[0]["metadata"] = {"practice_fault": "missingx1"}
        assert (await rig.done(await rig.request(bodies))).succeeded == 2
        first = (await rig.batches())[-1]
        assert (await rig.ask("GET", f"/files/{first['input_file_id']}"))["id"] == first["input_file_id"]


@pytest.mark.parametrize("bytes_max", [1_000, 0], ids=["three fit", "none fits"])
async def test_files_that_are_refused_as_too_large_become_smaller_until_each_is_one_request(
    sqlite_site: Site, bytes_max: int
) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        rig.provider.bytes_max["POST /files"] = bytes_max
        job = await rig.request(chats(9))
        async with rig.working():
            await rig.until(lambda: _ended(rig, job))
        view = await job.show()
        assert (view.succeeded, view.failed) == ((9, 0) if bytes_max else (0, 9))


@pytest.mark.slow
async def test_a_batch_that_others_cancel_each_time_is_not_made_for_ever(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, Provider(batch_seconds=6.0)) as rig:
        job = await rig.request(chats(1))
        async with rig.working():
            await rig.until(lambda: _ended(rig, job, cancels=True), 90)
        view = await job.show()
        assert (view.failed, len(await rig.batches())) == (1, 5)
        assert [attempt.error_code for attempt in await rig.attempts(job)] == ["GW_5XX"] * 5


async def _ended(rig: LaneRig, job: Job, cancels: bool = False) -> bool:
    """Whether the job has; until then the time moves on to its next try."""
    for batch in await rig.batches() if cancels else ():
        await rig.ask("POST", f"/batches/{batch['id']}/cancel")
    item = await rig.item(job)
    if item.state is ItemState.QUEUED and item.due_at is not None:
        await rig.site.advance(60)
    return (await job.show()).ended


@pytest.mark.slow
async def test_a_job_kept_waiting_shows_how_far_its_batch_is(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, Provider(batch_seconds=3.0)) as rig:
        job = await rig.request(chats(10))
        async with rig.working():
            await rig.in_state(job, "processing")

            async def half_way() -> bool:
                return 0 < (await rig.item(job)).progress < 100

            await rig.until(half_way)
