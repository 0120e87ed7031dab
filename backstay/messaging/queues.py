"""Queues on a channel: declares, inspects and consumes them; and a message that a consumer holds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from backstay.core.errors import NotAllowed
from backstay.messaging.connection import Broken, reason_of
from backstay.messaging.messages import Exchange, Incoming, Queue, Topology

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection
    from aiormq.abc import DeliveredMessage
    from aiormq.channel import Channel


class QueueDepth(NamedTuple):
    """The numbers of a queue, as the broker reports them."""

    messages: int  # ready ones; messages that a consumer holds are not counted
    consumers: int


class Difference(NamedTuple):
    """An exchange or queue that exists with other arguments than it would be declared with now, or a queue that is on a
    node of the cluster that is down."""

    name: str
    reason: str
    is_down: bool = False

    @property
    def problem(self) -> str:
        if self.is_down:
            quorum = "a quorum queue goes on without that node, see BACKSTAY_BROKER_QUEUES"
            return f"{self.name} is on a node of the cluster that is down: {self.reason}; {quorum}"
        return f"{self.name} differs from the present declaration: {self.reason}"


async def open_channel(connection: "AbstractConnection", confirms: bool = False) -> "Channel":
    """The driver's own channel, without the wrapper of aio-pika."""
    if connection.transport is None:
        raise ConnectionError("the connection was closed")
    await connection.transport.ready()
    under = connection.transport.connection
    return cast("Channel", await under.channel(publisher_confirms=confirms, on_return_raises=False))


async def has_exchange(connection: "AbstractConnection", name: str) -> bool:
    """It uses its own channel, because a "no" closes the channel."""
    from aiormq.exceptions import ChannelNotFoundEntity

    channel = await open_channel(connection)
    try:
        await channel.exchange_declare(name, passive=True)
    except ChannelNotFoundEntity:
        return False
    await channel.close()
    return True


async def absent_queues(connection: "AbstractConnection", names: Iterable[str]) -> set[str]:
    """Those of these queues that do not exist, or are on a node that is down."""
    return {name for name in names if await depth_of(connection, name) is None}


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
        answer = await channel.queue_declare(name, passive=True)
    except ChannelNotFoundEntity:
        return None
    return QueueDepth(answer.message_count or 0, answer.consumer_count or 0)


async def declare(
    connection: "AbstractConnection", exchanges: Iterable[Exchange], queues: Iterable[Queue]
) -> list[Difference]:
    """Declares missing exchanges and queues. Existing ones with other arguments stay as they are and are reported: a
    broker cannot change them, and only a person may delete a queue. So are queues of a node that is down."""
    from aiormq.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed

    differences: list[Difference] = []
    channel = await open_channel(connection)
    for exchange in exchanges:
        try:
            await channel.exchange_declare(
                exchange.name, exchange_type=exchange.type, durable=True, arguments=dict(exchange.arguments)
            )
        except ChannelPreconditionFailed as error:
            differences.append(Difference(exchange.name, reason_of(error)))
            channel = await open_channel(connection)
    for queue in queues:
        try:
            await channel.queue_declare(queue.name, durable=True, arguments=dict(queue.arguments))
        except ChannelPreconditionFailed as error:
            differences.append(Difference(queue.name, reason_of(error)))
            channel = await open_channel(connection)
        except ChannelNotFoundEntity as error:  # it is known, or else it would have been made
            differences.append(Difference(queue.name, reason_of(error), is_down=True))
            channel = await open_channel(connection)
            continue
        try:
            await channel.queue_bind(queue.name, queue.exchange, queue.routing_key)
        except ChannelNotFoundEntity:
            if not differences or differences[-1].name != queue.name:
                raise
            # The queue does not exist and was refused: the vhost may have a limit of queues.
            raise NotAllowed(f"the broker refuses the queue {queue.name}: {differences[-1].reason}") from None
    await channel.close()
    return differences


class BrokerFault(Enum):
    """A fault of an exchange or queue."""

    MISSING = auto()
    DIFFERENT = auto()  # declared with other arguments than it would be now
    UNUSABLE = auto()  # it holds messages that no worker could process
    FULL = auto()  # as many of them as it may keep
    UNCONSUMED = auto()


_PROBLEMS: Final = {
    BrokerFault.MISSING: "missing",
    BrokerFault.UNUSABLE: "no worker could process these messages: see `backstay broker replay`",
    BrokerFault.FULL: "full: the oldest messages are dropped. See `backstay broker replay`",
    BrokerFault.UNCONSUMED: "messages wait and no worker consumes them",
}


@dataclass(frozen=True, slots=True)
class InspectedPart:
    """One exchange or queue. An exchange, and a missing queue, have no numbers. `fault` is for programs; `problem` says
    the same to people."""

    kind: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)  # as they would be declared now
    messages: int | None = None
    consumers: int | None = None
    fault: BrokerFault | None = None
    difference: str = ""  # the broker's message about a declaration that differs

    @property
    def problem(self) -> str:
        return "" if self.fault is None else _PROBLEMS.get(self.fault, self.difference)


async def inspect(connection: "AbstractConnection", topology: Topology, handlers: Iterable[str]) -> list[InspectedPart]:
    found = [await _exchange(connection, exchange) for exchange in topology.exchanges]
    for queue in topology.queues(handlers):
        found.append(await _queue(connection, topology, queue))
    return found


async def _exchange(connection: "AbstractConnection", exchange: Exchange) -> InspectedPart:
    found = InspectedPart("exchange", exchange.name, {"type": exchange.type, **exchange.arguments})
    if not await has_exchange(connection, exchange.name):
        return replace(found, fault=BrokerFault.MISSING)
    # A declaration with the same arguments changes nothing; one with other arguments is reported.
    return _compare(found, await declare(connection, [exchange], ()))


async def _queue(connection: "AbstractConnection", topology: Topology, queue: Queue) -> InspectedPart:
    depth = await depth_of(connection, queue.name)
    if depth is None:
        return InspectedPart("queue", queue.name, queue.arguments, fault=BrokerFault.MISSING)
    fault = _fault(topology, queue, depth)
    found = InspectedPart("queue", queue.name, queue.arguments, depth.messages, depth.consumers, fault)
    return _compare(found, await declare(connection, (), [queue]))


def _compare(found: InspectedPart, differences: Sequence[Difference]) -> InspectedPart:
    if not differences:
        return found
    return replace(found, fault=BrokerFault.DIFFERENT, difference=differences[0].reason)


def _fault(topology: Topology, queue: Queue, depth: QueueDepth) -> BrokerFault | None:
    if queue.name == topology.dead and depth.messages:
        return BrokerFault.FULL if depth.messages >= topology.dead_messages else BrokerFault.UNUSABLE
    if queue.exchange in (topology.work, topology.callbacks) and depth.messages and not depth.consumers:
        return BrokerFault.UNCONSUMED
    return None


STILL_LOOKS_MAX: Final = 3  # looks at waiting messages of which none is delivered


class MessageDelivery:
    """A message that a consumer holds. If it is delivered again, that is another delivery."""

    __slots__ = ("_channel", "_tag", "_taken", "message")

    def __init__(self, message: Incoming, channel: "Channel", tag: int, taken: "TakenMessages") -> None:
        self.message = message
        self._channel = channel
        self._tag = tag
        self._taken = taken

    @property
    def open(self) -> bool:
        """Whether it can still be acknowledged; if not, it is delivered again."""
        return not self._channel.is_closed

    async def ack(self) -> None:
        """Acknowledges the message. If the connection is gone, that has no effect: the message comes again."""
        self._taken.in_hand.discard(self._tag)
        with suppress(Exception):
            await self._channel.basic_ack(self._tag, wait=False)


@dataclass(slots=True)
class TakenMessages:
    """The messages that one consumer got since its channel was opened."""

    in_hand: set[int] = field(default_factory=set)
    delivered: int = 0


@dataclass(eq=False, slots=True)
class Subscription:
    """`deliver` is called on the event loop with each message and must not wait; `lost` is called when held messages
    can no longer be acknowledged."""

    queue: Queue
    prefetch: int
    deliver: Callable[[MessageDelivery], None]
    lost: Callable[[], None]
    channel: "Channel | None" = None
    tag: str = ""
    taken: TakenMessages = field(default_factory=TakenMessages)
    _seen: int = -1
    _still: int = 0

    async def open(self, channel: "Channel") -> None:
        self.channel, self.taken, self._seen, self._still = channel, TakenMessages(), -1, 0
        taken = self.taken

        async def receive(raw: "DeliveredMessage") -> None:
            tag = raw.delivery_tag or 0
            taken.delivered += 1
            taken.in_hand.add(tag)
            self.deliver(MessageDelivery(read_incoming(raw), channel, tag, taken))

        await channel.basic_qos(prefetch_count=self.prefetch)
        answer = await channel.basic_consume(self.queue.name, receive)
        self.tag = answer.consumer_tag or ""

    def close(self) -> None:
        if self.channel is not None:
            self.channel = None
            self.lost()

    def check(self, depth: QueueDepth | None) -> None:
        """Raises if no messages would come. The driver does not report everything that can happen to a consumer."""
        if depth is None:
            raise Broken(f"the queue {self.queue.name} is gone")
        if self.channel is None or self.channel.is_closed:
            raise Broken(f"the channel of {self.queue.name} was closed")
        if depth.consumers == 0 or self.tag not in self.channel.consumers:
            raise Broken(f"the consumer of {self.queue.name} is gone")
        quiet = depth.messages > 0 and not self.taken.in_hand and self.taken.delivered == self._seen
        self._still = self._still + 1 if quiet else 0
        self._seen = self.taken.delivered
        if self._still >= STILL_LOOKS_MAX:
            raise Broken(f"messages wait in {self.queue.name}, but none is delivered")


def read_incoming(raw: "DeliveredMessage") -> Incoming:
    properties = raw.header.properties
    return Incoming(
        bytes(raw.body),
        properties.message_id or "",
        properties.message_type or "",
        getattr(raw.delivery, "routing_key", None) or "",
        properties.priority or 0,
        bool(getattr(raw.delivery, "redelivered", False)),
        dict(properties.headers or {}),
    )
