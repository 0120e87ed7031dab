"""Anthropic's own client, unmodified and strict, at the practice provider: messages, models, batches and errors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anthropic
import pytest
from anthropic.types.messages import MessageBatch
from anthropic.types.messages.batch_create_params import Request
from openai import AsyncOpenAI

from backstay.practice import Faults, Practice
from tests.practice.visitor import HeldClock, eventually

pytestmark = pytest.mark.slow

KEY = "sk-ant-practice-0123"
MODEL = "claude-sonnet-5"


def said(text: str = "hello") -> Any:
    return [{"role": "user", "content": text}]


def request(custom_id: str, text: str = "hello", **more: Any) -> Request:
    params: Any = {"model": MODEL, "max_tokens": 50, "messages": said(text), **more}
    return {"custom_id": custom_id, "params": params}


class Desk:
    def __init__(self, practice: Practice, root: str) -> None:
        self.practice = practice
        self.root = root
        self.client = anthropic.AsyncAnthropic(
            base_url=root, api_key=KEY, max_retries=0, _strict_response_validation=True
        )
        self.messages = self.client.messages
        self.batches = self.client.messages.batches

    async def ended(self, batch: MessageBatch) -> MessageBatch:
        async def has_ended() -> bool:
            return (await self.batches.retrieve(batch.id)).processing_status == "ended"

        await eventually(has_ended)
        return await self.batches.retrieve(batch.id)

    async def results(self, batch: MessageBatch) -> dict[str, Any]:
        found = [each async for each in await self.batches.results(batch.id)]
        assert len({each.custom_id for each in found}) == len(found)
        return {each.custom_id: each.result for each in found}


@asynccontextmanager
async def desk(practice: Practice | None = None, **faults: Any) -> AsyncIterator[Desk]:
    provider = practice or Practice(Faults(**{"batch_seconds": 0.05, **faults}))
    async with provider.serving() as base_url:
        at = Desk(provider, base_url.removesuffix("/v1"))
        async with at.client:
            yield at


async def test_a_message_is_answered_and_billed() -> None:
    async with desk() as at:
        message = await at.messages.create(model=MODEL, max_tokens=50, messages=said(), system="be brief")
        assert message.content[0].type == "text"
        assert message.content[0].text.endswith(" hello")
        assert (message.stop_reason, message.usage.service_tier) == ("end_turn", "standard")
        bill = at.practice.bill
        used = (bill.total.input_tokens, bill.total.output_tokens)
        assert (bill.charged, used) == (1, (message.usage.input_tokens, message.usage.output_tokens))
        counted = await at.messages.count_tokens(model=MODEL, messages=said(), system="be brief")
        assert counted.input_tokens == message.usage.input_tokens
        assert bill.charged == 1  # counting is free


async def test_a_short_answer_is_cut_and_a_chosen_tool_is_called() -> None:
    tool: Any = {"name": "look", "input_schema": {"type": "object"}}
    async with desk() as at:
        short = await at.messages.create(model=MODEL, max_tokens=1, messages=said())
        assert (short.stop_reason, short.usage.output_tokens) == ("max_tokens", 1)
        called = await at.messages.create(
            model=MODEL, max_tokens=50, messages=said(), tools=[tool], tool_choice={"type": "tool", "name": "look"}
        )
        assert (called.stop_reason, called.content[0].type) == ("tool_use", "tool_use")


async def test_models_are_listed_for_each_api_in_its_own_form() -> None:
    async with desk() as at:
        assert [model.id async for model in at.client.models.list(limit=1)] == [
            "claude-practice",
            "claude-practice-mini",
        ]
        assert (await at.client.models.retrieve("claude-x")).id == "claude-x"
        with pytest.raises(anthropic.NotFoundError):
            await at.client.models.retrieve("practice-404")
        async with AsyncOpenAI(base_url=f"{at.root}/v1", api_key="k", _strict_response_validation=True) as other:
            assert "practice" in [model.id async for model in other.models.list()]


async def test_either_header_for_the_key_is_taken() -> None:
    async with desk(key=KEY) as at:
        await at.messages.create(model=MODEL, max_tokens=50, messages=said())  # this client sends a Bearer key
        body = {"model": MODEL, "max_tokens": 50, "messages": said()}
        for key, status in ((KEY, 200), ("other", 401)):
            async with (
                aiohttp.ClientSession(headers={"x-api-key": key}) as plain,
                plain.post(f"{at.root}/v1/messages", json=body) as reply,
            ):
                assert reply.status == status


ERRORS: list[tuple[str, type[anthropic.APIStatusError], str]] = [
    ("practice-400", anthropic.BadRequestError, "invalid_request_error"),
    ("practice-401", anthropic.AuthenticationError, "authentication_error"),
    ("practice-402", anthropic.APIStatusError, "billing_error"),
    ("practice-403", anthropic.PermissionDeniedError, "permission_error"),
    ("practice-404", anthropic.NotFoundError, "not_found_error"),
    ("practice-413", anthropic.APIStatusError, "request_too_large"),
    ("practice-429", anthropic.RateLimitError, "rate_limit_error"),
    ("practice-500", anthropic.InternalServerError, "api_error"),
    ("practice-529", anthropic.APIStatusError, "overloaded_error"),
]


@pytest.mark.parametrize(("model", "kind", "name"), ERRORS)
async def test_errors_have_the_form_of_the_api(model: str, kind: type[anthropic.APIStatusError], name: str) -> None:
    async with desk() as at:
        with pytest.raises(kind) as refused:
            await at.messages.create(model=model, max_tokens=50, messages=said())
        body: Any = refused.value.body
        assert (body["type"], body["error"]["type"]) == ("error", name)
        assert str(refused.value.request_id).startswith("req_")
        assert at.practice.bill.charged == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages.0.role"),
        ({"extra_body": {"n": 2}}, "n: Extra inputs are not permitted"),
        ({"extra_body": {"max_tokens": None}}, "max_tokens: Field required"),
    ],
)
async def test_a_wrong_request_is_refused(more: dict[str, Any], words: str) -> None:
    async with desk() as at:
        with pytest.raises(anthropic.BadRequestError, match=words):
            await at.messages.create(**{"model": MODEL, "max_tokens": 50, "messages": said(), **more})


async def test_limits_are_told_with_the_time_of_their_reset() -> None:
    async with desk(rpm=2) as at:
        told = await at.messages.with_raw_response.create(model=MODEL, max_tokens=50, messages=said())
        assert told.headers["anthropic-ratelimit-requests-remaining"] == "1"
        assert told.headers["anthropic-ratelimit-requests-reset"].endswith("Z")
        await at.messages.create(model=MODEL, max_tokens=50, messages=said())
        with pytest.raises(anthropic.RateLimitError) as refused:
            await at.messages.create(model=MODEL, max_tokens=50, messages=said())
        assert 0 < int(refused.value.response.headers["retry-after"]) <= 60


async def test_a_used_up_quota_is_a_spend_limit_without_a_time() -> None:
    async with desk(quota=0) as at:
        with pytest.raises(anthropic.RateLimitError) as refused:
            await at.messages.create(model=MODEL, max_tokens=50, messages=said())
        body: Any = refused.value.body
        assert body["error"]["details"] == {"error_code": "enforced_spend_limit_reached"}
        assert "retry-after" not in refused.value.response.headers


async def test_a_batch_shows_nothing_of_its_requests_until_it_has_ended() -> None:
    clock = HeldClock()
    async with desk(Practice(Faults(batch_seconds=1), clock=clock)) as at:
        batch = await at.batches.create(requests=[request(f"r{n}", f"ask {n}") for n in range(30)])
        await eventually(lambda: clock.sleeping == 1)
        clock.wake(3)
        await eventually(lambda: at.practice.bill.charged > 2)
        batch = await at.batches.retrieve(batch.id)
        assert batch.request_counts.model_dump() == {
            **dict.fromkeys(("succeeded", "errored", "canceled", "expired"), 0),
            "processing": 30,
        }
        assert (batch.processing_status, batch.results_url, batch.ended_at) == ("in_progress", None, None)
        with pytest.raises(anthropic.AnthropicError, match="Has it finished processing"):
            await at.results(batch)
        clock.wake(1_000)
        batch = await at.ended(batch)
        assert (batch.request_counts.succeeded, batch.request_counts.processing) == (30, 0)
        results = await at.results(batch)
        assert list(results) != sorted(results, key=lambda name: int(name[1:])), "the order is not the input's"
        for n in range(30):
            message = results[f"r{n}"].message
            assert message.content[0].text.endswith(f" ask {n}")
            assert message.usage.service_tier == "batch"
        single = at.practice.bill.total.cost_micros
        assert single == sum(
            -(-(each.message.usage.input_tokens * 150_000 + each.message.usage.output_tokens * 600_000) // 2_000_000)
            for each in results.values()
        )


async def test_a_wrong_request_in_a_batch_is_an_error_of_its_own() -> None:
    faults = [
        request("bad", max_tokens=0),
        request("stream", stream=False),
        request("busy", model="practice-529"),
        request("good"),
    ]
    async with desk() as at:
        batch = await at.ended(await at.batches.create(requests=faults))
        assert (batch.request_counts.succeeded, batch.request_counts.errored) == (1, 3)
        results = await at.results(batch)
        kinds = {name: results[name].error.error.type for name in ("bad", "stream", "busy")}
        assert kinds == {
            "bad": "invalid_request_error",
            "stream": "invalid_request_error",
            "busy": "overloaded_error",
        }
        assert results["good"].type == "succeeded"
        assert at.practice.bill.charged == 1


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ([], "requests: List should have 1"),
        ([request("x" * 65)], r"requests\.0\.custom_id"),
        ([request("a"), request("b c")], r"requests\.1\.custom_id"),
        ([request("a"), request("a")], r"requests\.1\.custom_id.*unique"),
    ],
)
async def test_a_batch_with_a_wrong_envelope_is_refused_as_a_whole(requests: list[Request], words: str) -> None:
    async with desk() as at:
        with pytest.raises(anthropic.BadRequestError, match=words):
            await at.batches.create(requests=requests)
        assert [each async for each in at.batches.list()] == []


async def test_batches_are_listed_the_newest_first_in_both_directions() -> None:
    async with desk() as at:
        made = [(await at.batches.create(requests=[request(f"r{n}")])).id for n in range(5)]
        assert [each.id async for each in at.batches.list(limit=2)] == made[::-1]
        newer = await at.batches.list(before_id=made[1], limit=2)
        assert ([each.id for each in newer.data], newer.has_more) == ([made[3], made[2]], True)


async def test_a_cancelled_batch_runs_nothing_more_and_can_be_deleted_only_when_it_has_ended() -> None:
    clock = HeldClock()
    async with desk(Practice(Faults(batch_seconds=1), clock=clock)) as at:
        batch = await at.batches.create(requests=[request(f"r{n}") for n in range(4)])
        with pytest.raises(anthropic.BadRequestError, match="cancel it first"):
            await at.batches.delete(batch.id)
        batch = await at.batches.cancel(batch.id)
        assert (batch.processing_status, batch.cancel_initiated_at is not None) == ("canceling", True)
        clock.wake(1_000)
        batch = await at.ended(batch)
        assert batch.request_counts.canceled == 4
        assert {each.type for each in (await at.results(batch)).values()} == {"canceled"}
        with pytest.raises(anthropic.BadRequestError, match="has ended"):
            await at.batches.cancel(batch.id)
        assert (await at.batches.delete(batch.id)).type == "message_batch_deleted"
        with pytest.raises(anthropic.NotFoundError):
            await at.batches.retrieve(batch.id)
        assert at.practice.bill.charged == 0


async def test_a_batch_may_expire_half_way() -> None:
    async with desk(batch_expire=1.0) as at:
        batch = await at.ended(await at.batches.create(requests=[request(f"r{n}") for n in range(4)]))
        assert (batch.request_counts.succeeded, batch.request_counts.expired) == (2, 2)
        assert sorted(each.type for each in (await at.results(batch)).values()) == ["expired"] * 2 + ["succeeded"] * 2


class Later(HeldClock):
    def now_ms(self) -> int:
        return 1_800_000_000_000 + int(self.ahead * 1000)


async def test_what_is_new_may_be_shown_late() -> None:
    clock = Later()
    async with desk(Practice(Faults(batch_seconds=1, visible_after=60), clock=clock)) as at:
        batch = await at.batches.create(requests=[request("r")])
        clock.ahead = 59
        with pytest.raises(anthropic.NotFoundError):
            await at.batches.retrieve(batch.id)
        assert [each async for each in at.batches.list()] == []
        clock.ahead = 60
        clock.wake(1_000)
        batch = await at.ended(batch)
        clock.ahead = 119
        with pytest.raises(anthropic.NotFoundError):
            await at.results(batch)
        clock.ahead = 120
        assert list(await at.results(batch)) == ["r"]


@pytest.mark.parametrize(("fault", "made"), [("cut", 0), ("cut-billed", 1)])
async def test_the_answer_to_a_creation_may_be_lost_before_or_after_it(fault: str, made: int) -> None:
    async with desk() as at:
        with pytest.raises(anthropic.APIConnectionError):
            await at.batches.create(requests=[request("r")], extra_headers={"X-Practice-Fault": fault})
        assert len([each async for each in at.batches.list()]) == made
