"""Jobs that are too long for one step: streams that break off, deletions and cancellations in pieces."""

import asyncio
from typing import Any

import aiohttp
import pytest

from tests.server.rig import Rig
from tests.server.test_jobs import problem

LINES = {"content-type": "application/x-ndjson"}
WAIT_SECONDS = 20


async def wait_for_state(rig: Rig, job: str, state: str) -> dict[str, Any]:
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            shown: dict[str, Any] = (await rig.ada.get(f"/api/jobs/{job}")).json
            if shown.get("state") == state:
                return shown
            await asyncio.sleep(0.01)


async def lines(n: int) -> Any:
    for start in range(0, n, 500):
        yield b"".join(b'{"n": %d}\n' % number for number in range(start, min(start + 500, n)))


async def first_job(rig: Rig) -> str:
    """The id of the job there is, as soon as it is there."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not (data := (await rig.ada.get("/api/jobs")).json["data"]):  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)
    return str(data[0]["id"])


async def send(rig: Rig, body: Any, **headers: str) -> Any:
    return await rig.ada.post("/api/jobs", params={"handler": "echo"}, data=body, headers={**LINES, **headers})


async def break_off(rig: Rig, **headers: str) -> str:
    """Sends half of a stream: a job is there, and no more lines come."""

    async def half() -> Any:
        async for piece in lines(5_000):
            yield piece
        await first_job(rig)
        raise ConnectionError("the cable")

    with pytest.raises((aiohttp.ClientError, ConnectionError)):
        await send(rig, half(), **headers)
    return await first_job(rig)


async def test_a_stream_that_breaks_off_ends_its_job(rig: Rig) -> None:
    shown = await wait_for_state(rig, await break_off(rig), "cancelled")
    assert shown["cancelled"] == shown["total"] > 0


async def test_a_stream_with_a_key_goes_on_where_it_was(rig: Rig) -> None:
    key = {"idempotency-key": "long"}
    job = await break_off(rig, **key)
    assert (await rig.ada.get(f"/api/jobs/{job}")).json["sealed"] is False
    async with asyncio.timeout(WAIT_SECONDS):
        while (reply := await send(rig, lines(6_000), **key)).status == 409:  # noqa: ASYNC110 - it says: try again
            await asyncio.sleep(0.05)
    assert (reply.status, reply.json["id"]) == (201, job)
    assert (reply.json["total"], reply.json["sealed"], reply.json["state"]) == (6_000, True, "queued")


async def test_a_line_that_is_wrong_far_into_the_stream_ends_its_job(rig: Rig) -> None:
    async def spoilt() -> Any:
        async for piece in lines(4_000):
            yield piece
        yield b"{\n"

    reply = await rig.ada.post("/api/jobs", params={"handler": "echo"}, data=spoilt(), headers=LINES)
    assert "line 4001 is not JSON" in problem(reply, 422)["detail"]
    [job] = (await rig.ada.get("/api/jobs")).json["data"]
    assert job["state"] == "cancelled"


async def test_a_long_job_is_cancelled_and_deleted_in_pieces_behind_the_answer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backstay.server.service.CHUNKS_AT_ONCE", 0)
    monkeypatch.setattr("backstay.server.service.ITEMS_AT_ONCE", 0)
    monkeypatch.setattr("backstay.store.jobs.PURGE_ITEMS", 7)
    kept, job = await rig.submit(items=[1]), await rig.submit(items=list(range(50)))
    assert (await rig.ada.post(f"/api/jobs/{job}/cancel")).json["stop_reason"] == "cancel"
    assert (await wait_for_state(rig, job, "cancelled"))["cancelled"] == 50
    assert (await rig.ada.delete(f"/api/jobs/{job}")).status == 204
    problem(await rig.ada.get(f"/api/jobs/{job}"), 404)
    async with asyncio.timeout(WAIT_SECONDS):
        while await rig.service.store.jobs.disowned_jobs():  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)
    first = int(job) << 28
    assert await rig.service.store.results.requests_of([first, first + 49]) == []
    assert (await rig.ada.get(f"/api/items/{kept}-0")).status == 200
