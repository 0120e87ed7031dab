"""What the practice provider answers: always the same to the same request, in OpenAI's form."""

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
@pytest.mark.parametrize("bound", [1, 7, 30, 200])
async def test_an_answer_keeps_to_the_tokens_that_were_allowed(said: str, bound: int) -> None:
    async with visiting(answer_tokens=None) as visitor:
        answers = [await visitor.chat(said, max_tokens=bound), await visitor.chat(said, max_completion_tokens=bound)]
        response = await visitor.post(RESPONSES, {"model": "m", "input": said, "max_output_tokens": bound})
    for answer in answers:
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


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000])
async def test_a_body_that_is_no_json_object_is_refused(raw: bytes) -> None:
    async with visiting() as visitor:
        assert (await visitor.ask("POST", CHAT, data=raw)).status == 400


async def test_an_unknown_path_is_not_found() -> None:
    async with visiting() as visitor:
        answer = await visitor.post("/v1/images/generations", {"model": "m"})
    assert answer.status == 404
    assert answer.error["code"] == "unknown_url"
