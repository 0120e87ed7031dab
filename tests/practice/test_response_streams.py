"""OpenAI's own client with streams of background responses: who is cut off goes on where he was."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import openai
import pytest
from openai import AsyncOpenAI, AsyncStream, OpenAI
from openai.types.responses import ResponseStreamEvent

from backstay.practice import Faults, Practice
from tests.practice.test_background_client import client_of

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


def practice_of(seconds: float = 0.3) -> Practice:
    return Practice(Faults(answer_tokens=WORDS, background_seconds=seconds))


async def begun(client: AsyncOpenAI, **headers: str) -> AsyncStream[ResponseStreamEvent]:
    return await client.responses.create(
        model="practice", input="Say hello", background=True, stream=True, extra_headers=headers
    )


async def taken(
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


@pytest.mark.parametrize("seen", [1, 2, 4, 8, 15])
async def test_a_stream_that_is_dropped_half_way_goes_on_where_it_was(client: AsyncOpenAI, seen: int) -> None:
    first = await taken(await begun(client), seen)
    response = name_of(first)
    again = await client.responses.retrieve(response, stream=True, starting_after=first[-1].sequence_number)
    whole = first + await taken(again)
    check_whole(whole)
    assert text_of(whole) == (await client.responses.retrieve(response)).output_text
    late = await client.responses.retrieve(response, stream=True)
    assert [event.to_dict() for event in await taken(late)] == [event.to_dict() for event in whole]


async def test_a_stream_that_the_provider_cuts_goes_on_where_it_was(client: AsyncOpenAI) -> None:
    first: list[ResponseStreamEvent] = []
    with pytest.raises(openai.APIConnectionError):
        await taken(await begun(client, **{"X-Practice-Fault": "cut-half"}), into=first)
    assert first[-1].type == "response.output_text.delta"
    again = await client.responses.retrieve(name_of(first), stream=True, starting_after=first[-1].sequence_number)
    check_whole(first + await taken(again))


async def test_a_stream_can_be_dropped_after_every_event(client: AsyncOpenAI) -> None:
    events = await taken(await begun(client), 1)
    while events[-1].type != "response.completed":
        after = events[-1].sequence_number
        again = await client.responses.retrieve(name_of(events), stream=True, starting_after=after)
        events += await taken(again, 1)
    check_whole(events)
    after = events[-1].sequence_number
    assert await taken(await client.responses.retrieve(name_of(events), stream=True, starting_after=after)) == []


async def test_events_come_as_they_happen_and_one_charge_is_made() -> None:
    practice = practice_of(seconds=30)
    async with practice.serving() as base_url, client_of(base_url) as client:
        stream = await begun(client)
        events = await taken(stream, 2)
        assert [event.type for event in events] == ["response.created", "response.queued"]
        assert (await client.responses.retrieve(name_of(events))).status == "queued"
        going_on = asyncio.ensure_future(taken(await client.responses.retrieve(name_of(events), stream=True)))
        await client.responses.cancel(name_of(events))
        assert [event.sequence_number for event in await going_on] == [0, 1]
        assert practice.bill.charged == 0
    practice = practice_of(seconds=0)
    async with practice.serving() as base_url, client_of(base_url) as client:
        events = await taken(await begun(client))
        await taken(await client.responses.retrieve(name_of(events), stream=True))
        assert practice.bill.charged == 1


async def test_a_response_that_fails_or_is_cut_short_ends_its_stream_so(client: AsyncOpenAI) -> None:
    for fault in ("failed", "incomplete"):
        events = await taken(await begun(client, **{"X-Practice-Fault": fault}))
        assert events[-1].type == f"response.{fault}"


async def test_only_what_was_made_as_a_stream_can_be_streamed(client: AsyncOpenAI) -> None:
    made = await client.responses.create(model="practice", input="x", background=True)
    with pytest.raises(openai.BadRequestError, match="can be streamed"):
        await client.responses.retrieve(made.id, stream=True)
    with pytest.raises(openai.BadRequestError, match="in the background only"):
        await client.responses.create(model="practice", input="x", stream=True)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve("resp_none", stream=True)
    streamed = name_of(await taken(await begun(client), 1))
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
