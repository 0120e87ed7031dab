"""What the practice provider answers: always the same to the same request, in OpenAI's form; and what it stores."""

import asyncio
import base64
import struct
from typing import Any

import pytest

from backstay.practice import answer_to
from tests.practice.visitor import CHAT, EMBEDDINGS, RESPONSES, chat_body, visiting


async def test_an_answer_belongs_to_its_request_and_to_no_other() -> None:
    async with visiting() as visitor:
        answers = [(await visitor.chat(said)).text for said in ("one", "two", "one")]
    assert answers[0] == answers[2] == answer_to(CHAT, chat_body("one"))
    assert answers[1] != answers[0]


async def test_a_chat_answer_has_the_form_that_clients_know() -> None:
    async with visiting() as visitor:
        answer = await visitor.chat("héllo 😀 \ud800", model="gpt-x")
    value = answer.json
    assert answer.status == 200
    assert answer.headers["x-request-id"].startswith("req_")
    assert value["object"] == "chat.completion"
    assert value["model"] == "gpt-x"
    assert value["choices"][0]["finish_reason"] == "stop"
    usage = value["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@pytest.mark.parametrize("said", ["word " * 400, "schön " * 400, "語" * 900, "😀" * 500])
async def test_an_answer_keeps_to_the_tokens_that_were_allowed(said: str) -> None:
    async with visiting() as visitor:
        for bound in (1, 7, 30, 200):
            chats = [
                await visitor.chat(said, max_tokens=bound),
                await visitor.chat(said, max_completion_tokens=bound),
            ]
            response = await visitor.post(RESPONSES, {"model": "m", "input": said, "max_output_tokens": bound})
            for answer in chats:
                assert 1 <= answer.json["usage"]["completion_tokens"] <= bound
                assert answer.json["choices"][0]["finish_reason"] == ("stop" if bound >= 7 else "length")
                assert answer.text == answer_to(CHAT, chat_body(said, max_tokens=bound))
            assert response.json["usage"]["output_tokens"] <= bound
            assert response.json["status"] == ("completed" if bound >= 7 else "incomplete")


async def test_tokens_are_never_more_than_the_bytes_of_the_body() -> None:
    async with visiting() as visitor:
        for said in ("", "a", "語" * 50, "x" * 4_000):
            answer = await visitor.chat(said)
            assert answer.json["usage"]["prompt_tokens"] <= len(repr(chat_body(said)).encode())


async def test_the_length_of_answers_can_be_set() -> None:
    async with visiting(answer_tokens=300) as visitor:
        free, bound = await visitor.chat(), await visitor.chat(max_tokens=100)
    assert free.json["usage"]["completion_tokens"] == 300
    assert bound.json["usage"]["completion_tokens"] == 100
    assert bound.json["choices"][0]["finish_reason"] == "length"


async def test_every_choice_is_paid_for() -> None:
    async with visiting() as visitor:
        one, three = await visitor.chat(), await visitor.chat(n=3)
    assert len(three.json["choices"]) == 3
    assert three.json["usage"]["completion_tokens"] == 3 * one.json["usage"]["completion_tokens"]


async def test_embeddings_depend_on_the_text_and_come_in_both_encodings() -> None:
    async with visiting() as visitor:
        plain = await visitor.post(EMBEDDINGS, {"model": "e", "input": ["a", "b"], "dimensions": 5})
        body = {"model": "e", "input": "b", "dimensions": 5, "encoding_format": "base64"}
        packed = await visitor.post(EMBEDDINGS, body)
    first, second = (each["embedding"] for each in plain.json["data"])
    assert first != second
    assert second == answer_to(EMBEDDINGS, body)
    raw = base64.b64decode(packed.json["data"][0]["embedding"])
    assert struct.unpack("<5f", raw) == pytest.approx(second, abs=1e-6)


async def test_completions_answer_every_prompt() -> None:
    body = {"model": "m", "prompt": ["a", "b"]}
    async with visiting() as visitor:
        answer = await visitor.post("/v1/completions", body)
    assert [choice["index"] for choice in answer.json["choices"]] == [0, 1]
    assert answer.json["choices"][0]["text"] == answer_to("/v1/completions", body)


async def test_moderations_are_free() -> None:
    async with visiting() as visitor:
        answer = await visitor.post("/v1/moderations", {"input": ["a", "b"]})
        bill = await visitor.bill()
    assert [result["flagged"] for result in answer.json["results"]] == [False, False]
    assert (bill["calls"], bill["charged"]) == (1, 0)


async def test_models_are_listed() -> None:
    async with visiting() as visitor:
        listed = (await visitor.get("/v1/models")).json["data"]
        shown = await visitor.get("/v1/models/gpt-x")
        missing = await visitor.get("/v1/models/practice-404")
    assert "practice" in {model["id"] for model in listed}
    assert shown.json["id"] == "gpt-x"
    assert missing.status == 404


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [{"role": "user", "content": "x"}]}, "model"),
        ({"model": 3, "messages": [{"role": "user", "content": "x"}]}, "model"),
        ({"model": "m"}, "messages"),
        ({"model": "m", "messages": []}, "messages"),
        ({"model": "m", "messages": "x"}, "messages"),
        ({"model": "m", "messages": ["x"]}, "messages"),
        (chat_body(max_tokens=0), "max_tokens"),
        (chat_body(max_tokens="9"), "max_tokens"),
        (chat_body(n=0), "n"),
        (chat_body(stream=True), "stream"),
        (chat_body(metadata={"a": 1}), "metadata.a"),
        (chat_body(metadata={"a": "x" * 513}), "metadata.a"),
    ],
)
async def test_a_wrong_body_is_refused_by_name_and_not_charged(body: Any, param: str) -> None:
    async with visiting() as visitor:
        answer = await visitor.post(CHAT, body)
        bill = await visitor.bill()
    assert answer.status == 400
    assert answer.error["param"] == param
    assert answer.error.keys() == {"message", "type", "param", "code"}
    assert bill["charged"] == 0


async def test_a_body_that_is_not_a_json_object_is_refused() -> None:
    async with visiting() as visitor:
        for raw in (b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000):
            assert (await visitor.ask("POST", CHAT, data=raw)).status == 400, raw[:10]


async def test_an_unknown_path_is_not_found() -> None:
    async with visiting() as visitor:
        answer = await visitor.post("/v1/images/generations", {"model": "m"})
    assert answer.status == 404
    assert answer.error["code"] == "unknown_url"


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
