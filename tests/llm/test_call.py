"""The lane `call`: what is sent, and what comes of it."""

import asyncio
import json
from random import Random
from typing import Any

import pytest

from backstay.core.errors import OutcomeUnknown, Throttled, UsageError
from backstay.core.failures import FailureKind, failure_of_exception
from backstay.core.models import Failed, Succeeded
from backstay.handlers.handler import Handler
from backstay.llm.endpoint import Endpoint
from backstay.llm.lane_handler import RETRY
from backstay.llm.lines import LlmRequest, seal
from backstay.practice import Faults
from tests.llm.call_rig import BODY, KEY, Rig, answered, practised
from tests.llm.odd_servers import answer, says_nothing


async def test_a_handler_says_who_it_is_by_its_endpoint_and_its_key() -> None:
    endpoint = Endpoint("http://x.example/v1", timeout_seconds=42)
    handler: Handler = Rig(endpoint).handler
    assert (handler.name, handler.provider) == (endpoint.name, endpoint.provider_of(handler.account or ""))
    assert handler.account
    assert KEY not in repr(vars(handler))
    assert handler.rules.timeout_seconds == 42
    assert handler.askable is False


async def test_a_call_is_sent_as_it_stands_and_its_answer_is_the_result() -> None:
    async with practised() as (rig, practice):
        outcome = await rig.run()
        assert isinstance(outcome, Succeeded)
        result = json.loads(outcome.result)
        assert result["status_code"] == 200
        assert result["body"]["object"] == "chat.completion"
        charge = practice.bill.by_ref[rig.ref()]
        assert outcome.usage == (charge.input_tokens, charge.output_tokens, charge.cost_micros)


async def test_a_body_goes_out_byte_for_byte_under_the_reference_of_its_item() -> None:
    async with answered(answer('{"id":"x"}')) as (rig, server):
        await rig.run()
    assert server.bodies == [BODY.encode()]
    assert server.header("x-client-request-id") == rig.ref()


async def test_any_url_that_a_line_names_is_called() -> None:
    async with answered(answer('{"id":"x"}')) as (rig, server):
        await rig.run("{}", "/v1/moderations")
    assert server.targets == ["/v1/moderations"]


async def test_under_a_claim_that_grew_too_old_nothing_is_sent() -> None:
    async with answered(answer("{}"), guard_seconds=-1) as (rig, server):
        with pytest.raises(Throttled):
            await rig.run()
    assert server.requests == []


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("practice-500", FailureKind.INFRASTRUCTURE),
        ("practice-503", FailureKind.INFRASTRUCTURE),
        ("practice-429", FailureKind.THROTTLED),
        ("practice-429-ms", FailureKind.THROTTLED),
        ("practice-429-date", FailureKind.THROTTLED),
        ("practice-429-bare", FailureKind.THROTTLED),
        ("practice-quota", FailureKind.HELD),
        ("practice-401", FailureKind.HELD),
        ("practice-404", FailureKind.BUSINESS),
        ("practice-400", FailureKind.BUSINESS),
        ("practice-nonsense-html", FailureKind.UNKNOWN),
        ("practice-nonsense-type", FailureKind.UNKNOWN),
        ("practice-nonsense-charset", FailureKind.UNKNOWN),
        ("practice-nonsense-truncated", FailureKind.UNKNOWN),
        ("practice-nonsense-empty", FailureKind.UNKNOWN),
    ],
)
async def test_what_goes_wrong_at_the_provider_is_a_failure_with_its_answer(model: str, kind: FailureKind) -> None:
    async with practised(Faults(retry_after=7)) as (rig, _):
        outcome = await rig.run(BODY.replace('"m"', f'"{model}"'))
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind is kind
    assert outcome.reply is not None
    assert json.loads(outcome.reply)["status_code"] == outcome.failure.provider_status
    if kind is FailureKind.THROTTLED and model != "practice-429-bare":
        assert 5_000 <= (outcome.failure.retry_after_ms or 0) <= 7_000


@pytest.mark.parametrize("model", ["practice-cut", "practice-cut-billed", "practice-cut-half", "practice-hang"])
async def test_without_a_whole_answer_the_outcome_is_unknown(model: str) -> None:
    async with practised(timeout_seconds=0.8) as (rig, _):
        with pytest.raises(OutcomeUnknown) as caught:
            await rig.run(BODY.replace('"m"', f'"{model}"'))
    failure = failure_of_exception(caught.value)
    assert (failure.code, failure.kind) == ("GW_TIMEOUT", FailureKind.UNKNOWN)


async def test_every_answer_is_told_to_the_pace() -> None:
    async with answered(answer('{"id":"x"}'), answer("{}", 429, retry_after="9")) as (rig, _):
        told: list[Any] = []
        rig.handler.answers.add = lambda *args: told.append(args)  # type: ignore[method-assign]
        await rig.run()
        await rig.run()
    assert [(throttled, pause_ms) for _, throttled, pause_ms, _ in told] == [(False, 0), (True, 9_000)]
    assert all(0 <= seconds < 5 for seconds, *_ in told)


def test_a_failed_call_is_tried_five_times_each_after_any_part_of_a_growing_wait() -> None:
    assert RETRY.attempts_max == 5
    for attempt, longest_ms in enumerate((1_000, 4_000, 16_000, 60_000)):
        waits = [RETRY.delay_ms(attempt, Random(seed)) for seed in range(300)]
        assert min(waits) < longest_ms * 0.05
        assert longest_ms * 0.95 < max(waits) <= longest_ms


async def test_a_request_is_checked_before_it_is_queued() -> None:
    async with answered(answer("{}")) as (rig, _):
        rig.handler.check(json.loads(seal(LlmRequest("a", "/v1/embeddings", BODY))))
        with pytest.raises(UsageError):
            rig.handler.check({"custom_id": "a"})


async def test_a_run_that_is_cut_off_leaves_the_wire_in_order() -> None:
    async with answered(says_nothing, answer('{"id":"x"}')) as (rig, server):
        task = asyncio.ensure_future(rig.run())
        await server.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert isinstance(await rig.run(), Succeeded)
