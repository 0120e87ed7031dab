"""Where an error goes: refused at once, in the batch's errors, or in its error file."""

import json
from typing import Any

import openai
import pytest

from tests.server.openai.openai_rig import CHAT, Desk, line, requests

ORDER = {"input_file_id": "file-1", "endpoint": CHAT, "completion_window": "24h"}


@pytest.mark.parametrize(
    ("change", "code", "param", "words"),
    [
        ({"endpoint": "/v1/chats"}, "invalid_value", "endpoint", "Supported values are: '/v1/responses', "),
        ({"completion_window": "soon"}, "invalid_value", "completion_window", "completion_window"),
        ({"completion_window": "0h"}, "invalid_value", "completion_window", "completion_window"),
        ({"completion_window": "31d"}, "invalid_value", "completion_window", "completion_window"),
        ({"metadata": {"tags": ["a"]}}, "invalid_type", "metadata.tags", "string"),
        ({"metadata": {"k": "v" * 513}}, "invalid_value", "metadata.k", "512"),
        ({"metadata": {str(n): "" for n in range(17)}}, "invalid_value", "metadata", "16"),
        ({"metadata": "text"}, "invalid_type", "metadata", "dictionary"),
        ({"input_file_id": None}, "invalid_type", "input_file_id", "string"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "invalid_value",
         "output_expires_after.seconds", "3600"),
    ],
)  # fmt: skip
async def test_what_the_order_itself_says_wrong_is_refused_at_once(
    sqlite_desk: Desk, change: dict[str, Any], code: str, param: str, words: str
) -> None:
    reply = await sqlite_desk.rig.ada.post("/v1/batches", json={**ORDER, **change})
    error = reply.json["error"]
    assert (reply.status, error["code"], error["param"]) == (400, code, param), error
    assert words in error["message"]
    assert error["type"] == "invalid_request_error"
    assert (await sqlite_desk.rig.ada.get("/v1/batches")).json["data"] == []


@pytest.mark.parametrize("missing", ORDER)
async def test_a_missing_field_is_named(sqlite_desk: Desk, missing: str) -> None:
    said = {name: value for name, value in ORDER.items() if name != missing}
    error = (await sqlite_desk.rig.ada.post("/v1/batches", json=said)).json["error"]
    assert (error["code"], error["param"]) == ("missing_required_parameter", missing)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"' + b"x" * 2_000_000, b"[" * 100_000, b"\xff"])
async def test_a_body_that_is_no_object_is_refused(sqlite_desk: Desk, body: bytes) -> None:
    reply = await sqlite_desk.rig.ada.post("/v1/batches", data=body)
    assert reply.status in (400, 413), reply


@pytest.mark.parametrize("path", ["/v1/batches/batch%2F..%2Fx%25", "/v1/files/%00", "/v1/files/%F0%9F%92%A9/content"])
async def test_strange_ids_are_not_found(desk: Desk, path: str) -> None:
    reply = await desk.rig.ada.get(path)
    assert reply.status == 404, reply
    assert set(reply.json["error"]) == {"message", "type", "param", "code"}


def _without(key: str) -> str:
    return json.dumps({name: value for name, value in json.loads(line("without")).items() if name != key})


@pytest.mark.parametrize(
    ("bad", "code", "param"),
    [
        ("{oops", "invalid_json_line", None),
        ("[]", "invalid_json_line", None),
        (_without("custom_id"), "missing_required_parameter", "custom_id"),
        (_without("method"), "missing_required_parameter", "method"),
        (_without("url"), "missing_required_parameter", "url"),
        (_without("body"), "missing_required_parameter", "body"),
        (line("x", url="/v1/embeddings", input="text"), "invalid_url", "url"),
        (line("x", url="http://elsewhere/v1/chat/completions"), "invalid_url", "url"),
        (line("x", stream=True), "streaming_unsupported", "body.stream"),
        (line("x", background=True), "background_unsupported", "body.background"),
        (line("x", model=None), "invalid_request", "body.model"),
        (line("x", messages=None), "invalid_request", "body.messages"),
        (line("first"), "duplicate_custom_id", "custom_id"),
        (line("x").replace("POST", "GET"), "invalid_method", "method"),
    ],
)
async def test_a_bad_line_fails_the_whole_batch_and_is_named(
    sqlite_desk: Desk, bad: str, code: str, param: str | None
) -> None:
    failed = await sqlite_desk.done("\n".join([line("first"), "", bad, line("last")]).encode())
    assert failed.status == "failed"
    assert failed.failed_at is not None
    assert failed.errors is not None
    assert failed.errors.data is not None
    [error] = failed.errors.data
    assert (error.code, error.line, error.param) == (code, 3, param), error


async def test_all_that_is_wrong_is_told_together_up_to_a_hundred(desk: Desk) -> None:
    content = "\n".join([line("good"), *["{"] * 150, line("x", url="/v1/embeddings", input="y")])
    failed = await desk.done(content.encode())
    assert failed.errors is not None
    assert failed.errors.data is not None
    errors = failed.errors.data
    assert [error.line for error in errors[:-1]] == list(range(2, 102))
    assert (errors[-1].code, errors[-1].line) == ("too_many_errors", None)
    assert "51 more" in (errors[-1].message or "")


async def test_a_missing_file_fails_the_batch_and_is_no_refusal(desk: Desk) -> None:
    batch = await desk.client().batches.create(input_file_id="file-gone", endpoint=CHAT, completion_window="24h")
    failed = await desk.until(batch)
    assert failed.errors is not None
    assert failed.errors.data is not None
    [error] = failed.errors.data
    assert error.model_dump() == {
        "code": "invalid_request", "line": None, "message": "Cannot find file file-gone.", "param": "file_id"
    }  # fmt: skip


async def test_a_file_for_something_else_fails_the_batch(sqlite_desk: Desk) -> None:
    file = await sqlite_desk.client().files.create(file=requests(1), purpose="user_data")
    batch = await sqlite_desk.client().batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    failed = await sqlite_desk.until(batch)
    assert failed.errors is not None
    assert failed.errors.data is not None
    assert failed.errors.data[0].param == "file_id"


async def test_a_key_is_needed_and_must_be_right(sqlite_desk: Desk) -> None:
    for key in (None, "sk-something", "bks_" + "0" * 12 + "_" + "A" * 43):
        reply = await sqlite_desk.rig.holder(key).get("/v1/batches")
        assert reply.status == 401
        assert reply.json["error"]["type"] == "authentication_error"
        assert reply.headers["x-request-id"].startswith("req_")
    with pytest.raises(openai.AuthenticationError):
        await openai.AsyncOpenAI(base_url=f"{sqlite_desk.rig.url}/v1", api_key="wrong").batches.list()
