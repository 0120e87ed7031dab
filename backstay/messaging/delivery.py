"""A message in a consumer's hand, and the subscription that brings such messages."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from backstay.messaging.connection import Broken
from backstay.messaging.declaring import QueueDepth
from backstay.messaging.messages import Incoming
from backstay.messaging.topology import Queue

if TYPE_CHECKING:
    from aiormq.abc import DeliveredMessage
    from aiormq.channel import Channel

STILL_LOOKS_MAX: Final = 3  # at messages that wait while none comes


class MessageDelivery:
    """Hashable by itself: the same message delivered again is another delivery."""

    __slots__ = ("_channel", "_tag", "_taken", "message")

    def __init__(self, message: Incoming, channel: "Channel", tag: int, taken: "Taken") -> None:
        self.message = message
        self._channel = channel
        self._tag = tag
        self._taken = taken

    @property
    def open(self) -> bool:
        """Whether it can still be acknowledged; if not, it is delivered again."""
        return not self._channel.is_closed

    async def ack(self) -> None:
        """The broker may forget it. On a connection that is gone it means nothing: the message comes again."""
        self._taken.in_hand.discard(self._tag)
        with suppress(Exception):
            await self._channel.basic_ack(self._tag, wait=False)


@dataclass(slots=True)
class Taken:
    """What one consumer was given since its channel was opened."""

    in_hand: set[int] = field(default_factory=set)
    delivered: int = 0


@dataclass(eq=False, slots=True)
class Subscription:
    """`deliver` is called on the event loop with each message and must not wait; `lost` when all in hand is void."""

    queue: Queue
    prefetch: int
    deliver: Callable[[MessageDelivery], None]
    lost: Callable[[], None]
    channel: "Channel | None" = None
    tag: str = ""
    taken: Taken = field(default_factory=Taken)
    _seen: int = -1
    _still: int = 0

    async def open(self, channel: "Channel") -> None:
        self.channel, self.taken, self._seen, self._still = channel, Taken(), -1, 0
        taken = self.taken

        async def arrived(raw: "DeliveredMessage") -> None:
            tag = raw.delivery_tag or 0
            taken.delivered += 1
            taken.in_hand.add(tag)
            self.deliver(MessageDelivery(incoming(raw), channel, tag, taken))

        await channel.basic_qos(prefetch_count=self.prefetch)
        said = await channel.basic_consume(self.queue.name, arrived)
        self.tag = said.consumer_tag or ""

    def close(self) -> None:
        if self.channel is not None:
            self.channel = None
            self.lost()

    def check(self, depth: QueueDepth | None) -> None:
        """Raises unless messages would come. The driver says nothing of much that can happen to a consumer."""
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


def incoming(raw: "DeliveredMessage") -> Incoming:
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
