"""Responses: answered at once or in the background, read again by their id, and streamed as events.

Part of it is asked for by OpenAI's own client: a stream that is cut off is resumed where it was.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, AsyncStream, OpenAI
from openai.types.responses import Response, ResponseStreamEvent

from backstay.practice import Faults, Practice, answer_to
from tests.practice.visitor import RESPONSES, MovedClock, Visitor, eventually, visiting

WAIT_SECONDS = 20
WORDS = 40
KINDS = {
    "response.created",
    "response.queued",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
}


def response_body(**more: Any) -> dict[str, Any]:
    return {"model": "m", "input": "hello", **more}


async def begin(visitor: Visitor, **more: Any) -> Any:
    return (await visitor.post(RESPONSES, response_body(background=True, store=True, **more))).json


async def poll(visitor: Visitor, name: str) -> Any:
    return (await visitor.get(f"{RESPONSES}/{name}")).json


async def test_a_response_is_answered_at_once() -> None:
    async with visiting() as visitor:
        value = (await visitor.post(RESPONSES, response_body(instructions="be brief"))).json
    assert value["status"] == "completed"
    assert value["output"][0]["content"][0]["text"] == answer_to(RESPONSES, response_body())
    assert value["usage"]["total_tokens"] == value["usage"]["input_tokens"] + value["usage"]["output_tokens"]


async def test_a_background_response_is_queued_then_done_and_charged_when_it_is_done() -> None:
    async with visiting(background_seconds=0.3) as visitor:
        started = await begin(visitor, metadata={"backstay_ref": "a"})
        assert (started["status"], started["output"], started["usage"]) == ("queued", [], None)
        assert (await visitor.bill())["charged"] == 0
        await eventually(lambda: visitor.practice.bill.charged == 1)
        ended = await poll(visitor, started["id"])
        bill = await visitor.bill()
    assert ended["status"] == "completed"
    assert ended["output"][0]["content"][0]["text"] == answer_to(RESPONSES, response_body())
    assert list(bill["by_ref"]) == ["a"]


async def test_a_cancelled_response_is_never_charged_and_cancelling_twice_is_fine() -> None:
    async with visiting(background_seconds=0.2) as visitor:
        name = (await begin(visitor))["id"]
        cancelled = [(await visitor.post(f"{RESPONSES}/{name}/cancel")).json["status"] for _ in range(2)]
        other = (await begin(visitor, input="other"))["id"]
        await eventually(lambda: visitor.practice.bill.charged == 1)
        assert (await poll(visitor, name))["status"] == "cancelled"
        assert (await visitor.post(f"{RESPONSES}/{other}/cancel")).json["status"] == "completed"
    assert cancelled == ["cancelled", "cancelled"]


async def test_only_a_background_response_can_be_cancelled() -> None:
    async with visiting() as visitor:
        name = (await visitor.post(RESPONSES, response_body(store=True))).json["id"]
        assert (await poll(visitor, name))["status"] == "completed"
        assert (await visitor.post(f"{RESPONSES}/{name}/cancel")).status == 400


async def test_a_forgotten_response_is_not_found_but_charged() -> None:
    async with visiting(background_seconds=0.05) as visitor:
        name = (await begin(visitor))["id"]
        assert (await visitor.ask("DELETE", f"{RESPONSES}/{name}")).json["deleted"]
        assert (await visitor.get(f"{RESPONSES}/{name}")).status == 404
        await eventually(lambda: visitor.practice.bill.charged == 1)


async def test_a_response_can_fail_or_stay_incomplete() -> None:
    async with visiting(background_seconds=0.0) as visitor:
        failed = (await begin(visitor, model="practice-failed"))["id"]
        short = (await begin(visitor, model="practice-incomplete"))["id"]
        await eventually(lambda: visitor.practice.bill.charged == 1)
        ends = [await poll(visitor, name) for name in (failed, short)]
    assert [end["status"] for end in ends] == ["failed", "incomplete"]
    assert ends[0]["error"]["code"] == "server_error"
    assert ends[1]["incomplete_details"]["reason"] == "max_output_tokens"


async def test_tokens_are_counted_without_a_charge() -> None:
    async with visiting() as visitor:
        counted = (await visitor.post(f"{RESPONSES}/input_tokens", response_body())).json["input_tokens"]
        assert (await visitor.bill())["charged"] == 0
        made = (await visitor.post(RESPONSES, response_body())).json["usage"]["input_tokens"]
    assert counted == made


# asked for by OpenAI's client


def client_of(base_url: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, _strict_response_validation=True)


async def begin_with(client: AsyncOpenAI) -> Response:
    return await client.responses.create(
        model="practice", input="Say hello", background=True, store=True, metadata={"kind": "background"}
    )


async def test_a_response_is_queued_and_then_in_progress() -> None:
    clock = MovedClock()
    async with (
        Practice(Faults(background_seconds=100), clock=clock).serving() as base_url,
        client_of(base_url) as client,
    ):
        made = await begin_with(client)
        assert (made.status, made.output, made.background) == ("queued", [], True)
        assert (await client.responses.retrieve(made.id)).status == "queued"
        clock.ahead = 50.0
        assert (await client.responses.retrieve(made.id)).status == "in_progress"


async def test_a_response_is_completed_and_can_be_deleted() -> None:
    async with Practice(Faults(background_seconds=0)).serving() as base_url, client_of(base_url) as client:
        made = await begin_with(client)
        async with asyncio.timeout(WAIT_SECONDS):
            while made.status in ("queued", "in_progress"):
                await asyncio.sleep(0.01)
                made = await client.responses.retrieve(made.id)
        assert made.status == "completed"
        assert made.output_text
        assert made.usage is not None
        assert made.usage.total_tokens > 0
        assert made.metadata == {"kind": "background"}
        await client.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(made.id)


# streams


def practice_of(seconds: float = 0.1) -> Practice:
    return Practice(Faults(answer_tokens=WORDS, background_seconds=seconds))


async def begin_stream(client: AsyncOpenAI, **headers: str) -> AsyncStream[ResponseStreamEvent]:
    return await client.responses.create(
        model="practice", input="Say hello", background=True, stream=True, extra_headers=headers
    )


async def take_events(
    stream: AsyncStream[ResponseStreamEvent], n: int | None = None, into: list[ResponseStreamEvent] | None = None
) -> list[ResponseStreamEvent]:
    """The first n events, and then it is dropped; or all there are."""
    events: list[ResponseStreamEvent] = [] if into is None else into
    async with asyncio.timeout(WAIT_SECONDS), stream:
        async for event in stream:
            events.append(event)
            if len(events) == n:
                break
    return events


def name_of(events: list[ResponseStreamEvent]) -> str:
    assert events[0].type == "response.created"
    return events[0].response.id


def text_of(events: list[ResponseStreamEvent]) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def check_whole(events: list[ResponseStreamEvent]) -> None:
    """Without a gap and without a repeat, and its pieces are what it ends with."""
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert {event.type for event in events} == KINDS
    end = events[-1]
    assert end.type == "response.completed"
    assert text_of(events) == end.response.output_text
    assert len([event for event in events if event.type == "response.output_text.delta"]) > 5


@pytest.fixture
async def client() -> AsyncIterator[AsyncOpenAI]:
    async with practice_of().serving() as base_url, client_of(base_url) as client:
        yield client


@pytest.mark.parametrize("seen", [1, 8])
async def test_a_stream_that_is_dropped_half_way_goes_on_where_it_was(client: AsyncOpenAI, seen: int) -> None:
    first = await take_events(await begin_stream(client), seen)
    response = name_of(first)
    again = await client.responses.retrieve(response, stream=True, starting_after=first[-1].sequence_number)
    whole = first + await take_events(again)
    check_whole(whole)
    assert text_of(whole) == (await client.responses.retrieve(response)).output_text
    late = await client.responses.retrieve(response, stream=True)
    assert [event.to_dict() for event in await take_events(late)] == [event.to_dict() for event in whole]


async def test_a_stream_that_the_provider_cuts_goes_on_where_it_was(client: AsyncOpenAI) -> None:
    first: list[ResponseStreamEvent] = []
    with pytest.raises(openai.APIConnectionError):
        await take_events(await begin_stream(client, **{"X-Practice-Fault": "cut-half"}), into=first)
    assert first[-1].type == "response.output_text.delta"
    again = await client.responses.retrieve(name_of(first), stream=True, starting_after=first[-1].sequence_number)
    check_whole(first + await take_events(again))


async def test_a_stream_can_be_dropped_after_every_event(client: AsyncOpenAI) -> None:
    events = await take_events(await begin_stream(client), 1)
    while events[-1].type != "response.completed":
        after = events[-1].sequence_number
        again = await client.responses.retrieve(name_of(events), stream=True, starting_after=after)
        events += await take_events(again, 1)
    check_whole(events)
    after = events[-1].sequence_number
    assert await take_events(await client.responses.retrieve(name_of(events), stream=True, starting_after=after)) == []


async def test_events_come_as_they_happen_and_one_charge_is_made() -> None:
    practice = practice_of(seconds=30)
    async with practice.serving() as base_url, client_of(base_url) as client:
        stream = await begin_stream(client)
        events = await take_events(stream, 2)
        assert [event.type for event in events] == ["response.created", "response.queued"]
        assert (await client.responses.retrieve(name_of(events))).status == "queued"
        going_on = asyncio.ensure_future(take_events(await client.responses.retrieve(name_of(events), stream=True)))
        await client.responses.cancel(name_of(events))
        assert [event.sequence_number for event in await going_on] == [0, 1]
        assert practice.bill.charged == 0
    practice = practice_of(seconds=0)
    async with practice.serving() as base_url, client_of(base_url) as client:
        events = await take_events(await begin_stream(client))
        await take_events(await client.responses.retrieve(name_of(events), stream=True))
        assert practice.bill.charged == 1


async def test_a_response_that_fails_or_is_cut_short_ends_its_stream_so(client: AsyncOpenAI) -> None:
    for fault in ("failed", "incomplete"):
        events = await take_events(await begin_stream(client, **{"X-Practice-Fault": fault}))
        assert events[-1].type == f"response.{fault}"


async def test_only_what_was_made_as_a_stream_can_be_streamed(client: AsyncOpenAI) -> None:
    made = await client.responses.create(model="practice", input="x", background=True)
    with pytest.raises(openai.BadRequestError, match="can be streamed"):
        await client.responses.retrieve(made.id, stream=True)
    with pytest.raises(openai.BadRequestError, match="in the background only"):
        await client.responses.create(model="practice", input="x", stream=True)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve("resp_none", stream=True)
    streamed = name_of(await take_events(await begin_stream(client), 1))
    with pytest.raises(openai.BadRequestError, match="starting_after"):
        await client.responses.retrieve(streamed, stream=True, extra_query={"starting_after": "x"})


async def test_the_client_without_asyncio_goes_on_as_well() -> None:
    def drop_and_go_on(base_url: str) -> list[ResponseStreamEvent]:
        with OpenAI(base_url=base_url, api_key="none", _strict_response_validation=True) as client:
            with client.responses.create(model="practice", input="x", background=True, stream=True) as stream:
                first = list(itertools.islice(stream, 6))
            after = first[-1].sequence_number
            with client.responses.retrieve(name_of(first), stream=True, starting_after=after) as stream:
                return first + list(stream)

    async with practice_of().serving() as base_url:
        check_whole(await asyncio.to_thread(drop_and_go_on, base_url))
