"""Two sides of a broker for tests: Backstay's own, and a bystander who looks at the node over his own connection."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from backstay.clock import Clock, Tasks, new_random
from backstay.core.events import Event
from backstay.messaging.broker import Broker, Wiped
from backstay.messaging.connection import ConnectionMeans, LinkWatch, connect_once
from backstay.messaging.messages import Incoming, OutgoingMessage, Queue, Topology, Work, send_work
from backstay.messaging.queues import QueueDepth, declare, depth_of, open_channel

if TYPE_CHECKING:
    from aiormq.abc import DeliveredMessage

QUICK = LinkWatch(
    every_seconds=0.1, answer_seconds=1.0, open_seconds=10.0, publish_seconds=1.5, backoff_seconds_max=0.5
)
PATIENCE_SECONDS = 30.0


async def until(what: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
    """Waits for a fact; `what` may be a coroutine function."""
    async with asyncio.timeout(seconds):
        while True:
            found = what()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.02)


class Scene:
    """What one test has of a process: the means, the events that were emitted, and the broker."""

    def __init__(self, url: str, topology: Topology, watch: LinkWatch = QUICK) -> None:
        self.topology = topology
        self.events: list[Event] = []
        self.means = ConnectionMeans(url, "test", Clock(), Tasks(), new_random(), self.events.append, watch)

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @asynccontextmanager
    async def broker(self, wiped: Wiped | None = None, expected: bool = False) -> AsyncIterator[Broker]:
        made = Broker(self.means, self.topology, wiped, expected)
        made.start()
        try:
            yield made
        finally:
            await made.stop()
            await self.means.tasks.stop()


async def ready(broker: Broker) -> Broker:
    await until(lambda: broker.publishing and broker.alive)
    return broker


async def all_known(items: Sequence[int]) -> Sequence[int]:
    """For a consumer whose items are all there."""
    return items


class Bystander:
    """Looks and meddles with a connection of his own."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def depth(self, queue: str) -> QueueDepth | None:
        async with connect_once(self._url) as connection:
            return await depth_of(connection, queue)

    async def messages(self, queue: str) -> int:
        depth = await self.depth(queue)
        return -1 if depth is None else depth.messages

    async def take_all(self, queue: str) -> list[Incoming]:
        """All messages that are ready, in their order; they are gone from the queue."""
        from backstay.messaging.queues import read_incoming

        taken: list[Incoming] = []
        all_taken: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

        async def take(raw: "DeliveredMessage") -> None:
            if len(taken) < messages:
                taken.append(read_incoming(raw))
                if len(taken) == messages:
                    all_taken.set_result(raw.delivery_tag)

        async with connect_once(self._url) as connection:
            depth = await depth_of(connection, queue)
            assert depth is not None, f"there is no queue {queue}"
            if messages := depth.messages:
                channel = await open_channel(connection)
                await channel.basic_consume(queue, take)
                last = await asyncio.wait_for(all_taken, PATIENCE_SECONDS)
                await channel.basic_ack(last or 0, multiple=True)
        return taken

    async def tap(self, topology: Topology, handler: str) -> str:
        """A queue that gets a copy of whatever goes to a handler from now on; returns its name."""
        queue = topology.work_queue(handler)
        tap = replace(queue, name=f"{queue.name}.tap", arguments={})
        async with connect_once(self._url) as connection:
            # The handler's own too: a relay makes it when nobody takes a message, and now somebody does.
            await declare(connection, (), [queue, tap])
        return tap.name

    @asynccontextmanager
    async def hogging(self, topology: Topology, queue: Queue) -> AsyncIterator[None]:
        """Declares a queue, takes the first message that comes, and never acknowledges it."""

        async def keep(_: object) -> None:
            return

        async with connect_once(self._url) as connection:
            await declare(connection, topology.exchanges, [queue])
            channel = await open_channel(connection)
            await channel.basic_qos(prefetch_count=1)
            await channel.basic_consume(queue.name, keep)
            yield

    async def delete(self, queue: str) -> None:
        async with connect_once(self._url) as connection:
            await (await open_channel(connection)).queue_delete(queue)

    async def replace(self, queue: Queue) -> None:
        """Deletes a queue and makes it again, as a person in a hurry does."""
        async with connect_once(self._url) as connection:
            await (await open_channel(connection)).queue_delete(queue.name)
            await declare(connection, (), [queue])

    async def delete_exchange(self, exchange: str) -> None:
        async with connect_once(self._url) as connection:
            await (await open_channel(connection)).exchange_delete(exchange)


def work(topology: Topology, number: int, items: Sequence[int], handler: str = "ocr", **more: Any) -> OutgoingMessage:
    made = Work(str(number), handler, tuple(items), more.get("priority", 0))
    return send_work(topology, made, more.get("wait_ms", 0))


def raw(outgoing: OutgoingMessage, body: bytes | str | dict[str, Any], **more: Any) -> OutgoingMessage:
    """The same message with another body."""
    text = json.dumps(body) if isinstance(body, dict) else body
    return replace(outgoing, body=text.encode() if isinstance(text, str) else text, **more)
