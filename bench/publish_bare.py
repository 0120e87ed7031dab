"""A bare aio-pika publisher with confirms in batches: what the broker and the client library alone allow."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aio_pika
import uvloop

BATCH = 500  # of 100, 500 and 1,000 the best in a trial
QUEUE = "bare.work.noop"
ITEMS = 50  # in each message, as in those of a bulk submit

_at: dict[str, Any] = {}


def prepare(url: str) -> None:
    _at["url"] = url


def publish(n: int) -> dict[str, float]:
    seconds = asyncio.Runner(loop_factory=uvloop.new_event_loop).run(_publish(bodies(n)))
    return {"publish_per_second": n / seconds}


def bodies(n: int) -> list[bytes]:
    """Made before the clock starts, of the size of Backstay's own."""
    items = [f"1-{number}" for number in range(100_000, 100_000 + ITEMS)]
    return [json.dumps({"v": 1, "id": str(n), "handler": "noop", "items": items}).encode() for n in range(n)]


async def _publish(bodies: list[bytes]) -> float:
    connection = await aio_pika.connect(_at["url"])
    channel = await connection.channel(publisher_confirms=True)
    exchange = await channel.declare_exchange("bare.work", "direct", durable=True)
    queue = await channel.declare_queue(QUEUE, durable=True, arguments={"x-max-priority": 10})
    await queue.bind(exchange, "noop")
    started = time.perf_counter()
    for low in range(0, len(bodies), BATCH):
        sent = (_sent(exchange, low + index, body) for index, body in enumerate(bodies[low : low + BATCH]))
        await asyncio.gather(*sent)
    seconds = time.perf_counter() - started
    found = await channel.declare_queue(QUEUE, passive=True)
    assert found.declaration_result.message_count == len(bodies), "some messages are missing"
    await connection.close()
    return seconds


async def _sent(exchange: Any, number: int, body: bytes) -> None:
    message = aio_pika.Message(
        body,
        content_type="application/json",
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        message_id=str(number),
        type="work",
        priority=0,
    )
    await exchange.publish(message, "noop", mandatory=True)
