"""The provider's own batches: requests go in shards, come back each once, and are found again after a crash."""

import asyncio
import json
from typing import Any

import pytest

from backstay.client import Options
from backstay.core.states import ItemState, JobState
from backstay.llm.endpoint import Lane
from backstay.llm.envelope import Request, seal
from backstay.llm.shards import ShardBounds
from tests.llm.lane_rig import CHAT, HALF, MINUTES_10, Provider, chats, lane
from tests.sites import Site


async def test_requests_become_one_batch_and_come_back_each_once(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, price=HALF) as rig:
        job = await rig.request(chats(40))
        view = await rig.done(job)
        assert (view.state, view.succeeded, view.repeats) == (JobState.COMPLETED, 40, 0)
        assert [batch["request_counts"]["total"] for batch in await rig.batches()] == [40]
        for n, result in enumerate(await rig.results(job)):
            assert result.value["status_code"] == 200
            assert f"say {n}" in result.value["body"]["choices"][0]["message"]["content"]
        bill = rig.provider.bill
        assert (bill.charged, bill.bodies_paid_twice) == (40, [])
        costs = [(await rig.attempts(job, n))[-1].cost_micros for n in range(40)]
        assert sum(cost or 0 for cost in costs) == bill.total.cost_micros


async def test_bodies_are_forwarded_byte_for_byte_under_a_name_of_ours(sqlite_site: Site) -> None:
    body = '{ "model":"m",\t"temperature":1.00, "messages" : [{"role":"user","content":"h\\u00e9 ✓"}] }'
    async with lane(sqlite_site, Lane.BATCH) as rig:
        client = await rig.app.open()
        sealed = seal(Request("r", CHAT, body))
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


async def test_a_refused_line_fails_its_own_request_and_one_that_broke_is_tried_again(sqlite_site: Site) -> None:
    bodies = chats(4)
    bodies[1]["metadata"] = {"practice_fault": "400"}
    bodies[2]["metadata"] = {"practice_fault": "500x1"}
    async with lane(sqlite_site, Lane.BATCH) as rig:
        job = await rig.request(bodies)
        await rig.done(job)
        results = await rig.results(job)
        assert [result.ok for result in results] == [True, False, True, True]
        assert [result.attempts for result in results] == [1, 1, 2, 1]
        assert results[1].error_code == "GW_4XX"
        [refused] = await rig.attempts(job, 1)
        assert refused.provider_status == 400
        assert json.loads(refused.result or "")["status_code"] == 400
        assert (rig.provider.bill.charged, rig.provider.bill.bodies_paid_twice) == (3, [])


async def test_what_an_expired_batch_did_not_run_goes_into_another(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, Provider(batch_expire=1.0, batch_seconds=0.5)) as rig:
        job = await rig.request(chats(6))
        async with rig.working():
            await rig.until(lambda: rig.provider.bill.charged > 0)
            rig.provider.change(batch_expire=0.0)  # of the batches to come
            view = await job.wait(timeout_seconds=30)
        assert (view.succeeded, view.repeats) == (6, 0)
        assert {batch["status"] for batch in await rig.batches()} == {"completed", "expired"}
        assert (rig.provider.bill.charged, rig.provider.bill.bodies_paid_twice) == (6, [])


async def test_what_a_batch_cancelled_at_the_provider_did_not_run_goes_into_another(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, Provider(batch_seconds=2.0)) as rig:
        job = await rig.request(chats(6))
        async with rig.working():
            await rig.until(lambda: rig.provider.bill.charged > 0)
            rig.provider.change(batch_seconds=0.05)
            [batch] = await rig.batches()
            await rig.ask("POST", f"/batches/{batch['id']}/cancel")
            view = await job.wait(timeout_seconds=30)
        assert (view.succeeded, view.repeats) == (6, 0)
        assert {batch["status"] for batch in await rig.batches()} == {"completed", "cancelled"}
        assert (rig.provider.bill.charged, rig.provider.bill.bodies_paid_twice) == (6, [])


async def test_a_line_given_twice_is_one_result(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        job = await rig.request(chats(2, metadata={"practice_fault": "duplicate"}))
        assert (await rig.done(job)).succeeded == 2
        [batch] = await rig.batches()
        assert len((await rig.content(batch["output_file_id"])).splitlines()) == 4
        assert rig.provider.bill.charged == 2


async def test_a_line_without_a_status_is_tried_again(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        job = await rig.request(chats(1, metadata={"practice_fault": "zerox1"}))
        assert (await rig.done(job)).succeeded == 1
        assert [attempt.outcome for attempt in await rig.attempts(job)] == ["retry", "succeeded"]


@pytest.mark.parametrize(("delivery", "counts"), [("at_least_once", (2, 0, 1)), ("at_most_once", (1, 1, 0))])
async def test_a_request_without_a_line_is_never_repeated_unawares(
    sqlite_site: Site, delivery: str, counts: tuple[int, int, int]
) -> None:
    bodies = chats(2)
    bodies[0]["metadata"] = {"practice_fault": "missingx1"}
    async with lane(sqlite_site, Lane.BATCH) as rig:
        job = await rig.request(bodies, delivery=delivery)
        view = await rig.done(job)
        assert (view.succeeded, view.failed, view.repeats) == counts


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


async def test_a_batch_over_the_limit_of_waiting_tokens_waits_and_comes_again_smaller(sqlite_site: Site) -> None:
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
            await rig.site.advance(70)
            view = await job.wait(timeout_seconds=30)
        assert view.succeeded == 400
        assert [batch["request_counts"]["total"] for batch in await rig.batches()] == [200, 200, 0]
        assert (await rig.item(job)).attempt_count == 1


async def test_a_batch_whose_creation_was_never_answered_is_found_and_not_paid_again(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        rig.provider.lose["POST /batches"] = 1
        job = await rig.request(chats(60))
        async with rig.working():
            await rig.until(lambda: rig.provider.asked["POST /batches"] == 1)

            async def unknown() -> bool:
                return (await rig.item(job, 59)).lease_expires_at is not None and bool(await rig.attempts(job, 59))

            await rig.until(unknown)
        assert {(await rig.item(job, n)).state for n in range(60)} == {ItemState.SUBMITTING}
        await rig.site.advance(MINUTES_10)
        rig.provider.asked.clear()
        view = await rig.done(job)
        assert (view.succeeded, view.repeats, len(await rig.batches())) == (60, 0, 1)
        assert (rig.provider.bill.charged, rig.provider.bill.bodies_paid_twice) == (60, [])
        assert rig.provider.asked["GET /batches"] == 2  # for all of them, and once by this test


async def test_a_new_process_finds_the_batch_by_reading_its_file_once(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        rig.provider.lose["POST /batches"] = 1
        job = await rig.request(chats(60))
        async with rig.working():
            await rig.until(lambda: rig.provider.asked["POST /batches"] == 1)
            await rig.until(lambda: rig.attempts(job, 59))
        rig.restart()
        await rig.site.advance(MINUTES_10)
        rig.provider.asked.clear()
        view = await rig.done(job)
        assert (view.succeeded, view.repeats, len(await rig.batches())) == (60, 0, 1)
        assert rig.provider.asked["GET /files/*/content"] == 2  # its input and its output


async def test_a_batch_that_never_arrived_is_created_again(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        rig.provider.drop["POST /batches"] = 1
        job = await rig.request(chats(5))
        async with rig.working():
            await rig.until(lambda: rig.attempts(job, 4))
        await rig.site.advance(MINUTES_10)
        view = await rig.done(job)
        assert (view.succeeded, len(await rig.batches())) == (5, 1)
        assert {(await rig.item(job, n)).rescues for n in range(5)} == {1}
        assert rig.provider.bill.bodies_paid_twice == []


async def test_a_creation_that_failed_at_the_provider_is_looked_for_before_it_is_repeated(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        rig.provider.refuse["POST /batches"] = 502
        job = await rig.request(chats(2))
        async with rig.working():
            await rig.until(lambda: rig.attempts(job, 1))
        assert (await rig.item(job)).state is ItemState.SUBMITTING
        rig.provider.refuse.clear()
        await rig.site.advance(MINUTES_10)
        assert (await rig.done(job)).succeeded == 2


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
        crew = rig.crew()
        await crew.start()
        await crew.claim_once(10)
        await rig.until(lambda: rig.attempts(job, 2))
        await crew.stop(0)
        assert (rig.provider.asked["POST /files"], rig.provider.asked["POST /batches"]) == (1, 0)
        assert ((await rig.item(job)).state, (await rig.item(job)).attempt_count) == (ItemState.QUEUED, 0)


async def test_a_cancelled_job_cancels_its_batch_once(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, Provider(batch_seconds=60.0)) as rig:
        job = await rig.request(chats(20))
        async with rig.working():
            await rig.in_state(job, "processing", 19)
            await job.cancel()
            view = await job.wait(timeout_seconds=30)
        assert (view.state, view.cancelled) == (JobState.CANCELLED, 20)
        assert rig.provider.asked["POST /batches/*/cancel"] == 1
        assert (await rig.batches())[0]["status"] == "cancelling"


async def test_a_job_cancelled_during_the_upload_makes_no_batch(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            reached.set()
            await go_on.wait()

        rig.provider.before["POST /files"] = wait
        job = await rig.request(chats(3))
        async with rig.working():
            await reached.wait()
            await job.cancel()
            await job.wait(timeout_seconds=30)
            go_on.set()
            later = await rig.request(chats(1, user="later"))
            assert (await later.wait(timeout_seconds=30)).succeeded == 1
        assert rig.provider.asked["POST /batches"] == 1


async def test_many_requests_of_a_batch_are_answered_from_one_download(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        job = await rig.request(chats(600))
        assert (await rig.done(job)).succeeded == 600
        assert (rig.provider.asked["POST /batches"], rig.provider.asked["GET /files/*/content"]) == (1, 1)
        assert rig.provider.asked["GET /batches/*"] < 10


async def test_results_that_the_provider_no_longer_has_are_an_unknown_outcome(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        job = await rig.request(chats(2), delivery="at_most_once")
        async with rig.working():
            await rig.in_state(job, "processing", 1)
        await rig.until(lambda: rig.provider.bill.charged == 2)

        async def published() -> Any:
            return (await rig.batches())[0]["output_file_id"]

        await rig.ask("DELETE", f"/files/{await rig.until(published)}")
        view = await rig.done(job)
        assert (view.failed, (await rig.item(job)).error_code) == (2, "UNKNOWN")


async def test_a_job_kept_waiting_shows_how_far_its_batch_is(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, Provider(batch_seconds=3.0)) as rig:
        job = await rig.request(chats(10))
        async with rig.working():
            await rig.in_state(job, "processing")

            async def half_way() -> bool:
                return 0 < (await rig.item(job)).progress < 100

            await rig.until(half_way)


async def test_a_batch_that_the_provider_no_longer_knows_is_an_unknown_outcome(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, Provider(batch_seconds=60.0)) as rig:
        job = await rig.request(chats(2), delivery="at_most_once")
        rig.provider.refuse["GET /batches/*"] = 404
        view = await rig.done(job)
        assert (view.failed, (await rig.item(job)).error_code) == (2, "UNKNOWN")


async def test_a_look_up_without_a_certain_answer_sends_nothing(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, call_retries_max=0) as rig:
        rig.provider.lose["POST /batches"] = 1
        job = await rig.request(chats(2))
        async with rig.working():
            await rig.until(lambda: rig.attempts(job, 1))
        await rig.site.advance(MINUTES_10)
        rig.provider.refuse["GET /files"] = 500
        await rig.sweep()
        assert (await rig.item(job)).state is ItemState.SUBMITTING
        del rig.provider.refuse["GET /files"]
        await rig.site.advance(MINUTES_10)
        assert (await rig.done(job)).succeeded == 2
        assert rig.provider.bill.bodies_paid_twice == []


async def test_a_lost_batch_is_found_behind_pages_of_others(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        rig.provider.lose["POST /batches"] = 1
        job = await rig.request(chats(2))
        async with rig.working():
            await rig.until(lambda: rig.attempts(job, 1))
        foreign = {"input_file_id": "file-none", "endpoint": CHAT, "completion_window": "24h"}
        for _ in range(210):
            await rig.wire.post("/v1/batches", json.dumps(foreign), 10)
        await rig.site.advance(MINUTES_10)
        assert (await rig.done(job)).succeeded == 2
        assert rig.provider.bill.bodies_paid_twice == []
