"""BackstayModel with the real Pydantic AI: requests of agents that run together are gathered, and paid once."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.test import TestModel

from backstay.adapters import BackstayModel, CallFailed
from backstay.core.errors import UsageError
from tests.adapters.conftest import AdapterSite

pytestmark = pytest.mark.slow


class Review(BaseModel):
    mood: str
    stars: int


async def test_agents_that_run_together_are_answered_and_paid_once(site: AdapterSite) -> None:
    agent = Agent(BackstayModel(**site.chat()), instructions="Be brief.")
    texts = [f"Say {n}" for n in range(20)]
    for _ in range(2):
        ran = await asyncio.gather(*(agent.run(text) for text in texts))
        assert [each.output.split(" ", 2)[2] for each in ran] == texts
    assert site.paid == 20
    assert ran[0].usage.input_tokens > 0


def test_it_works_without_an_event_loop_and_in_several(site: AdapterSite) -> None:
    agent = Agent(BackstayModel(**site.chat()))
    assert agent.run_sync("Hi").output.endswith("Hi")
    assert asyncio.run(agent.run("Again")).output.endswith("Again")


def test_answers_have_types_and_tools_are_called(site: AdapterSite) -> None:
    asked: list[str] = []
    agent = Agent(BackstayModel(**site.chat()), output_type=Review)

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather in a city."""
        asked.append(city)
        return "rain"

    assert isinstance(agent.run_sync("Rate it.").output, Review)
    assert len(asked) == 1
    assert site.paid == 2
    assert isinstance(agent.run_sync("Rate it.").output, Review)
    assert site.paid == 2
    native = Agent(BackstayModel(**site.chat()), output_type=NativeOutput(Review))
    assert isinstance(native.run_sync("Rate it.").output, Review)


async def test_one_request_that_fails_leaves_the_others_alone(site: AdapterSite) -> None:
    agent = Agent(BackstayModel(**site.chat(check=lambda text: "bad" not in text, reasks=0)))
    texts = ("good", "bad", "fine")
    ran: list[Any] = await asyncio.gather(*(agent.run(text) for text in texts), return_exceptions=True)
    assert [isinstance(each, Exception) for each in ran] == [False, True, False]
    assert isinstance(ran[1], ModelAPIError)
    assert isinstance(ran[1].__cause__, CallFailed)
    assert ran[1].__cause__.kind == "invalid"
    backed = Agent(FallbackModel(BackstayModel(**site.chat(check=lambda _: False, reasks=0)), TestModel()))
    assert (await backed.run("bad")).output == "success (no tool calls)"


def test_a_budget_is_for_all_requests_of_the_model(site: AdapterSite) -> None:
    site.practice.change(answer_tokens=100)
    agent = Agent(BackstayModel(**site.chat(budget=0.00015, max_tokens=100)))
    agent.run_sync("one")
    agent.run_sync("two")
    with pytest.raises(ModelAPIError, match="budget"):
        agent.run_sync("three")
    assert site.paid == 2
    assert site.practice.bill.total.cost_micros <= 150
    agent.run_sync("one")


async def test_a_stream_is_refused_with_what_to_do(site: AdapterSite) -> None:
    with pytest.raises(UsageError, match="cannot be streamed") as refused:
        async with Agent(BackstayModel(**site.chat())).run_stream("Hi"):
            pass
    assert "agent.run" in refused.value.hint
    assert site.paid == 0


def test_options_are_those_of_map_and_misspelt_ones_are_found(site: AdapterSite) -> None:
    with pytest.raises(UsageError, match="no option 'conurrency'"):
        BackstayModel(**site.chat(conurrency=5))
    with pytest.raises(UsageError, match="needs a model"):
        BackstayModel(budget=5)
