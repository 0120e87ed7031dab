"""Declares a topology on a broker, and says what is there."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

from backstay.core.errors import NotAllowed
from backstay.messaging.connection import reason_of
from backstay.messaging.topology import Exchange, Queue

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection
    from aiormq.channel import Channel


class QueueDepth(NamedTuple):
    """What a broker says about a queue."""

    messages: int  # that are ready; those in a consumer's hand are not counted
    consumers: int


class Difference(NamedTuple):
    """Something that is there, but not as it would be declared now."""

    name: str
    reason: str


async def open_channel(connection: "AbstractConnection", confirms: bool = False) -> "Channel":
    """The driver's own channel, without what aio-pika puts around it."""
    if connection.transport is None:
        raise ConnectionError("the connection was closed")
    await connection.transport.ready()
    under = connection.transport.connection
    return cast("Channel", await under.channel(publisher_confirms=confirms, on_return_raises=False))


async def has_exchange(connection: "AbstractConnection", name: str) -> bool:
    """Asked on a channel of its own, because a no closes it."""
    from aiormq.exceptions import ChannelNotFoundEntity

    channel = await open_channel(connection)
    try:
        await channel.exchange_declare(name, passive=True)
    except ChannelNotFoundEntity:
        return False
    await channel.close()
    return True


async def have_queues(connection: "AbstractConnection", names: Iterable[str]) -> bool:
    """Whether all of them are there."""
    channel = await open_channel(connection)
    for name in names:
        if await ask_depth(channel, name) is None:
            return False
    await channel.close()
    return True


async def depth_of(connection: "AbstractConnection", name: str) -> QueueDepth | None:
    """None if there is no such queue. It uses its own channel, because a missing queue closes the channel."""
    channel = await open_channel(connection)
    depth = await ask_depth(channel, name)
    if depth is not None:
        await channel.close()
    return depth


async def ask_depth(channel: "Channel", name: str) -> QueueDepth | None:
    """None if there is no such queue, and then the channel is closed."""
    from aiormq.exceptions import ChannelNotFoundEntity

    try:
        said = await channel.queue_declare(name, passive=True)
    except ChannelNotFoundEntity:
        return None
    return QueueDepth(said.message_count or 0, said.consumer_count or 0)


async def declare(
    connection: "AbstractConnection", exchanges: Iterable[Exchange], queues: Iterable[Queue]
) -> list[Difference]:
    """Declares what is missing. What is there with other arguments stays as it is, and is told of: a broker changes
    none, and to delete a queue is a person's business."""
    from aiormq.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed

    differences: list[Difference] = []
    channel = await open_channel(connection)
    for exchange in exchanges:
        try:
            await channel.exchange_declare(exchange.name, exchange_type=exchange.type, durable=True)
        except ChannelPreconditionFailed as error:
            differences.append(Difference(exchange.name, reason_of(error)))
            channel = await open_channel(connection)
    for queue in queues:
        try:
            await channel.queue_declare(queue.name, durable=True, arguments=dict(queue.arguments))
        except ChannelPreconditionFailed as error:
            differences.append(Difference(queue.name, reason_of(error)))
            channel = await open_channel(connection)
        try:
            await channel.queue_bind(queue.name, queue.exchange, queue.routing_key)
        except ChannelNotFoundEntity:
            if not differences or differences[-1].name != queue.name:
                raise
            # It was refused, and not because there is another one: there may be no more queues in this vhost.
            raise NotAllowed(f"the broker refuses the queue {queue.name}: {differences[-1].reason}") from None
    await channel.close()
    return differences
