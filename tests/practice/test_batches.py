"""Batches: lines that fail, their life, their two files, and what they cost."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from backstay.practice import answer_to
from tests.practice.batches import ENDS, begin, create, ended, read, run
from tests.practice.visitor import CHAT, Answer, batch_lines, chat_body, eventually, visiting

FIELDS = {
    *("id", "object", "endpoint", "model", "errors", "input_file_id", "completion_window", "status"),
    *("output_file_id", "error_file_id", "created_at", "in_progress_at", "expires_at", "finalizing_at"),
    *("completed_at", "failed_at", "expired_at", "cancelling_at", "cancelled_at", "request_counts", "usage"),
    "metadata",
}


async def insist(ask: Callable[[], Awaitable[Answer]]) -> Any:
    while (answer := await ask()).status != 200:
        assert answer.status >= 500
    return answer.json


async def test_a_batch_answers_every_line_in_its_output_file() -> None:
    bodies = [chat_body(f"question {number}") for number in range(60)]
    async with visiting(batch_seconds=0.1) as visitor:
        batch = await run(visitor, batch_lines(*bodies), metadata={"run": "7"})
        output = await read(visitor, batch["output_file_id"])
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
    async with visiting(batch_seconds=0.2) as visitor:
        batch = await begin(visitor, batch_lines(chat_body()))
        assert batch.keys() == FIELDS
        assert (batch["status"], batch["request_counts"]["total"]) == ("validating", 0)
        assert batch["expires_at"] == batch["created_at"] + 86_400
        seen = {batch["status"]}

        async def is_over() -> bool:
            shown = (await visitor.get(f"/v1/batches/{batch['id']}")).json
            assert shown.keys() == FIELDS
            seen.add(shown["status"])
            assert (shown["output_file_id"] is None) == (shown["status"] != "completed")
            return shown["status"] in ENDS

        await eventually(is_over)
    assert seen == {"validating", "in_progress", "finalizing", "completed"}


async def test_a_batch_costs_half_and_its_lines_are_on_the_bill() -> None:
    async with visiting(batch_seconds=0.0, answer_tokens=1_000) as visitor:
        direct = await visitor.chat("x")
        full = (await visitor.bill())["cost_micros"]
        await visitor.post("/bill/reset")
        batch = await run(visitor, batch_lines(chat_body("x"), chat_body("y", metadata={"backstay_ref": "mine"})))
        bill = await visitor.bill()
    assert direct.status == 200
    assert (bill["calls"], bill["charged"]) == (2, 2)
    assert "mine" in bill["by_ref"]
    assert bill["cost_micros"] == 2 * -(-full // 2)
    assert batch["usage"]["total_tokens"] == bill["input_tokens"] + bill["output_tokens"]


async def test_a_line_paid_for_in_a_batch_and_directly_is_noticed() -> None:
    async with visiting(batch_seconds=0.0) as visitor:
        await run(visitor, batch_lines(chat_body("x")))
        await visitor.chat("x")
        bill = await visitor.bill()
    assert len(bill["paid_twice"]) == len(bill["bodies_paid_twice"]) == 1


# one line fails


async def test_lines_that_fail_are_in_the_error_file_and_not_charged() -> None:
    bodies = [chat_body(f"question {number}") for number in range(60)]
    async with visiting(batch_seconds=0.0, fail=0.3) as visitor:
        # Uploading and ordering have luck of their own, and need patience.
        file = await insist(lambda: visitor.upload(batch_lines(*bodies)))
        batch = await insist(lambda: create(visitor, file["id"]))
        await eventually(lambda: visitor.practice.counts.calls == 60)
        visitor.practice.change(fail=0)
        await ended(visitor, batch)
        output, errors = await read(visitor, batch["output_file_id"]), await read(visitor, batch["error_file_id"])
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
        batch = await run(
            visitor, batch_lines(chat_body("a", model="practice-400"), chat_body("b", model="practice-400"))
        )
    assert (batch["status"], batch["output_file_id"]) == ("completed", None)
    assert batch["error_file_id"] is not None
    assert batch["request_counts"] == {"total": 2, "completed": 0, "failed": 2}


async def test_lines_can_be_lost_or_doubled_as_has_been_seen_in_the_wild() -> None:
    faults = ("missing", "duplicate", "zero", "ok")
    bodies = [chat_body(str(number), metadata={"practice_fault": name}) for number, name in enumerate(faults)]
    async with visiting(batch_seconds=0.0) as visitor:
        batch = await run(visitor, batch_lines(*bodies))
        content = (await visitor.get(f"/v1/files/{batch['output_file_id']}/content")).body.splitlines()
        errors = await read(visitor, batch["error_file_id"])
        bill = await visitor.bill()
    assert sorted(json.loads(row)["custom_id"] for row in content) == ["r1", "r1", "r3"]
    assert errors["r2"]["response"]["status_code"] == 0
    assert bill["charged"] == 3


async def test_a_batch_can_expire_half_way() -> None:
    bodies = [chat_body(str(number), model="practice-expire") for number in range(40)]
    async with visiting(batch_seconds=0.0) as visitor:
        batch = await run(visitor, batch_lines(*bodies))
        output, errors = await read(visitor, batch["output_file_id"]), await read(visitor, batch["error_file_id"])
        bill = await visitor.bill()
    assert (batch["status"], len(output), len(errors), bill["charged"]) == ("expired", 20, 20, 20)
    assert {each["error"]["code"] for each in errors.values()} == {"batch_expired"}
    assert {each["response"] for each in errors.values()} == {None}


async def test_a_cancelled_batch_keeps_what_was_done() -> None:
    bodies = [chat_body(str(number)) for number in range(200)]
    async with visiting(batch_seconds=20) as visitor:
        batch = await begin(visitor, batch_lines(*bodies))
        await eventually(lambda: visitor.practice.bill.charged > 0)
        cancelling = await visitor.post(f"/v1/batches/{batch['id']}/cancel")
        again = await visitor.post(f"/v1/batches/{batch['id']}/cancel")
        await ended(visitor, batch)
        output, errors = await read(visitor, batch["output_file_id"]), await read(visitor, batch["error_file_id"])
        bill = await visitor.bill()
    assert (cancelling.status, cancelling.json["status"], again.status) == (200, "cancelling", 200)
    assert batch["status"] == "cancelled"
    assert batch["cancelled_at"] is not None
    assert len(output) == bill["charged"] < 200
    assert len(output) + len(errors) == 200
    assert {each["error"]["code"] for each in errors.values()} == {"batch_cancelled"}


async def test_an_ended_batch_cannot_be_cancelled() -> None:
    async with visiting(batch_seconds=0.0) as visitor:
        batch = await run(visitor, batch_lines(chat_body()))
        answer = await visitor.post(f"/v1/batches/{batch['id']}/cancel")
        unknown = await visitor.post("/v1/batches/batch_x/cancel")
    assert answer.status == 409
    assert answer.headers["x-should-retry"] == "false"
    assert answer.error["message"] == "Cannot cancel a batch with status 'completed'."
    assert unknown.status == 404


async def test_batches_are_listed_newest_first_in_pages() -> None:
    async with visiting(batch_seconds=0.0) as visitor:
        names = [(await begin(visitor, batch_lines(chat_body())))["id"] for _ in range(3)]
        first = (await visitor.get("/v1/batches", limit=2)).json
        second = (await visitor.get("/v1/batches", limit=2, after=first["last_id"])).json
        too_many = await visitor.get("/v1/batches", limit=101)
    assert [each["id"] for each in first["data"] + second["data"]] == names[::-1]
    assert (first["has_more"], second["has_more"]) == (True, False)
    assert too_many.status == 400


async def test_a_batch_whose_creation_was_not_heard_of_is_found_by_its_file() -> None:
    async with visiting(batch_seconds=0.0) as visitor:
        file = (await visitor.upload(batch_lines(chat_body()))).json
        body = {"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h"}
        lost = await asyncio.gather(
            visitor.post("/v1/batches", body, {"X-Practice-Fault": "cut-billed"}), return_exceptions=True
        )
        found = [each["input_file_id"] for each in (await visitor.get("/v1/batches")).json["data"]]
    assert isinstance(lost[0], Exception)
    assert found == [file["id"]]


async def test_embeddings_can_be_made_in_a_batch() -> None:
    lines = batch_lines({"model": "e", "input": "a"}, {"model": "e", "input": "b"}, url="/v1/embeddings")
    async with visiting(batch_seconds=0.0) as visitor:
        batch = await run(visitor, lines, endpoint="/v1/embeddings")
        output = await read(visitor, batch["output_file_id"])
    vector = output["r1"]["response"]["body"]["data"][0]["embedding"]
    assert vector == answer_to("/v1/embeddings", {"input": "b"})
