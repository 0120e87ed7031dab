"""Batches: their life, their two files, what they cost, lines that fail, and those that are refused."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from backstay.practice import Faults, Practice, answer_to
from tests.practice.visitor import (
    BATCHES,
    CHAT,
    EMBEDDINGS,
    Answer,
    HeldClock,
    batch_lines,
    begin_batch,
    chat_body,
    create_batch,
    eventually,
    read_results,
    run_batch,
    visiting,
    wait_for_batch,
)

PHASES = (
    "created",
    "in_progress",
    "finalizing",
    "completed",
    "failed",
    "expires",
    "expired",
    "cancelling",
    "cancelled",
)
FIELDS = {f"{phase}_at" for phase in PHASES} | {
    "id",
    "object",
    "endpoint",
    "model",
    "errors",
    "input_file_id",
    "completion_window",
    "status",
    "output_file_id",
    "error_file_id",
    "request_counts",
    "usage",
    "metadata",
}


async def insist(ask: Callable[[], Awaitable[Answer]]) -> Any:
    while (answer := await ask()).status != 200:
        assert answer.status >= 500
    return answer.json


async def test_a_batch_answers_every_line_in_its_output_file() -> None:
    bodies = [chat_body(f"question {number}") for number in range(60)]
    async with visiting(batch_seconds=0.1) as visitor:
        batch = await run_batch(visitor, batch_lines(*bodies), metadata={"run": "7"})
        output = await read_results(visitor, batch["output_file_id"])
    assert (batch["status"], batch["error_file_id"], batch["model"]) == ("completed", None, "m")
    assert batch["request_counts"] == {"total": 60, "completed": 60, "failed": 0}
    assert batch["metadata"] == {"run": "7"}
    assert set(output) == {f"r{number}" for number in range(60)}
    assert list(output) != sorted(output, key=lambda name: int(name[1:])), "the order is not the input's"
    for number, body in enumerate(bodies):
        response = output[f"r{number}"]["response"]
        assert response["status_code"] == 200
        assert response["body"]["choices"][0]["message"]["content"] == answer_to(CHAT, body)


async def test_a_batch_shows_every_field_at_every_time() -> None:
    clock = HeldClock()
    async with visiting(Practice(Faults(batch_seconds=10), clock=clock)) as visitor:
        batch = await begin_batch(visitor, batch_lines(chat_body()))
        assert batch["request_counts"]["total"] == 0
        assert batch["expires_at"] == batch["created_at"] + 86_400
        for status in ("validating", "in_progress", "finalizing", "completed"):
            await wait_for_batch(visitor, batch, status)
            assert batch.keys() == FIELDS
            assert (batch["output_file_id"] is None) == (status != "completed")
            clock.wake()


async def test_a_batch_costs_half_and_its_lines_are_on_the_bill() -> None:
    async with visiting(batch_seconds=0.0, answer_tokens=1_000) as visitor:
        direct = await visitor.chat("x")
        full = (await visitor.bill())["cost_micros"]
        await visitor.post("/bill/reset")
        batch = await run_batch(visitor, batch_lines(chat_body("x"), chat_body("y", metadata={"backstay_ref": "mine"})))
        bill = await visitor.bill()
    assert direct.status == 200
    assert (bill["calls"], bill["charged"]) == (2, 2)
    assert "mine" in bill["by_ref"]
    assert bill["cost_micros"] == 2 * -(-full // 2)
    assert batch["usage"]["total_tokens"] == bill["input_tokens"] + bill["output_tokens"]


async def test_a_line_paid_for_in_a_batch_and_directly_is_noticed() -> None:
    async with visiting(batch_seconds=0.0) as visitor:
        await run_batch(visitor, batch_lines(chat_body("x")))
        await visitor.chat("x")
        bill = await visitor.bill()
    assert len(bill["paid_twice"]) == len(bill["bodies_paid_twice"]) == 1


# one line fails


async def test_lines_that_fail_are_in_the_error_file_and_not_charged() -> None:
    bodies = [chat_body(f"question {number}") for number in range(60)]
    async with visiting(batch_seconds=0.0, fail=0.3) as visitor:
        # Uploading and ordering have luck of their own, and need patience.
        file = await insist(lambda: visitor.upload(batch_lines(*bodies)))
        batch = await insist(lambda: create_batch(visitor, file["id"]))
        await eventually(lambda: visitor.practice.counts.calls == 60)
        visitor.practice.change(fail=0)
        await wait_for_batch(visitor, batch)
        output, errors = (
            await read_results(visitor, batch["output_file_id"]),
            await read_results(visitor, batch["error_file_id"]),
        )
        bill = await visitor.bill()
    assert batch["status"] == "completed"
    assert len(output) + len(errors) == 60
    assert not output.keys() & errors.keys()
    assert len(errors) == batch["request_counts"]["failed"] > 0
    assert bill["charged"] == len(output)
    one = next(iter(errors.values()))
    assert (one["error"], one["response"]["body"]["error"]["type"]) == (None, "server_error")
    assert one["response"]["status_code"] in (500, 502, 503)


async def test_a_batch_in_which_every_line_failed_is_completed() -> None:
    async with visiting(batch_seconds=0.0) as visitor:
        batch = await run_batch(
            visitor, batch_lines(chat_body("a", model="practice-400"), chat_body("b", model="practice-400"))
        )
    assert (batch["status"], batch["output_file_id"]) == ("completed", None)
    assert batch["error_file_id"] is not None
    assert batch["request_counts"] == {"total": 2, "completed": 0, "failed": 2}


async def test_lines_can_be_lost_or_doubled_as_has_been_seen_in_the_wild() -> None:
    faults = ("missing", "duplicate", "zero", "ok")
    bodies = [chat_body(str(number), metadata={"practice_fault": name}) for number, name in enumerate(faults)]
    async with visiting(batch_seconds=0.0) as visitor:
        batch = await run_batch(visitor, batch_lines(*bodies))
        content = (await visitor.get(f"/v1/files/{batch['output_file_id']}/content")).body.splitlines()
        errors = await read_results(visitor, batch["error_file_id"])
        bill = await visitor.bill()
    assert sorted(json.loads(row)["custom_id"] for row in content) == ["r1", "r1", "r3"]
    assert errors["r2"]["response"]["status_code"] == 0
    assert bill["charged"] == 3


async def test_a_batch_can_expire_half_way() -> None:
    bodies = [chat_body(str(number), model="practice-expire") for number in range(40)]
    async with visiting(batch_seconds=0.0) as visitor:
        batch = await run_batch(visitor, batch_lines(*bodies))
        output, errors = (
            await read_results(visitor, batch["output_file_id"]),
            await read_results(visitor, batch["error_file_id"]),
        )
        bill = await visitor.bill()
    assert (batch["status"], len(output), len(errors), bill["charged"]) == ("expired", 20, 20, 20)
    assert {each["error"]["code"] for each in errors.values()} == {"batch_expired"}
    assert {each["response"] for each in errors.values()} == {None}


async def test_a_cancelled_batch_keeps_what_was_done() -> None:
    clock, bodies = HeldClock(), [chat_body(str(number)) for number in range(200)]
    async with visiting(Practice(Faults(batch_seconds=20), clock=clock)) as visitor:
        batch = await begin_batch(visitor, batch_lines(*bodies))
        clock.wake()  # it is checked, and pauses after its first lines
        await eventually(lambda: visitor.practice.bill.charged > 0)
        cancelling = await visitor.post(f"{BATCHES}/{batch['id']}/cancel")
        again = await visitor.post(f"{BATCHES}/{batch['id']}/cancel")
        clock.wake()
        await wait_for_batch(visitor, batch)
        output = await read_results(visitor, batch["output_file_id"])
        errors = await read_results(visitor, batch["error_file_id"])
        bill = await visitor.bill()
    assert (cancelling.status, cancelling.json["status"], again.status) == (200, "cancelling", 200)
    assert batch["status"] == "cancelled"
    assert batch["cancelled_at"] is not None
    assert len(output) == bill["charged"] < 200
    assert len(output) + len(errors) == 200
    assert {each["error"]["code"] for each in errors.values()} == {"batch_cancelled"}


async def test_an_ended_batch_cannot_be_cancelled() -> None:
    async with visiting(batch_seconds=0.0) as visitor:
        batch = await run_batch(visitor, batch_lines(chat_body()))
        answer = await visitor.post(f"{BATCHES}/{batch['id']}/cancel")
        unknown = await visitor.post("/v1/batches/batch_x/cancel")
    assert answer.status == 409
    assert answer.headers["x-should-retry"] == "false"
    assert answer.error["message"] == "Cannot cancel a batch with status 'completed'."
    assert unknown.status == 404


async def test_batches_are_listed_newest_first_in_pages() -> None:
    async with visiting(batch_seconds=0.0) as visitor:
        names = [(await begin_batch(visitor, batch_lines(chat_body())))["id"] for _ in range(3)]
        first = (await visitor.get(BATCHES, limit=2)).json
        second = (await visitor.get(BATCHES, limit=2, after=first["last_id"])).json
        too_many = await visitor.get(BATCHES, limit=101)
    assert [each["id"] for each in first["data"] + second["data"]] == names[::-1]
    assert (first["has_more"], second["has_more"]) == (True, False)
    assert too_many.status == 400


async def test_a_batch_whose_creation_was_not_heard_of_is_found_by_its_file() -> None:
    async with visiting(batch_seconds=0.0) as visitor:
        file = (await visitor.upload(batch_lines(chat_body()))).json
        body = {"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h"}
        lost = await asyncio.gather(
            visitor.post(BATCHES, body, {"X-Practice-Fault": "cut-billed"}), return_exceptions=True
        )
        found = [each["input_file_id"] for each in (await visitor.get(BATCHES)).json["data"]]
    assert isinstance(lost[0], Exception)
    assert found == [file["id"]]


async def test_embeddings_can_be_made_in_a_batch() -> None:
    lines = batch_lines({"model": "e", "input": "a"}, {"model": "e", "input": "b"}, url=EMBEDDINGS)
    async with visiting(batch_seconds=0.0) as visitor:
        batch = await run_batch(visitor, lines, endpoint=EMBEDDINGS)
        output = await read_results(visitor, batch["output_file_id"])
    vector = output["r1"]["response"]["body"]["data"][0]["embedding"]
    assert vector == answer_to(EMBEDDINGS, {"input": "b"})


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
        answer = await create_batch(visitor, "file-x", **more)
        listed = await visitor.get(BATCHES)
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
        (line(url=EMBEDDINGS), "invalid_url", "url"),
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
        batch = await run_batch(visitor, FIRST + b"\n" + second)
        bill = await visitor.bill()
    assert batch["status"] == "failed"
    (wrong,) = batch["errors"]["data"]
    assert (wrong["code"], wrong["line"], wrong["param"]) == (code, 3, param)
    assert (batch["output_file_id"], batch["error_file_id"], bill["charged"]) == (None, None, 0)


async def test_all_mistakes_are_told_together_up_to_a_hundred() -> None:
    lines = FIRST + b"".join(line(url="/v1/x", custom_id=str(number)) for number in range(250))
    async with visiting(batch_seconds=0.0) as visitor:
        batch = await run_batch(visitor, lines)
    told = batch["errors"]["data"]
    assert len(told) == 100
    assert "151 more" in told[-1]["message"]


async def test_a_missing_file_fails_the_batch() -> None:
    async with visiting(batch_seconds=0.0) as visitor:
        batch = await wait_for_batch(visitor, (await create_batch(visitor, "file-none")).json)
    (wrong,) = batch["errors"]["data"]
    assert (wrong["code"], wrong["line"], wrong["param"]) == ("invalid_request", None, "file_id")


async def test_blank_lines_carriage_returns_a_mark_and_a_missing_end_are_fine() -> None:
    lines = b"\xef\xbb\xbf" + FIRST.strip() + b"\r\n\r\n  \n" + line(custom_id="c").strip()
    async with visiting(batch_seconds=0.0) as visitor:
        batch = await run_batch(visitor, lines)
        output = await read_results(visitor, batch["output_file_id"])
    assert set(output) == {"a", "c"}


async def test_too_many_waiting_tokens_fail_the_batch_until_there_is_room() -> None:
    clock, lines = HeldClock(), batch_lines(chat_body("x" * 400))
    async with visiting(Practice(Faults(batch_seconds=10, batch_enqueued_tokens=150), clock=clock)) as visitor:
        first = await begin_batch(visitor, lines)
        clock.wake()
        await wait_for_batch(visitor, first, "in_progress")
        second = await begin_batch(visitor, lines)
        await eventually(lambda: clock.sleeping == 2)
        clock.wake(2)
        await wait_for_batch(visitor, second)
        assert first["status"] == "in_progress"
        clock.wake()
        await wait_for_batch(visitor, first)
        clock.wake(3)
        third = await run_batch(visitor, lines)
    assert (first["status"], second["status"], third["status"]) == ("completed", "failed", "completed")
    assert second["errors"]["data"][0]["code"] == "token_limit_exceeded"
