"""A process's side of a broker: it consumes over one connection and publishes over another, and watches both.

There are two connections because a broker that is short of memory or disk stops reading from connections that publish,
and acknowledgements must not wait for that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from backstay.core.events import BrokerWiped, Trouble
from backstay.messaging.connection import Broken, ConnectionMeans, Link, reason_of
from backstay.messaging.messages import CONTENT_TYPE, PERSISTENT, OutgoingMessage, Queue, Topology
from backstay.messaging.queues import (
    Difference,
    Subscription,
    absent_queues,
    ask_depth,
    declare,
    has_exchange,
    open_channel,
)

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection
    from aiormq.channel import Channel
    from pamqp.commands import Basic


class SendResult(Enum):
    CONFIRMED = auto()  # it is in a queue
    UNROUTABLE = auto()  # there is no queue for it, and it came back
    REFUSED = auto()  # the broker refused it
    AWAY = auto()  # it was not sent
    UNKNOWN = auto()  # it was sent, and there was no answer


class Publisher:
    """Publishes over one channel with confirms; a second channel checks that the broker answers."""

    def __init__(self, means: ConnectionMeans, broken: Callable[[str], None]) -> None:
        self.connection: AbstractConnection | None = None
        self._means = means
        self._broken = broken
        self._channel: Channel | None = None
        self._asking: Channel | None = None
        self._sending = 0  # calls of `send` that are under way
        self._refused = False  # since the channel was opened

    async def open(self, connection: "AbstractConnection") -> None:
        self._channel, self._refused = await open_channel(connection, confirms=True), False
        self._asking = await open_channel(connection)
        self.connection = connection

    def close(self) -> None:
        self._channel = self._asking = self.connection = None

    async def check(self, exchange: str) -> None:
        if self._channel is None or self._channel.is_closed or self._asking is None:
            raise Broken("the channel was closed")
        await self._asking.exchange_declare(exchange, passive=True)

    async def send(self, outgoing: Sequence[OutgoingMessage]) -> list[SendResult]:
        """One result for each message. The messages of one call must have different ids: the driver needs that."""
        channel = self._channel
        if channel is None or channel.is_closed or not outgoing:
            return [SendResult.AWAY] * len(outgoing)
        self._sending += 1
        try:
            answers = await self._send_over(channel, outgoing)
        finally:
            self._sending -= 1
        self._refused = self._refused or SendResult.REFUSED in answers
        if self._refused and not self._sending and self._channel is channel:
            await self._renew(channel)
        return answers

    async def _send_over(self, channel: "Channel", outgoing: Sequence[OutgoingMessage]) -> list[SendResult]:
        now = self._means.clock.now_ms()
        tasks = [self._means.tasks.start(_send(channel, message, now)) for message in outgoing]
        _, late = await _wait(tasks, self._means.watch.publish_seconds)
        if late:
            for task in late:
                task.cancel()
            self._broken(f"{len(late)} messages were not confirmed in {self._means.watch.publish_seconds:g} s")
            await asyncio.wait(late, timeout=1.0)
        return [_answer(task) for task in tasks]

    async def _renew(self, channel: "Channel") -> None:
        """A channel that began to publish to a quorum queue while its leader died asks the dead node each time, and is
        refused until that node is back. A new channel asks the new leader."""
        self._channel = None
        try:
            async with asyncio.timeout(self._means.watch.answer_seconds):
                await channel.close()
                if self.connection is not None:
                    self._channel, self._refused = await open_channel(self.connection, confirms=True), False
        except Exception as error:
            self._broken(reason_of(error))


async def _wait(tasks: Sequence[asyncio.Task[Any]], seconds: float) -> tuple[set[Any], set[Any]]:
    try:
        return await asyncio.wait(tasks, timeout=seconds)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        raise


async def _send(channel: "Channel", message: OutgoingMessage, now_ms: int) -> SendResult:
    from aiormq.exceptions import DeliveryError
    from pamqp.commands import Basic

    try:
        answer = await channel.basic_publish(
            message.body,
            exchange=message.exchange,
            routing_key=message.routing_key,
            properties=properties_of(message, now_ms),
            mandatory=message.mandatory,
            wait=False,
        )
    except DeliveryError:
        return SendResult.REFUSED
    return SendResult.CONFIRMED if isinstance(answer, Basic.Ack) else SendResult.UNROUTABLE


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


def _answer(task: "asyncio.Task[SendResult]") -> SendResult:
    """An error means that the connection ended while the message was under way."""
    if not task.done() or task.cancelled():
        return SendResult.UNKNOWN
    error = task.exception()
    return task.result() if error is None else SendResult.UNKNOWN


Wiped = Callable[[], Awaitable[object]]


class Broker:
    """One life: start, stop. It also starts without a reachable broker, and keeps trying."""

    def __init__(
        self, means: ConnectionMeans, topology: Topology, wiped: Wiped | None = None, expected: bool = False
    ) -> None:
        """`wiped` is called when declared exchanges or queues are gone. With `expected` they should exist already at
        the first look."""
        self.topology = topology
        self.means = means
        self._wiped = wiped
        self._expected = expected
        self._owes_wiped = False  # messages were lost, and `wiped` has not succeeded yet
        self._subscriptions: list[Subscription] = []
        self._consumed: set[str] = set()  # queues that were there once
        self._absent: set[str] = set()  # of what was there once, before it was declared again
        self._down: set[str] = set()  # queues of nodes that are down
        self._preparing = asyncio.Lock()
        self._reported: set[str] = set()  # differences that were reported
        self._changed: list[Callable[[], None]] = []
        self._in: AbstractConnection | None = None
        self._asking: Channel | None = None  # of the consuming connection, for questions: a "no" closes the channel
        self._channel: Channel | None = None  # all messages are consumed over it
        self._consuming = Link("consume", means, self._open_consumers, self._check_consumers, self._in_changed)
        self._publishing = Link("publish", means, self._open_publisher, self._check_publisher, self._out_changed)
        self._publisher = Publisher(means, self._publishing.restart)

    # life

    def start(self) -> None:
        self._publishing.start()
        self._consuming.start()

    async def stop(self) -> None:
        await self._consuming.stop()
        await self._publishing.stop()

    @property
    def alive(self) -> bool:
        """Whether messages come in: every subscription has its consumer."""
        return self._consuming.up and all(subscription.channel is not None for subscription in self._subscriptions)

    @property
    def publishing(self) -> bool:
        """Whether messages can go out."""
        return self._publishing.up

    def when_changed(self, call: Callable[[], None]) -> None:
        """Called when `alive` or `publishing` may have changed."""
        self._changed.append(call)

    # incoming messages

    def consume(self, subscription: Subscription) -> None:
        """Consumes from now on, whenever the broker is reachable. A missing queue is declared."""
        self._subscriptions.append(subscription)
        self._consuming.nudge()

    # outgoing messages

    async def publish_many(self, outgoing: Sequence[OutgoingMessage]) -> list[bool]:
        """For each message, whether the broker has confirmed that it is in a queue. It raises no errors of the broker,
        and returns within a bounded time. A queue of ours that is missing, or was deleted by hand, is declared."""
        answers = await self._publisher.send(outgoing)
        lost = [at for at, sent in enumerate(answers) if sent is SendResult.UNROUTABLE]
        places = {(outgoing[at].exchange, outgoing[at].routing_key) for at in lost}
        queues = {queue.name: queue for place in places for queue in self.topology.behind(*place)}
        if queues and await self._declare_missing([queues[name] for name in sorted(queues)]):
            for at, sent in zip(lost, await self._publisher.send([outgoing[at] for at in lost]), strict=True):
                answers[at] = sent
        return [sent is SendResult.CONFIRMED for sent in answers]

    async def publish(self, outgoing: OutgoingMessage) -> bool:
        return (await self.publish_many([outgoing]))[0]

    async def _declare_missing(self, queues: Sequence[Queue]) -> bool:
        connection = self._publisher.connection
        if connection is None:
            return False
        try:
            self._report(await declare(connection, (), queues))
        except Exception as error:
            self._publishing.restart(reason_of(error))
            return False
        return True

    # both connections

    async def _prepare(self, connection: "AbstractConnection") -> None:
        """One connection after the other, so that a wipe is reported once."""
        async with self._preparing:
            await self._declare_all(connection)

    async def _declare_all(self, connection: "AbstractConnection") -> None:
        """Declares the exchanges and queues, and notices if earlier ones are gone."""
        await self._note_absent(connection)
        topology = self.topology
        consumed = [subscription.queue for subscription in self._subscriptions]
        fixed = {queue.name for queue in topology.fixed_queues}
        own = [queue for queue in consumed if queue.name not in fixed]
        differences = await declare(connection, topology.exchanges, (*topology.fixed_queues, *own))
        self._report(differences)
        self._down = {difference.name for difference in differences if difference.is_down}
        self._notice_wipe()
        self._expected = True
        self._consumed.update(queue.name for queue in consumed)
        self._pay_wiped()

    async def _note_absent(self, connection: "AbstractConnection") -> None:
        """Must run before anything is declared: if the connection breaks in between, the wipe could not be seen any
        more."""
        if self._expected and not await has_exchange(connection, self.topology.work):
            self._absent.add(self.topology.work)
        self._absent |= await absent_queues(connection, sorted(self._consumed))

    def _notice_wipe(self) -> None:
        """A queue that is down comes back with its node, and has lost nothing."""
        if self._absent - self._down:
            self._owes_wiped = True
            self.means.emit(BrokerWiped())
        self._absent.clear()

    def _pay_wiped(self) -> None:
        if self._owes_wiped and self._wiped is not None:
            self._owes_wiped = False
            self.means.tasks.spawn(self._call_wiped(self._wiped))

    async def _call_wiped(self, wiped: Wiped) -> None:
        try:
            await wiped()
        except Exception as error:
            self._owes_wiped = True  # the next look at the connection tries again
            self.means.emit(Trouble("broker", f"lost hints are not published again yet: {reason_of(error)}"))

    async def _open_publisher(self, connection: "AbstractConnection") -> None:
        await self._prepare(connection)
        await self._publisher.open(connection)

    async def _check_publisher(self) -> None:
        await self._publisher.check(self.topology.work)
        self._pay_wiped()

    async def _open_consumers(self, connection: "AbstractConnection") -> None:
        await self._prepare(connection)
        self._in, self._asking = connection, await open_channel(connection)
        self._channel = await open_channel(connection)  # one for all: a broker allows about 2,000 channels
        for subscription in self._subscriptions:
            # A new subscription has no queue yet.
            if subscription.queue.name in self._consumed - self._down:
                await subscription.open(self._channel)

    async def _check_consumers(self) -> None:
        connection, asking, channel = self._in, self._asking, self._channel
        if connection is None or asking is None or channel is None:
            return
        for subscription in list(self._subscriptions):
            if subscription.channel is None:
                differences = await declare(connection, (), [subscription.queue])
                self._report(differences)
                if any(difference.is_down for difference in differences):
                    continue
                await subscription.open(channel)
                self._consumed.add(subscription.queue.name)
                self._tell_changed()
            subscription.check(await ask_depth(asking, subscription.queue.name))

    def _in_changed(self) -> None:
        if not self._consuming.up:
            self._in = self._asking = self._channel = None
            for subscription in self._subscriptions:
                subscription.close()
        self._tell_changed()

    def _out_changed(self) -> None:
        if not self._publishing.up:
            self._publisher.close()
        self._tell_changed()

    def _tell_changed(self) -> None:
        for call in self._changed:
            call()

    def _report(self, differences: Sequence[Difference]) -> None:
        for difference in differences:
            if difference.problem not in self._reported:
                self._reported.add(difference.problem)
                self.means.emit(Trouble("broker", difference.problem))
