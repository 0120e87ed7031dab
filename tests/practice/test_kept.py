"""What can be found again: stored completions by their metadata, and responses by their id."""

import asyncio
from typing import Any

from backstay.practice import answer_to
from tests.practice.visitor import CHAT, RESPONSES, Visitor, eventually, visiting


def response_body(**more: Any) -> dict[str, Any]:
    return {"model": "m", "input": "hello", **more}


async def begin(visitor: Visitor, **more: Any) -> Any:
    return (await visitor.post(RESPONSES, response_body(background=True, store=True, **more))).json


async def poll(visitor: Visitor, name: str) -> Any:
    return (await visitor.get(f"{RESPONSES}/{name}")).json


async def test_a_stored_completion_is_found_by_its_metadata() -> None:
    async with visiting() as visitor:
        made = await visitor.chat("x", store=True, metadata={"backstay_ref": "a", "run": "1"})
        await visitor.chat("y", store=True, metadata={"backstay_ref": "b", "run": "1"})
        await visitor.chat("z", metadata={"backstay_ref": "c"})  # not stored
        found = [(await visitor.get(CHAT, **{"metadata[backstay_ref]": ref})).json["data"] for ref in "abc"]
        both = await visitor.get(CHAT, **{"metadata[run]": "1", "metadata[backstay_ref]": "b"})
        every = await visitor.get(CHAT)
    assert [len(each) for each in found] == [1, 1, 0]
    assert found[0][0] == {**made.json, "metadata": {"backstay_ref": "a", "run": "1"}}
    assert len(both.json["data"]) == 1
    assert len(every.json["data"]) == 2


async def test_stored_completions_come_in_pages() -> None:
    async with visiting() as visitor:
        names = [(await visitor.chat(str(n), store=True, metadata={"k": "v"})).json["id"] for n in range(5)]
        query: dict[str, Any] = {"metadata[k]": "v", "limit": 2}
        seen: list[str] = []
        while True:
            listed = (await visitor.get(CHAT, **query)).json
            seen += [each["id"] for each in listed["data"]]
            if not listed["has_more"]:
                break
            query["after"] = listed["last_id"]
        newest = (await visitor.get(CHAT, order="desc", limit=1)).json
        wrong = await visitor.get(CHAT, limit=0)
    assert seen == names
    assert newest["first_id"] == names[-1]
    assert wrong.status == 400


async def test_a_stored_completion_can_stay_hidden_for_a_while() -> None:
    async with visiting(visible_after=3600) as visitor:
        await visitor.chat(store=True)
        assert (await visitor.get(CHAT)).json["data"] == []


async def test_a_stored_completion_can_be_read_and_deleted() -> None:
    async with visiting() as visitor:
        name = (await visitor.chat(store=True)).json["id"]
        assert (await visitor.get(f"{CHAT}/{name}")).json["id"] == name
        assert (await visitor.ask("DELETE", f"{CHAT}/{name}")).json["deleted"]
        assert (await visitor.get(f"{CHAT}/{name}")).status == 404


async def test_a_completion_whose_answer_was_lost_is_found_all_the_same() -> None:
    async with visiting(cut=1.0) as visitor:
        await asyncio.gather(
            *(visitor.chat(str(n), store=True, metadata={"backstay_ref": str(n)}) for n in range(20)),
            return_exceptions=True,
        )
        visitor.practice.change(cut=0)
        listed = (await visitor.get(CHAT, limit=100)).json["data"]
        bill = await visitor.bill()
    assert {each["metadata"]["backstay_ref"] for each in listed} == set(bill["by_ref"])
    assert 0 < bill["charged"] < 20


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


async def test_a_background_response_is_in_progress_in_between() -> None:
    seen = set()
    async with visiting(background_seconds=0.4) as visitor:
        started = await begin(visitor)
        while (status := (await poll(visitor, started["id"]))["status"]) != "completed":
            seen.add(status)
            await asyncio.sleep(0.01)
    assert seen == {"queued", "in_progress"}


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
