"""A remote worker in plain Python: takes requests from a queue of RabbitMQ, does them, and says how it went.

    pip install aio-pika
    python remote_worker.py amqp://guest:guest@127.0.0.1/

It may be killed at any moment: RabbitMQ gives a request that was not acknowledged to another worker. So a request may
come twice, by the same id. Its answer is kept in a folder, and a repeat is answered without being done again.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

EXCHANGE = "grading"
QUEUE = "grading.essays"
ANSWERS = Path(os.environ.get("ANSWERS", "answers"))  # workers that share it do nothing twice between them


async def grade(essay: dict[str, Any], tell: Callable[..., Awaitable[None]]) -> Any:
    """The work itself. What it returns is the result; what it raises is the failure."""
    if not isinstance(essay.get("text"), str):
        raise ValueError("an essay has a text")
    for progress in (25, 50, 75):
        await asyncio.sleep(essay.get("seconds", 0) / 4)
        await tell(status="progress", progress=progress)
    await asyncio.sleep(essay.get("seconds", 0) / 4)
    return {"words": len(essay["text"].split())}


async def serve(channel: AbstractChannel, message: AbstractIncomingMessage) -> None:
    request = json.loads(message.body)
    exchange = await channel.get_exchange(request["callback"]["exchange"], ensure=False)

    async def tell(**said: Any) -> None:
        """Returns when the broker has it on disk."""
        body = json.dumps({"v": 1, "task": request["task"], "tag": request["tag"], **said}).encode()
        told = aio_pika.Message(body, type="callback", content_type="application/json", delivery_mode=2)
        await exchange.publish(told, request["callback"]["routing_key"])

    if request["deadline_at"] is None or time.time() * 1000 < request["deadline_at"]:
        await tell(**await answer(request, tell))
    # else nobody waits for it any more
    await message.ack()  # only now: what was told is confirmed


async def answer(request: dict[str, Any], tell: Callable[..., Awaitable[None]]) -> dict[str, Any]:
    file = ANSWERS / quote(request["id"], safe="")
    if file.exists():
        kept: dict[str, Any] = json.loads(file.read_text())
        return kept
    print("doing", request["id"], flush=True)
    try:
        made = {"status": "succeeded", "result": await grade(request["payload"], tell)}
    except ValueError as error:
        made = {"status": "failed", "error": {"code": "GW_4XX", "message": str(error), "retryable": False}}
    draft = file.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(made))
    draft.rename(file)  # there as a whole or not at all
    return made


async def main(url: str) -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(publisher_confirms=True)
        await channel.set_qos(prefetch_count=4)
        exchange = await channel.declare_exchange(EXCHANGE, "direct", durable=True)
        queue = await channel.declare_queue(
            QUEUE, durable=True, arguments={"x-queue-type": "classic", "x-max-priority": 10}
        )
        await queue.bind(exchange, "essays")
        print("waiting for requests", flush=True)
        async with queue.iterator() as messages, asyncio.TaskGroup() as tasks:
            async for message in messages:
                tasks.create_task(serve(channel, message))
    sys.exit("the connection has ended")  # the process manager starts it again


if __name__ == "__main__":
    ANSWERS.mkdir(exist_ok=True)
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "amqp://guest:guest@127.0.0.1/"))
