"""Batches over OpenAI's own client, from the file of requests to the files of results."""

import json
from typing import Any

import openai
import pytest

from tests.server.openai.openai_rig import CHAT, Desk, line, requests


async def test_a_batch_goes_from_its_file_to_its_results(desk: Desk) -> None:
    batch = await desk.create(requests(30), metadata={"purpose": "test"})
    assert (batch.status, batch.request_counts and batch.request_counts.total) == ("validating", 0)
    assert batch.expires_at == batch.created_at + 86_400
    done = await desk.until(batch)
    assert done.status == "completed", done
    assert done.request_counts is not None
    assert done.request_counts.model_dump() == {"total": 30, "completed": 30, "failed": 0}
    assert done.in_progress_at
    assert done.finalizing_at
    assert done.completed_at
    assert done.error_file_id is None
    assert done.usage is not None
    assert done.usage.total_tokens > 0
    assert done.metadata == {"purpose": "test"}
    lines = await desk.lines(done.output_file_id)
    assert {one["custom_id"] for one in lines} == {f"request-{i}" for i in range(30)}
    assert all(one["response"]["status_code"] == 200 and one["error"] is None for one in lines)


async def test_requests_that_fail_stand_in_the_error_file_and_the_batch_is_completed(desk: Desk) -> None:
    content = "\n".join([line("good"), line("bad", messages="none")]).encode()
    done = await desk.done(content)
    assert done.status == "completed"
    assert done.request_counts is not None
    assert done.request_counts.failed == 1
    [good] = await desk.lines(done.output_file_id)
    [bad] = await desk.lines(done.error_file_id)
    assert (good["custom_id"], bad["custom_id"]) == ("good", "bad")
    assert bad["response"]["status_code"] == 400
    assert bad["error"] is None


async def test_a_batch_of_which_every_request_failed_is_completed_without_output(sqlite_desk: Desk) -> None:
    done = await sqlite_desk.done(requests(3, messages="none"))
    assert (done.status, done.output_file_id) == ("completed", None)
    assert done.request_counts is not None
    assert (done.request_counts.failed, done.request_counts.total) == (3, 3)
    assert len(await sqlite_desk.lines(done.error_file_id)) == 3


async def test_mixed_models_crlf_blank_lines_a_mark_and_a_missing_line_end_are_taken(sqlite_desk: Desk) -> None:
    lines = [line("one", model="practice"), "", line("two", model="practice-mini")]
    done = await sqlite_desk.done(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert done.status == "completed"
    assert done.request_counts is not None
    assert done.request_counts.completed == 2
    assert done.model == "practice"


async def test_batches_are_listed_newest_first_in_pages(desk: Desk) -> None:
    file = await desk.upload(requests(1))
    client = desk.client()
    made = []
    for number in range(5):
        batch = await client.batches.create(
            input_file_id=file.id, endpoint=CHAT, completion_window="24h", metadata={"n": str(number)}
        )
        made.append((await desk.until(batch)).id)
    assert [batch.id async for batch in client.batches.list(limit=2)] == made[::-1]
    page = await client.batches.list(limit=2, after=made[3])
    assert ([batch.id for batch in page.data], page.has_more) == ([made[2], made[1]], True)
    assert [batch.id async for batch in desk.client("bob").batches.list()] == []
    with pytest.raises(openai.NotFoundError):
        await desk.client("bob").batches.list(after=made[0])
    with pytest.raises(openai.BadRequestError):
        await client.batches.list(limit=101)


async def test_a_batch_of_another_is_not_there(desk: Desk) -> None:
    batch, bob = await desk.create(requests(1)), desk.client("bob")
    said = []
    for batch_id in (batch.id, "batch_" + "0" * 24):
        for ask in (bob.batches.retrieve, bob.batches.cancel):
            with pytest.raises(openai.NotFoundError) as refused:
                await ask(batch_id)
            said.append(str(refused.value).replace(batch_id, "…"))
    assert said[:2] == said[2:]
    for part in ("output", "errors"):
        assert (await desk.rig.bob.get(f"/v1/batches/{batch.id}/{part}")).status == 404


async def test_anothers_file_is_no_file(desk: Desk) -> None:
    file = await desk.upload(requests(1))
    batch = await desk.client("bob").batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    failed = await desk.until(batch, owner="bob")
    assert failed.status == "failed"
    assert failed.errors is not None
    assert failed.errors.data is not None
    assert failed.errors.data[0].message == f"Cannot find file {file.id}."


async def test_a_cancelled_batch_keeps_what_was_done(desk: Desk) -> None:
    desk.practice.change(latency=0.05, concurrency=1)
    batch = await desk.until(await desk.create(requests(200)), "in_progress")
    while not (await desk.rig.ada.get(f"/v1/batches/{batch.id}/output")).lines:
        pass
    cancelling = await desk.client().batches.cancel(batch.id)
    assert cancelling.status == "cancelling"
    assert cancelling.cancelling_at
    again = await desk.client().batches.cancel(batch.id)
    assert again.status in ("cancelling", "cancelled")
    desk.practice.change(latency=0, concurrency=None)
    done = await desk.until(batch)
    assert done.status == "cancelled"
    assert done.cancelled_at
    assert (await desk.client().batches.cancel(batch.id)).status == "cancelled"
    output, errors = await desk.lines(done.output_file_id), await desk.lines(done.error_file_id)
    assert output
    assert errors
    assert {one["error"]["code"] for one in errors} == {"batch_cancelled"}
    assert len({one["custom_id"] for one in [*output, *errors]}) == 200


async def test_a_batch_that_is_over_cannot_be_cancelled_and_clients_do_not_try_again(sqlite_desk: Desk) -> None:
    done = await sqlite_desk.done(requests(1))
    reply = await sqlite_desk.rig.ada.post(f"/v1/batches/{done.id}/cancel")
    assert reply.status == 409
    assert reply.headers["x-should-retry"] == "false"
    message = "Cannot cancel a batch with status 'completed'."
    assert reply.json == {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


async def test_what_has_come_of_a_running_batch_can_be_read(sqlite_desk: Desk) -> None:
    desk = sqlite_desk
    empty = await desk.create(requests(1))
    assert (await desk.rig.ada.get(f"/v1/batches/{empty.id}/errors")).body == b""
    desk.practice.change(latency=0.05, concurrency=1)
    batch = await desk.until(await desk.create(requests(100)), "in_progress")
    while not (lines := (await desk.rig.ada.get(f"/v1/batches/{batch.id}/output")).lines):
        pass
    assert lines[0]["response"]["status_code"] == 200
    seen = await desk.client().batches.retrieve(batch.id)
    assert (seen.status, seen.output_file_id) == ("in_progress", None)
    assert seen.request_counts is not None
    assert seen.request_counts.total == 100
    desk.practice.change(latency=0, concurrency=None)
    done = await desk.until(batch)
    whole = (await desk.rig.ada.get(f"/v1/batches/{batch.id}/output")).lines
    assert whole == await desk.lines(done.output_file_id)
    assert len(whole) == 100


async def test_an_object_has_every_field_and_null_where_there_is_nothing(sqlite_desk: Desk) -> None:
    done = await sqlite_desk.done(requests(2), output_expires_after={"anchor": "created_at", "seconds": 3600})
    shown: dict[str, Any] = (await sqlite_desk.rig.ada.get(f"/v1/batches/{done.id}")).json
    golden = {
        **dict.fromkeys(
            ("errors", "error_file_id", "failed_at", "expired_at", "cancelling_at", "cancelled_at", "metadata")
        ),
        "object": "batch",
        "endpoint": CHAT,
        "model": "practice",
        "completion_window": "24h",
        "status": "completed",
        "request_counts": {"total": 2, "completed": 2, "failed": 0},
        "usage": {
            "input_tokens": shown["usage"]["input_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": shown["usage"]["output_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": shown["usage"]["input_tokens"] + shown["usage"]["output_tokens"],
        },
    }
    named = ("id", "input_file_id", "output_file_id")
    moments = ("created_at", "in_progress_at", "expires_at", "finalizing_at", "completed_at")
    assert {name: value for name, value in shown.items() if name not in (*named, *moments)} == golden
    assert all(isinstance(shown[moment], int) for moment in moments)
    assert json.loads(done.model_dump_json()) == shown
    output = await sqlite_desk.client().files.retrieve(shown["output_file_id"])
    assert output.expires_at == output.created_at + 3600
    assert output.purpose == "batch_output"


async def test_models_are_those_of_the_service_behind(sqlite_desk: Desk) -> None:
    client = sqlite_desk.client()
    assert "practice" in [model.id async for model in client.models.list()]
    assert (await client.models.retrieve("practice-mini")).object == "model"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("no-such/model")
