"""BackstayChat with the real LangChain: a batch is one run, one bad input fails alone, nothing is paid twice."""

import asyncio
import json
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from pydantic import BaseModel, Field

from backstay.adapters import BackstayChat, CallFailed
from backstay.core.errors import BackstayError, RequestsRefused, UsageError
from backstay.core.ids import job_of, read_item
from tests.adapters.conftest import AdapterSite
from tests.cli.practice_thread import served

pytestmark = pytest.mark.slow


class Review(BaseModel):
    """A review."""

    mood: str
    stars: int = Field(ge=0)


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


def said(messages: list[AIMessage]) -> list[str]:
    """What the practice provider echoes."""
    return [message.text.split(" ", 2)[2] for message in messages]


def runs(messages: list[AIMessage]) -> int:
    """How many jobs have answered these."""
    return len({job_of(read_item(message.response_metadata["backstay"]["item"])) for message in messages})


def test_a_call_is_a_message_with_its_tokens_and_its_cost(site: AdapterSite) -> None:
    chat = BackstayChat(**site.chat(system="Be brief."))
    message = chat.invoke([SystemMessage("Answer."), HumanMessage("Hi")])
    assert message.text.endswith("Hi")
    assert message.usage_metadata is not None
    assert message.usage_metadata["output_tokens"] > 0
    assert message.response_metadata["finish_reason"] == "stop"
    assert message.response_metadata["backstay"]["cost"] > 0
    again = chat.invoke([SystemMessage("Answer."), HumanMessage("Hi")])
    assert again.text == message.text
    assert again.id != message.id
    assert site.paid == 1
    BackstayChat(**site.chat(system="Be brief.", new=True)).invoke([SystemMessage("Answer."), HumanMessage("Hi")])
    assert site.paid == 2


def test_a_batch_is_one_run_in_the_order_of_its_inputs(site: AdapterSite) -> None:
    chat = BackstayChat(**site.chat())
    texts: list[Any] = [f"Say {n}" for n in range(30)]
    messages = [*chat.batch(texts), *BackstayChat(**site.chat()).batch(texts)]
    assert said(messages) == texts * 2
    assert (site.paid, runs(messages)) == (30, 1)
    assert chat.batch([]) == []


def test_a_batch_of_a_chain_is_one_run(site: AdapterSite) -> None:
    asked = ChatPromptTemplate.from_template("Classify {text}") | BackstayChat(**site.chat())
    inputs = [{"text": f"t{n}"} for n in range(5)]
    messages = [*asked.batch(inputs), *asyncio.run(asked.abatch(inputs))]
    assert [message.text.split()[-1] for message in messages] == [f"t{n}" for n in range(5)] * 2
    assert (site.paid, runs(messages)) == (5, 1)
    assert [text.split()[-1] for text in (asked | StrOutputParser()).batch(inputs[:2])] == ["t0", "t1"]


def test_one_bad_input_fails_alone(site: AdapterSite) -> None:
    chat = BackstayChat(**site.chat(check=lambda text: "broken" not in text, reasks=0))
    inputs: list[Any] = ["good", [], "broken", 5, "fine"]
    made: list[Any] = chat.batch(inputs, return_exceptions=True)
    assert said([made[0], made[4]]) == ["good", "fine"]
    assert isinstance(made[1], BackstayError)
    assert isinstance(made[2], CallFailed)
    assert (made[2].kind, made[2].retryable) == ("invalid", True)
    assert isinstance(made[3], ValueError)
    with pytest.raises(BackstayError):
        chat.batch(inputs[:2])
    assert site.paid == 3


def test_what_failed_is_sent_again_by_the_next_call(site: AdapterSite) -> None:
    chat = BackstayChat(**site.chat(extra={"metadata": {"practice_fault": "400x2"}}))
    with pytest.raises(CallFailed, match="GW_4XX") as failed:
        chat.invoke("once")
    assert pickle.loads(pickle.dumps(failed.value)).kind == "GW_4XX"
    assert chat.invoke("once").text.endswith("once")


def test_a_budget_is_for_all_calls_of_the_model(site: AdapterSite) -> None:
    site.practice.change(answer_tokens=100)
    chat = BackstayChat(**site.chat(budget=0.0008, max_tokens=100, concurrency=2))
    first: list[Any] = chat.batch([f"row {n}" for n in range(10)], return_exceptions=True)
    assert not [each for each in first if isinstance(each, Exception)]
    more: list[Any] = chat.batch([f"more {n}" for n in range(10)], return_exceptions=True)
    refused = [each.kind for each in more if isinstance(each, CallFailed)]
    assert 0 < len(refused) < 10
    assert set(refused) == {"budget"}
    with pytest.raises(CallFailed, match="budget"):
        chat.invoke("one more")
    assert chat.batch(["row 1"])[0].response_metadata["backstay"]["reused"]
    assert site.practice.bill.total.cost_micros <= 800


def test_answers_come_as_they_are_ready_and_the_model_can_be_used_meanwhile(site: AdapterSite) -> None:
    chat = BackstayChat(**site.chat(budget=5, max_tokens=50))
    came: dict[int, str] = {}
    for at, message in chat.batch_as_completed([f"n{n}" for n in range(10)]):
        assert isinstance(message, AIMessage)
        came[at] = message.text
        if len(came) == 1:
            assert chat.invoke("in between").text.endswith("in between")
    assert sorted(came) == list(range(10))
    assert all(text.endswith(f"n{at}") for at, text in came.items())


async def test_calls_that_arrive_together_are_one_run(site: AdapterSite) -> None:
    chat = BackstayChat(**site.chat())
    messages = await asyncio.gather(*(chat.ainvoke(f"q{n}") for n in range(20)))
    assert said(list(messages)) == [f"q{n}" for n in range(20)]
    assert {at async for at, _ in chat.abatch_as_completed(["q1", "new"])} == {0, 1}
    assert site.paid == 21
    assert runs(list(messages)) <= 3


def test_calls_from_threads_are_gathered(site: AdapterSite) -> None:
    chat = BackstayChat(**site.chat())
    found: dict[int, str] = {}

    def ask(number: int) -> None:
        found[number] = chat.invoke(f"t{number}").text

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number].split()[-1] for number in range(6)] == [f"t{number}" for number in range(6)]


async def test_a_request_that_cannot_be_written_fails_alone_and_at_once(site: AdapterSite) -> None:
    chat = BackstayChat(**site.chat())
    endless: dict[str, Any] = {}
    endless["itself"] = endless
    calls = (chat.ainvoke("good"), chat.ainvoke("bad", metadata=endless), chat.ainvoke("fine"))
    made: Any = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(each, Exception) for each in made] == [False, True, False]
    assert said([made[0], made[2]]) == ["good", "fine"]


async def test_a_call_that_is_cancelled_stops_its_run(site: AdapterSite) -> None:
    site.practice.change(latency=0.2)
    chat = BackstayChat(**site.chat(concurrency=1))
    many = asyncio.create_task(chat.abatch([f"c{n}" for n in range(50)]))
    while site.paid < 2:
        assert not (await asyncio.wait((many,), timeout=0.02))[0]
    many.cancel()
    with pytest.raises(asyncio.CancelledError):
        await many
    site.practice.change(latency=0.0)
    assert len(await chat.abatch([f"c{n}" for n in range(50)])) == 50
    assert (site.paid, site.practice.bill.paid_twice) == (50, [])


def test_structured_output_is_checked_and_asked_again(site: AdapterSite) -> None:
    chat = BackstayChat(**site.chat(extra={"metadata": {"practice_fault": "invalid-once"}}))
    reviews = chat.with_structured_output(Review).batch(["good", "bad"])
    assert [type(review) for review in reviews] == [Review, Review]
    assert site.paid == 4
    raw = chat.with_structured_output(Review.model_json_schema(), include_raw=True).invoke("so so")
    assert raw["parsing_error"] is None
    assert isinstance(raw["parsed"]["stars"], int)


def test_an_answer_that_never_fits_is_an_error_or_the_raw_message(site: AdapterSite) -> None:
    chat = BackstayChat(**site.chat(reasks=0, extra={"metadata": {"practice_fault": "invalid"}}))
    with pytest.raises(CallFailed, match="invalid"):
        chat.with_structured_output(Review).invoke("good")
    raw = chat.with_structured_output(Review, include_raw=True).invoke("good")
    assert isinstance(raw["raw"], AIMessage)
    assert raw["parsed"] is None
    assert raw["parsing_error"] is not None


def test_tools_are_offered_and_called(site: AdapterSite) -> None:
    chat = BackstayChat(**site.chat())
    assert chat.bind_tools([weather]).invoke("Hi").tool_calls == []
    called = chat.bind_tools([weather], tool_choice="weather").invoke("Rain?")
    [call] = called.tool_calls
    assert call["name"] == "weather"
    assert isinstance(call["args"]["city"], str)
    result = weather.invoke(call)
    assert isinstance(result, ToolMessage)
    assert chat.invoke([HumanMessage("Rain?"), called, result]).text.endswith(f"rain in {call['args']['city']}")
    by_tool = chat.with_structured_output(Review, method="function_calling").batch(["a", "b"])
    assert [type(each) for each in by_tool] == [Review, Review]
    with pytest.raises(UsageError, match="not a tool"):
        chat.bind_tools([weather], tool_choice="wether")


def test_callbacks_and_settings_of_one_call_work_as_ever(site: AdapterSite) -> None:
    counted = UsageMetadataCallbackHandler()
    chat = BackstayChat(**site.chat(tags=["mine"]))
    chat.batch(["a", "b"], {"callbacks": [counted], "max_concurrency": 1})
    assert counted.usage_metadata["gpt-4o-mini"]["input_tokens"] > 0
    assert chat.bind(max_tokens=3).invoke("one two three four five").response_metadata["finish_reason"] == "length"
    assert "".join(chunk.text for chunk in chat.stream("Hi")).endswith("Hi")


def test_options_are_those_of_map_and_misspelt_ones_are_found(site: AdapterSite) -> None:
    with pytest.raises(UsageError, match="no option 'buget'") as refused:
        BackstayChat(**site.chat(buget=5))
    assert "budget" in refused.value.hint
    with pytest.raises(UsageError, match="lane is an option of BackstayChat"):
        BackstayChat(**site.chat()).invoke("Hi", lane="batch")


def test_a_wrong_key_is_the_error_of_every_input(clean_folder: Path) -> None:
    with served(key="sk-right") as (practice, base_url):
        chat = BackstayChat(model="gpt-4o-mini", base_url=base_url, db=clean_folder / "w.db", progress=False)
        made: list[Any] = chat.batch([f"{n}" for n in range(20)], return_exceptions=True)
        assert {type(each) for each in made} == {RequestsRefused}
        with pytest.raises(RequestsRefused):
            chat.batch(["1", "2"])
        assert practice.bill.charged == 0


def test_a_copy_of_the_model_works(site: AdapterSite) -> None:
    chat = BackstayChat(**site.chat())
    assert (
        chat.invoke("Hi").text
        == pickle.loads(pickle.dumps(chat)).invoke("Hi").text
        == chat.model_copy().invoke("Hi").text
    )
    assert json.dumps(chat.asdict())
    assert site.paid == 1


def test_the_same_requests_through_anthropic_have_tools_and_schemas(
    site: AdapterSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-practice")
    base_url = str(site.options["base_url"]).removesuffix("/v1")
    options = site.chat(model="claude-sonnet-4-5", provider="anthropic", base_url=base_url, max_tokens=500)
    chat = BackstayChat(**options)
    assert chat.with_structured_output(Review).invoke("good").mood
    [call] = chat.bind_tools([weather], tool_choice="any").invoke("Rain?").tool_calls
    assert call["name"] == "weather"
