"""Responses in the background: submitted once, polled until they end, and never repeated unawares."""

import json
from typing import Any

import pytest

from backstay.client import Options
from backstay.core.errors import Throttled, Transient
from backstay.core.states import ItemState, JobState
from backstay.llm.batch import BatchHandler
from backstay.llm.endpoint import Endpoint, Lane
from backstay.llm.lane_handler import BackgroundHandler
from backstay.llm.lines import LlmRequest, seal
from backstay.llm.providers.openai.requests import add_reference
from tests.databases import Site
from tests.llm.lane_rig import CHAT, RESPONSES, LaneRig, Provider, inputs, lane
from tests.llm.odd_servers import answer
from tests.llm.wire_rig import wired


async def test_responses_are_made_in_the_background_and_read_when_they_are_done(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BACKGROUND) as rig:
        job = await rig.request(inputs(30), RESPONSES)
        view = await rig.done(job)
        assert (view.state, view.succeeded, view.repeats) == (JobState.COMPLETED, 30, 0)
        first: Any = (await rig.results(job))[0].value
        assert first["status_code"] == 200
        assert first["request_id"].startswith("req_")
        assert (first["body"]["status"], first["body"]["background"], first["body"]["store"]) == (
            "completed",
            True,
            True,
        )
        [attempt] = await rig.attempts(job)
        usage = first["body"]["usage"]
        assert (attempt.input_tokens, attempt.output_tokens) == (usage["input_tokens"], usage["output_tokens"])
        assert attempt.cost_micros == -(-(usage["input_tokens"] * 150 + usage["output_tokens"] * 600) // 1000)
        assert (rig.provider.bill.charged, rig.provider.bill.paid_twice) == (30, [])


async def test_a_response_that_is_done_at_once_is_found_by_the_first_poll(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BACKGROUND, Provider(background_seconds=0.0)) as rig:
        job = await rig.request(inputs(2), RESPONSES)
        assert (await rig.done(job)).succeeded == 2


async def test_the_reference_stands_in_the_metadata_and_on_the_bill(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BACKGROUND) as rig:
        job = await rig.request(inputs(1, metadata={"own": "kept"}), RESPONSES)
        await rig.done(job)
        value: Any = (await rig.results(job))[0].value
        body = value["body"]
        [ref] = rig.provider.bill.by_ref
        assert body["metadata"] == {"own": "kept", "backstay_ref": ref}
        assert len(ref) == 40


async def test_a_response_cut_short_by_its_own_bound_is_a_result(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BACKGROUND) as rig:
        job = await rig.request(inputs(1, max_output_tokens=1), RESPONSES)
        assert (await rig.done(job)).succeeded == 1
        value: Any = (await rig.results(job))[0].value
        assert value["body"]["status"] == "incomplete"


async def test_a_response_that_failed_at_the_provider_is_asked_for_anew(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BACKGROUND) as rig:
        job = await rig.request(inputs(1, metadata={"practice_fault": "failedx1"}), RESPONSES)
        assert (await rig.done(job)).succeeded == 1
        item = await rig.item(job)
        assert (item.attempt_count, item.repeats) == (2, 0)
        [failed, _] = await rig.attempts(job)
        assert "server_error" in (failed.message or "")


@pytest.mark.parametrize("kind", [BackgroundHandler, BatchHandler])
async def test_an_answer_about_another_task_than_was_asked_about_is_none(
    kind: type[BackgroundHandler] | type[BatchHandler],
) -> None:
    async with wired(answer('{"id":"other","status":"completed","output":[]}')) as (wire, server):
        handler = kind(Endpoint(f"{server.url}/v1"), wire)
        with pytest.raises(Transient, match="answered about another"):
            await handler.poll(["asked/ref"])


async def forgotten(rig: LaneRig, delivery: str) -> str:
    """Waits until a response is under way, and makes the provider forget it."""
    job = await rig.request(inputs(1), RESPONSES, delivery=delivery)
    async with rig.working():
        await rig.in_state(job, "processing")
        task_id = (await rig.item(job)).provider_task_id
        await rig.ask("DELETE", f"/responses/{task_id}")
        rig.provider.change(background_seconds=0.01)
        await job.wait(timeout_seconds=30)
    view = await job.show()
    return f"{view.succeeded} {view.failed} {view.repeats} {(await rig.item(job)).error_code}"


@pytest.mark.slow
@pytest.mark.parametrize(("delivery", "expected"), [("at_least_once", "1 0 1 None"), ("at_most_once", "0 1 0 UNKNOWN")])
async def test_a_response_that_the_provider_no_longer_knows_is_never_repeated_unawares(
    sqlite_site: Site, delivery: str, expected: str
) -> None:
    async with lane(sqlite_site, Lane.BACKGROUND, Provider(background_seconds=60.0)) as rig:
        assert await forgotten(rig, delivery) == expected


async def test_a_cancelled_job_cancels_its_responses_and_they_are_not_paid_for(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BACKGROUND, Provider(background_seconds=60.0)) as rig:
        job = await rig.request(inputs(3), RESPONSES)
        async with rig.working():
            await rig.in_state(job, "processing", 2)
            task_id = (await rig.item(job, 2)).provider_task_id
            await job.cancel()
            view = await job.wait(timeout_seconds=30)
        assert (view.state, view.cancelled) == (JobState.CANCELLED, 3)
        assert (await rig.ask("GET", f"/responses/{task_id}"))["status"] == "cancelled"
        assert rig.provider.bill.charged == 0


async def test_a_response_cancelled_at_the_provider_is_asked_for_anew(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BACKGROUND, Provider(background_seconds=60.0)) as rig:
        job = await rig.request(inputs(1), RESPONSES)
        async with rig.working():
            await rig.in_state(job, "processing")
            rig.provider.change(background_seconds=0.01)
            await rig.ask("POST", f"/responses/{(await rig.item(job)).provider_task_id}/cancel")
            assert (await job.wait(timeout_seconds=30)).succeeded == 1
        assert rig.provider.bill.charged == 1


@pytest.mark.slow
async def test_polls_that_fail_are_no_verdict(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BACKGROUND, Provider(background_seconds=0.5)) as rig:
        job = await rig.request(inputs(5), RESPONSES)
        async with rig.working():
            await rig.in_state(job, "processing", 4)
            rig.provider.change(outage_seconds=1.0)
            view = await job.wait(timeout_seconds=30)
        assert (view.succeeded, view.repeats, rig.provider.bill.charged) == (5, 0, 5)


async def test_a_refused_poll_holds_new_requests_back_as_long_as_it_must_wait(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BACKGROUND) as rig:
        rig.provider.refuse["GET /responses/*"] = 429
        rig.provider.retry_after = 30
        assert isinstance(rig.handler, BackgroundHandler)
        with pytest.raises(Throttled):
            await rig.handler.poll(["resp_1", "resp_2"])
        pace, now = await rig.store.providers.judge_pace(rig.handler.pace_name, rig.handler.answers)
        assert 25_000 < pace.resume_at - now <= 30_000


async def test_a_throttled_request_costs_no_attempt(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BACKGROUND, Provider(retry_after=1.0)) as rig:
        job = await rig.request(inputs(1, metadata={"practice_fault": "429x1"}), RESPONSES)
        assert (await rig.done(job)).succeeded == 1
        assert (await rig.item(job)).attempt_count == 1


async def test_tasks_belong_to_the_key_that_made_them(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BACKGROUND, Provider(background_seconds=60.0)) as rig:
        job = await rig.request(inputs(1), RESPONSES)
        async with rig.working():
            await rig.in_state(job, "processing")
        assert (await rig.item(job)).account == rig.handler.account != ""
        rig.handler.account = "another"
        await rig.site.advance(100)
        assert (await rig.tick()).polled == 0


async def test_other_endpoints_are_refused_before_anything_is_sent(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BACKGROUND) as rig:
        job = await rig.request([{"model": "m", "messages": []}], CHAT)
        assert (await rig.done(job)).failed == 1
        assert rig.provider.counts.calls == 0


async def test_a_refusal_at_submit_is_told_as_such(sqlite_site: Site) -> None:
    async with lane(sqlite_site, Lane.BACKGROUND) as rig:
        job = await rig.request([{"model": "m"}], RESPONSES)
        await rig.done(job)
        [result] = await rig.results(job)
        assert (result.state, result.error_code) == (ItemState.FAILED, "GW_4XX")


async def test_all_but_what_is_added_is_forwarded_byte_for_byte(sqlite_site: Site) -> None:
    body = '{ "model":"m",\t"input" : "h\\u00e9 1.0 ✓", "temperature":1.00, "store" : false }'
    async with lane(sqlite_site, Lane.BACKGROUND) as rig:
        client = await rig.app.open()
        sealed = seal(LlmRequest("r", RESPONSES, body))
        job = await client.submit(rig.handler.name, [sealed], Options(), str, lambda: None)
        assert (await rig.done(job)).succeeded == 1
        [sent], [ref] = rig.provider.bodies, rig.provider.bill.by_ref
        added = f'{{"background":true,"metadata":{{"backstay_ref": "{ref}"}},'
        assert sent == added + body[1:].replace("false", "true")


REF = "0" * 40


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("{}", '{"background":true,"metadata":{"backstay_ref":"R"}}'),
        ('{ "a" : 1.0 }', '{"background":true,"metadata":{"backstay_ref":"R"}, "a" : 1.0 }'),
        ('{"background" : false,"a":2}', '{"metadata":{"backstay_ref":"R"},"background" : true,"a":2}'),
        ('{"metadata": null}', '{"background":true,"metadata": {"backstay_ref": "R"}}'),
        ('{"metadata": { "k" : "v" }}', '{"background":true,"metadata": {"backstay_ref":"R", "k" : "v" }}'),
        ('{"metadata":{"backstay_ref":"old"}}', '{"background":true,"metadata":{"backstay_ref":"R"}}'),
        ('{"metadata":7}', '{"background":true,"metadata":7}'),
    ],
)
def test_a_body_is_marked_in_place(body: str, expected: str) -> None:
    text, _ = add_reference(body, "R", {"background": "true"})
    assert text.replace('"backstay_ref": "R"', '"backstay_ref":"R"') == expected.replace(
        '"backstay_ref": "R"', '"backstay_ref":"R"'
    )


def test_metadata_without_room_for_a_reference_is_left_as_it_is() -> None:
    full = json.dumps({"metadata": {f"k{n}": "v" for n in range(16)}})
    assert json.loads(add_reference(full, REF, {})[0])["metadata"] == json.loads(full)["metadata"]
