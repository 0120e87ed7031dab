"""Publishes messages in batches with confirms, and always returns: what hangs breaks the connection."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from backstay.messaging.declaring import open_channel
from backstay.messaging.link import Broken, Means
from backstay.messaging.messages import CONTENT_TYPE, PERSISTENT, OutgoingMessage

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection
    from aiormq.channel import Channel
    from pamqp.commands import Basic


class Sent(Enum):
    CONFIRMED = auto()  # it is in a queue
    UNROUTABLE = auto()  # no queue wanted it, and it came back
    REFUSED = auto()  # the broker said no
    AWAY = auto()  # it was not sent
    UNKNOWN = auto()  # it was sent, and there was no answer


class Publisher:
    """One channel with confirms, and one beside it to ask whether anybody is there."""

    def __init__(self, means: Means, broken: Callable[[str], None]) -> None:
        self.connection: AbstractConnection | None = None
        self._means = means
        self._broken = broken
        self._channel: Channel | None = None
        self._asking: Channel | None = None

    async def open(self, connection: "AbstractConnection") -> None:
        self._channel = await open_channel(connection, confirms=True)
        self._asking = await open_channel(connection)
        self.connection = connection

    def close(self) -> None:
        self._channel = self._asking = self.connection = None

    async def check(self, exchange: str) -> None:
        if self._channel is None or self._channel.is_closed or self._asking is None:
            raise Broken("the channel was closed")
        await self._asking.exchange_declare(exchange, passive=True)

    async def send(self, outgoing: Sequence[OutgoingMessage]) -> list[Sent]:
        """One answer for each. Two messages of one id must not be in one call: the driver tells them apart by it."""
        channel = self._channel
        if channel is None or channel.is_closed or not outgoing:
            return [Sent.AWAY] * len(outgoing)
        now = self._means.clock.now_ms()
        tasks = [self._means.tasks.start(_send(channel, message, now)) for message in outgoing]
        _, late = await _wait(tasks, self._means.watch.publish_seconds)
        if late:
            for task in late:
                task.cancel()
            self._broken(f"{len(late)} messages were not confirmed in {self._means.watch.publish_seconds:g} s")
            await asyncio.wait(late, timeout=1.0)
        return [_answer(task) for task in tasks]


async def _wait(tasks: Sequence[asyncio.Task[Any]], seconds: float) -> tuple[set[Any], set[Any]]:
    try:
        return await asyncio.wait(tasks, timeout=seconds)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        raise


async def _send(channel: "Channel", message: OutgoingMessage, now_ms: int) -> Sent:
    from aiormq.exceptions import DeliveryError
    from pamqp.commands import Basic

    try:
        answer = await channel.basic_publish(
            message.body,
            exchange=message.exchange,
            routing_key=message.routing_key,
            properties=properties_of(message, now_ms),
            mandatory=True,
            wait=False,
        )
    except DeliveryError:
        return Sent.REFUSED
    return Sent.CONFIRMED if isinstance(answer, Basic.Ack) else Sent.UNROUTABLE


def properties_of(message: OutgoingMessage, now_ms: int) -> "Basic.Properties":
    from pamqp.commands import Basic

    stamp = (message.timestamp_ms or now_ms) // 1000
    return Basic.Properties(
        content_type=CONTENT_TYPE,
        delivery_mode=PERSISTENT,
        message_id=message.message_id,
        message_type=message.type,
        priority=message.priority,
        timestamp=datetime.fromtimestamp(stamp, UTC),
        headers=dict(message.headers) or None,
    )


def _answer(task: "asyncio.Task[Sent]") -> Sent:
    """An error is the connection's end, seen from a message that was under way."""
    if not task.done() or task.cancelled():
        return Sent.UNKNOWN
    error = task.exception()
    return task.result() if error is None else Sent.UNKNOWN
