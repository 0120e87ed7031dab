"""Batches that are refused at once, and those that one wrong line fails as a whole."""

import json
from typing import Any

import pytest

from tests.practice.batches import begin, create, ended, read, run
from tests.practice.visitor import CHAT, batch_lines, chat_body, visiting

# refused at once


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"endpoint": "/v1/nothing"}, "endpoint"),
        ({"endpoint": None}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"input_file_id": None}, "input_file_id"),
        ({"metadata": {"tags": ["a"]}}, "metadata.tags"),
        ({"metadata": "x"}, "metadata"),
    ],
)
async def test_a_wrong_order_is_refused_at_once_and_there_is_no_batch(more: dict[str, Any], param: str) -> None:
    async with visiting() as visitor:
        answer = await create(visitor, "file-x", **more)
        listed = await visitor.get("/v1/batches")
    assert answer.status == 400
    assert answer.error["param"] == param
    assert listed.json["data"] == []


# the whole batch fails


def line(**changes: Any) -> bytes:
    whole = {"custom_id": "b", "method": "POST", "url": CHAT, "body": chat_body(), **changes}
    return json.dumps({name: value for name, value in whole.items() if value is not None}).encode() + b"\n"


FIRST = line(custom_id="a")


@pytest.mark.parametrize(
    ("second", "code", "param"),
    [
        (b"{not json\n", "invalid_json_line", None),
        (b"[]\n", "invalid_json_line", None),
        (line(custom_id=None), "missing_required_parameter", "custom_id"),
        (line(method=None), "missing_required_parameter", "method"),
        (line(url=None), "missing_required_parameter", "url"),
        (line(body=None), "missing_required_parameter", "body"),
        (line(url="/v1/embeddings"), "invalid_url", "url"),
        (line(method="GET"), "invalid_method", "method"),
        (line(custom_id="a"), "duplicate_custom_id", "custom_id"),
        (line(body=chat_body(stream=True)), "streaming_unsupported", "body.stream"),
        (line(body=chat_body(model="practice-404")), "model_not_found", "body.model"),
        (line(body={"messages": [{"role": "user", "content": "x"}]}), "invalid_request", "body.model"),
        (line(body={"model": "m"}), "invalid_request", "body.messages"),
        (line(body=chat_body(model="other")), "mismatched_model", "body.model"),
    ],
)
async def test_one_wrong_line_fails_the_batch_with_its_number(second: bytes, code: str, param: str | None) -> None:
    async with visiting(batch_seconds=0.0) as visitor:
        batch = await run(visitor, FIRST + b"\n" + second)
        bill = await visitor.bill()
    assert batch["status"] == "failed"
    (wrong,) = batch["errors"]["data"]
    assert (wrong["code"], wrong["line"], wrong["param"]) == (code, 3, param)
    assert (batch["output_file_id"], batch["error_file_id"], bill["charged"]) == (None, None, 0)


async def test_all_mistakes_are_told_together_up_to_a_hundred() -> None:
    lines = FIRST + b"".join(line(url="/v1/x", custom_id=str(number)) for number in range(250))
    async with visiting(batch_seconds=0.0) as visitor:
        batch = await run(visitor, lines)
    told = batch["errors"]["data"]
    assert len(told) == 100
    assert "151 more" in told[-1]["message"]


async def test_a_missing_file_fails_the_batch() -> None:
    async with visiting(batch_seconds=0.0) as visitor:
        batch = await ended(visitor, (await create(visitor, "file-none")).json)
    (wrong,) = batch["errors"]["data"]
    assert (wrong["code"], wrong["line"], wrong["param"]) == ("invalid_request", None, "file_id")


async def test_blank_lines_carriage_returns_a_mark_and_a_missing_end_are_fine() -> None:
    lines = b"\xef\xbb\xbf" + FIRST.strip() + b"\r\n\r\n  \n" + line(custom_id="c").strip()
    async with visiting(batch_seconds=0.0) as visitor:
        batch = await run(visitor, lines)
        output = await read(visitor, batch["output_file_id"])
    assert set(output) == {"a", "c"}


async def test_too_many_waiting_tokens_fail_the_batch_until_there_is_room() -> None:
    lines = batch_lines(chat_body("x" * 400))
    async with visiting(batch_seconds=0.5, batch_enqueued_tokens=150) as visitor:
        first = await begin(visitor, lines)
        second = await run(visitor, lines)
        await ended(visitor, first)
        third = await run(visitor, lines)
    assert (first["status"], second["status"], third["status"]) == ("completed", "failed", "completed")
    assert second["errors"]["data"][0]["code"] == "token_limit_exceeded"
