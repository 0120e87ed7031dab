"""OpenAI's own client with responses in the background: the practice provider serves them, and the service does not."""

import asyncio

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from backstay.clock import Clock
from backstay.practice import Faults, Practice

WAIT_SECONDS = 20


class Later(Clock):
    """A clock that is moved; the timers run on."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def client_of(base_url: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, _strict_response_validation=True)


async def begun(client: AsyncOpenAI) -> Response:
    return await client.responses.create(
        model="practice", input="Say hello", background=True, store=True, metadata={"kind": "background"}
    )


async def test_a_response_is_queued_and_then_in_progress() -> None:
    clock = Later()
    async with (
        Practice(Faults(background_seconds=100), clock=clock).serving() as base_url,
        client_of(base_url) as client,
    ):
        made = await begun(client)
        assert (made.status, made.output, made.background) == ("queued", [], True)
        assert (await client.responses.retrieve(made.id)).status == "queued"
        clock.ahead = 50.0
        assert (await client.responses.retrieve(made.id)).status == "in_progress"


async def test_a_response_is_completed_and_can_be_deleted() -> None:
    async with Practice(Faults(background_seconds=0)).serving() as base_url, client_of(base_url) as client:
        made = await begun(client)
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


async def test_a_response_may_be_cancelled_twice_and_is_not_paid_for() -> None:
    practice = Practice(Faults(background_seconds=30))
    async with practice.serving() as base_url, client_of(base_url) as client:
        made = await begun(client)
        for _ in range(2):
            cancelled = await client.responses.cancel(made.id)
            assert (cancelled.id, cancelled.status, cancelled.output) == (made.id, "cancelled", [])
        assert (await client.responses.retrieve(made.id)).status == "cancelled"
        assert practice.bill.charged == 0


async def test_one_that_is_done_stays_done_when_it_is_cancelled() -> None:
    practice = Practice(Faults(background_seconds=0))
    async with practice.serving() as base_url, client_of(base_url) as client:
        made = await begun(client)
        async with asyncio.timeout(WAIT_SECONDS):
            while made.status != "completed":
                await asyncio.sleep(0.01)
                made = await client.responses.retrieve(made.id)
        assert (await client.responses.cancel(made.id)).status == "completed"
