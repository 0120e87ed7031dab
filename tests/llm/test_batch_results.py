"""What comes back of a batch: each request ends once, whatever its lines are like."""

import json
from typing import Any

import pytest

from backstay.llm.endpoint import Lane
from tests.databases import Site
from tests.llm.lane_rig import Provider, chats, lane


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


async def test_many_requests_of_a_batch_are_answered_from_one_download(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH) as rig:
        job = await rig.request(chats(600))
        assert (await rig.done(job)).succeeded == 600
        assert (rig.provider.asked["POST /batches"], rig.provider.asked["GET /files/*/content"]) == (1, 1)
        assert rig.provider.asked["GET /batches/*"] < 10


async def test_results_that_the_provider_no_longer_has_are_an_unknown_outcome(sqlite_site: Site) -> None:
    # The worker is gone before the batch ends, however busy the machine is.
    async with lane(sqlite_site, Lane.BATCH, Provider(batch_seconds=3.0)) as rig:
        job = await rig.request(chats(2), delivery="at_most_once")
        async with rig.working():
            await rig.in_state(job, "processing", 1)
        await rig.until(lambda: rig.provider.bill.charged == 2)

        async def published() -> Any:
            return (await rig.batches())[0]["output_file_id"]

        await rig.ask("DELETE", f"/files/{await rig.until(published)}")
        view = await rig.done(job)
        assert (view.failed, (await rig.item(job)).error_code) == (2, "UNKNOWN")


@pytest.mark.slow
async def test_a_batch_that_the_provider_no_longer_knows_is_an_unknown_outcome(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BATCH, Provider(batch_seconds=60.0)) as rig:
        job = await rig.request(chats(2), delivery="at_most_once")
        rig.provider.refuse["GET /batches/*"] = 404
        view = await rig.done(job)
        assert (view.failed, (await rig.item(job)).error_code) == (2, "UNKNOWN")
