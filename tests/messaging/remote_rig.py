"""A service with a broker, a remote worker that reads a queue of it, and items between the two."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue

from backstay.core.limits import Limits
from backstay.messaging.connection import open_connection
from tests.server.receiver import Receiver
from tests.server.remote_rig import Remote
from tests.server.rig import Rig, practice_app, rigged
from tests.servers.fault_proxy import FaultProxy
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.stories.stage import until

KEY = "essays"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the remote worker has it."""

    message: AbstractIncomingMessage
    body: dict[str, Any]

    def told(self, **said: Any) -> dict[str, Any]:
        return {"v": 1, "task": self.body["task"], "tag": self.body["tag"], **said}


class Worker:
    """Someone else's program: a connection of its own, an exchange, and a queue that takes what is sent there."""

    def __init__(self, connection: AbstractConnection, channel: AbstractChannel, queue: AbstractQueue) -> None:
        self.connection = connection
        self.channel = channel
        self.queue = queue
        self.exchange = queue.name

    async def request(self, what: str = "a request comes") -> Asked:
        message = cast(AbstractIncomingMessage, await until(lambda: self.queue.get(no_ack=False, fail=False), what))
        await message.ack()
        return Asked(message, json.loads(message.body))

    async def waiting(self) -> int:
        declared = await self.channel.declare_queue(self.queue.name, passive=True)
        return declared.declaration_result.message_count or 0

    async def publish(self, exchange: str, key: str, body: bytes, **properties: Any) -> None:
        target = await self.channel.get_exchange(exchange, ensure=False)
        await target.publish(aio_pika.Message(body, delivery_mode=2, **properties), key)

    async def tell(self, asked: Asked, **said: Any) -> None:
        place = asked.body["callback"]
        body = json.dumps(asked.told(**said)).encode()
        await self.publish(place["exchange"], place["routing_key"], body, type="callback")


class MessageRemote(Remote):
    """One item at a time, over messages."""

    def __init__(self, rig: Rig, worker: Worker, prefix: str) -> None:
        super().__init__(rig, cast(Receiver, None))
        self.worker = worker
        self.prefix = prefix
        self.dead: list[tuple[str, bytes]] = []  # reason, body

    async def submit(self, payload: Any = None, handler: str = "remote", **options: Any) -> None:
        item = {"exchange": self.worker.exchange, "routing_key": KEY, "payload": payload}
        self.job = await self.rig.submit(handler, [item], **options)

    async def ask(self, **options: Any) -> Asked:
        """Submits an item and has it sent; gives what the remote worker got."""
        await self.submit({"n": 1}, **options)
        await self.rig.work()
        return await self.worker.request()

    async def told(self, asked: Asked, **said: Any) -> None:
        """Says something about an item, and waits until it was kept."""
        await self.worker.tell(asked, **said)

        async def there() -> bool:
            return said in [json.loads(body) for *_, body in await self.kept()]

        await until(there, f"{said} is kept")

    async def miss_deadline_of(self) -> Asked:
        asked = await self.ask(deadline_seconds=60)
        await self.pass_deadline()
        await self.ended("failed")
        return asked

    async def kept(self) -> list[tuple[Any, ...]]:
        return await self.rows("SELECT kind, fence, is_late, body FROM inbox ORDER BY id")

    async def put_aside(self, number: int = 1) -> list[tuple[str, bytes]]:
        """What is in the dead queue, once there is so much."""
        queue = await self.worker.channel.get_queue(f"{self.prefix}.dead", ensure=False)

        async def look() -> bool:
            if (message := await queue.get(no_ack=True, fail=False)) is not None:
                self.dead.append((str(message.headers.get("x-backstay-reason")), message.body))
            return len(self.dead) >= number

        await until(look, f"{number} messages were put aside")
        return self.dead


def sending(monkeypatch: pytest.MonkeyPatch, proxy: FaultProxy | None = None) -> list[AbstractConnection]:
    """The connections by which requests go out from now on: through a proxy, if there is one, and callbacks past it."""
    made: list[AbstractConnection] = []

    async def opened(url: str, name: str) -> AbstractConnection:
        made.append(await open_connection(url if proxy is None else proxy.url(url), name))
        return made[-1]

    monkeypatch.setattr("backstay.remote.over_messages.open_connection", opened)
    return made


@asynccontextmanager
async def remote_worker(url: str, exchange: str) -> AsyncIterator[Worker]:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        declared = await channel.declare_exchange(exchange, "direct", durable=True)
        queue = await channel.declare_queue(exchange, durable=True, arguments={"x-max-priority": 10})
        await queue.bind(declared, KEY)
        yield Worker(connection, channel, queue)


@asynccontextmanager
async def message_work(url: str, data: Path, node: PrivateRabbitMQ, **settings: Any) -> AsyncIterator[MessageRemote]:
    prefix = node.prefix()
    made = practice_app(url, limits=Limits(poll_interval_seconds=0.01))
    given = {"broker_url": node.url, "broker_prefix": prefix, "remote_kinds": "writing:1200", **settings}
    async with rigged(url, data, made, **given) as rig, remote_worker(node.url, f"{prefix}-grading") as worker:
        yield MessageRemote(rig, worker, prefix)
