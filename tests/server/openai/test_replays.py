"""A request that is sent again, because its answer was not heard, makes one batch."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
import pytest

from tests.server.openai.openai_rig import CHAT, Desk, requests
from tests.server.rig import Reply


@asynccontextmanager
async def deaf_line(url: str, path: bytes, times: int) -> AsyncIterator[str]:
    """Carries all to the service; the first answers to POSTs of the path are lost on the way back."""
    host, port = url.removeprefix("http://").split(":")
    left = times

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        up_reader, up_writer = await asyncio.open_connection(host, int(port))
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            size = next((int(one[15:]) for one in head.split(b"\r\n") if one.lower().startswith(b"content-length:")), 0)
            close = head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n").replace(
                b"Connection: keep-alive\r\n", b""
            )
            up_writer.write(close + await reader.readexactly(size))
            answer = await up_reader.read(-1)
            if head.startswith(b"POST " + path) and left > 0:
                left -= 1
            else:
                writer.write(answer)
                await writer.drain()
        finally:
            up_writer.close()
            writer.close()

    server = await asyncio.start_server(carry, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


@pytest.mark.parametrize("times", [1, 2])
async def test_a_dropped_connection_on_create_makes_one_batch(desk: Desk, times: int) -> None:
    file = await desk.upload(requests(3))
    async with deaf_line(desk.rig.url, b"/v1/batches", times) as url:
        client = desk.client(base_url=url, max_retries=2)
        batch = await client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    assert [one.id async for one in desk.client().batches.list()] == [batch.id]
    assert (await desk.until(batch)).status == "completed"


async def _create(desk: Desk, file_id: str, **headers: str) -> Reply:
    order = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h"}
    return await desk.rig.ada.post("/v1/batches", json=order, headers=headers)


async def test_a_repetition_is_marked_and_a_wish_for_another_is_not_one(desk: Desk) -> None:
    file = await desk.upload(requests(1))
    first = await _create(desk, file.id, **{"x-stainless-retry-count": "0"})
    again = await _create(desk, file.id, **{"x-stainless-retry-count": "1"})
    another = await _create(desk, file.id, **{"x-stainless-retry-count": "0"})
    assert again.json["id"] == first.json["id"] != another.json["id"]
    assert again.headers["x-backstay-replayed"] == "1"
    assert "x-backstay-replayed" not in first.headers
    assert "x-backstay-replayed" not in another.headers


async def test_repetitions_that_cross_make_one_batch(desk: Desk) -> None:
    file = await desk.upload(requests(1))
    replies = await asyncio.gather(
        *(_create(desk, file.id, **{"x-stainless-retry-count": str(n)}) for n in (1, 1, 2, 2, 1, 2))
    )
    assert len({reply.json["id"] for reply in replies}) == 1


async def test_what_differs_is_another_batch_and_so_is_another_owners(desk: Desk) -> None:
    file = await desk.upload(requests(1))
    first = await _create(desk, file.id)
    order = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h"}
    for change in ({"metadata": {"a": "b"}}, {"completion_window": "1h"}, {"endpoint": "/v1/embeddings"}):
        reply = await desk.rig.ada.post(
            "/v1/batches", json={**order, **change}, headers={"x-stainless-retry-count": "1"}
        )
        assert reply.status == 200
        assert reply.json["id"] != first.json["id"]
    theirs = await desk.rig.bob.post("/v1/batches", json=order, headers={"x-stainless-retry-count": "1"})
    assert theirs.json["id"] != first.json["id"]


async def test_an_idempotency_key_is_honoured(desk: Desk) -> None:
    file = await desk.upload(requests(1))
    client = desk.client()
    order = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h"}
    keyed = {"Idempotency-Key": "once"}
    made = [(await client.batches.create(**order, extra_headers=keyed)).id for _ in range(2)]  # type: ignore[arg-type]
    assert made[0] == made[1]
    with pytest.raises(openai.ConflictError) as refused:
        await client.batches.create(**{**order, "metadata": {"a": "b"}}, extra_headers=keyed)  # type: ignore[arg-type]
    assert refused.value.response.headers["x-should-retry"] == "false"
