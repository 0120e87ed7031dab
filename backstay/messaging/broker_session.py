"""Runs a process with the broker of its settings, if there is one: connections, hints from the outbox, and hints for
its worker.

A `Consumer` holds the messages with hints until the items that they name were in a committed claim, then it
acknowledges them. A message that cannot be used goes to the dead queue with its reason; a message that came too early
goes back to wait. Both are acknowledged only when the broker has confirmed the copy, so that no message is lost.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Literal

from backstay.app import Backstay
from backstay.client import Client
from backstay.clock import DAY_MS, Tasks, cancel_until_ended, new_random
from backstay.core.errors import NotAllowed
from backstay.core.events import DeadMessagesDropped, Trouble
from backstay.messaging.broker import Broker
from backstay.messaging.connection import WATCH, ConnectionMeans, LinkWatch, check_url, connect_once, require_aio_pika
from backstay.messaging.messages import Topology
from backstay.messaging.outbox_relay import relaying_all
from backstay.messaging.queues import depth_of
from backstay.settings import Settings
from backstay.store.store import Store

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection
import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial

from backstay.clock import wait_for_event
from backstay.core.events import MessageSetAside
from backstay.core.ids import show_item
from backstay.engine.hints import HeldMessages
from backstay.messaging.connection import CLOSE_SECONDS
from backstay.messaging.messages import PRIORITY_MAX, OutgoingMessage, Poison, Work, read_work, send_work, set_aside
from backstay.messaging.queues import MessageDelivery, Subscription

PREFETCH_MAX: Final = 100  # held messages of one handler, of up to 50 items each
TEND_SECONDS: Final = 1.0

# Returns those of these items that exist.
FindItems = Callable[[Sequence[int]], Awaitable[Collection[int]]]


class Consumer:
    """One life: start, stop. It is the worker's `Hints`."""

    def __init__(
        self,
        broker: Broker,
        handlers: Callable[[], Iterable[str]],
        concurrency: int,
        find_items: FindItems,
    ) -> None:
        self._broker = broker
        self._means = broker.means
        self._handlers = handlers
        self._prefetch = min(max(concurrency, 1), PREFETCH_MAX)
        self._find_items = find_items
        self._consumed: set[str] = set()
        self._hands: dict[int, HeldMessages[MessageDelivery]] = {
            priority: HeldMessages() for priority in range(PRIORITY_MAX, -1, -1)
        }
        self._wake: Callable[[], None] = _ignore
        self._over: list[MessageDelivery] = []  # to be acknowledged
        self._missed: list[MessageDelivery] = []  # to be looked up, because none of their items could be claimed
        # To be published elsewhere, then acknowledged.
        self._moves: list[tuple[MessageDelivery, OutgoingMessage, str]] = []
        self._something_over, self._something_moves = asyncio.Event(), asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        broker.when_changed(self._note_change)

    def start(self) -> None:
        self._subscribe()
        spawn = self._means.tasks.spawn
        self._loops = [spawn(self._tend()), spawn(self._move())]

    async def stop(self) -> None:
        """Acknowledges the messages that are done; the broker delivers the held ones again, to other workers."""
        await cancel_until_ended(self._loops)
        with suppress(TimeoutError):  # if the connection hangs, the broker delivers the messages again
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._acknowledge()
        self._note_loss()

    # for the worker

    @property
    def alive(self) -> bool:
        return self._broker.alive

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def take(self, handler: str, n: int) -> list[int]:
        """The highest priority first. An item that is named twice is returned once."""
        items: dict[int, None] = {}
        for hand in self._hands.values():
            if len(items) < n and len(hand):
                items.update(dict.fromkeys(hand.take(handler, n)))
        return list(items)[:n]

    def mark_done(self, ids: Iterable[int], missed: Collection[int] = ()) -> None:
        ids = list(ids)
        for hand in self._hands.values():
            if len(hand):
                over = hand.mark_done(ids, missed)
                self._over += over.served
                self._missed += over.missed
        self._something_over.set()

    # incoming messages

    def _subscribe(self) -> None:
        """Subscribes to the queues of all handlers; a lane may open while the worker runs."""
        for handler in self._handlers():
            if handler not in self._consumed:
                self._consumed.add(handler)
                queue = self._broker.topology.work_queue(handler)
                receive = partial(self._receive, handler)
                self._broker.consume(Subscription(queue, self._prefetch, receive, self._note_loss))

    def _receive(self, handler: str, delivery: MessageDelivery) -> None:
        message, topology = delivery.message, self._broker.topology
        work = read_work(message)
        if isinstance(work, Work) and work.handler != handler:
            work = Poison(f"is for the handler {work.handler[:60]!r}, not {handler[:60]!r}")
        if isinstance(work, Poison):
            self._move_to(delivery, set_aside(topology, message, work.reason), work.reason)
        elif work.rest_ms:
            self._move_to(delivery, send_work(topology, work, work.rest_ms), "")
        else:
            hand = self._hands[min(max(work.priority, 0), PRIORITY_MAX)]
            hand.put(delivery, handler, work.items, self._means.clock.monotonic())
            self._wake()

    def _move_to(self, delivery: MessageDelivery, outgoing: OutgoingMessage, reason: str) -> None:
        self._moves.append((delivery, outgoing, reason))
        self._something_moves.set()

    def _note_loss(self) -> None:
        """The held messages cannot be acknowledged any more; the broker delivers them again."""
        for hand in self._hands.values():
            hand.clear()

    def _note_change(self) -> None:
        self._wake()

    # acknowledgements and moves

    async def _tend(self) -> None:
        while True:
            await wait_for_event(self._something_over, TEND_SECONDS)
            self._something_over.clear()
            now = self._means.clock.monotonic()
            self._over += [delivery for hand in self._hands.values() for delivery in hand.overdue(now)]
            await self._acknowledge()
            await self._look_up()
            self._subscribe()

    async def _acknowledge(self) -> None:
        while self._over:
            await self._over.pop().ack()

    async def _look_up(self) -> None:
        """Looks up the items of messages that no claim could win: such a message is a copy of an earlier one, or its
        items do not exist. While the database is not reachable, the messages are kept."""
        missed = {delivery: read_work(delivery.message) for delivery in self._missed if delivery.open}
        wanted = sorted({item for work in missed.values() if isinstance(work, Work) for item in work.items})
        self._missed.clear()
        try:
            known = frozenset(await self._find_items(wanted) if wanted else ())
        except Exception as error:
            self._missed.extend(missed)
            self._means.emit(Trouble("look-up of hinted items", f"{type(error).__name__}: {error}"))
            return
        for delivery, work in missed.items():
            unknown = [item for item in work.items if item not in known] if isinstance(work, Work) else []
            if unknown:
                reason = f"there is no item {show_item(unknown[0])}"
                self._move_to(delivery, set_aside(self._broker.topology, delivery.message, reason), reason)
            else:
                self._over.append(delivery)
        await self._acknowledge()

    async def _move(self) -> None:
        while True:
            await wait_for_event(self._something_moves, TEND_SECONDS)
            self._something_moves.clear()
            moves = [move for move in self._moves if move[0].open]
            self._moves = []
            if not moves:
                continue
            # A message may be here twice, but the driver needs different ids in one call.
            unlike = list({outgoing.message_id or str(at): at for at, (_, outgoing, _) in enumerate(moves)}.values())
            confirmed = await self._broker.publish_many([moves[at][1] for at in unlike])
            gone = {at for at, sent in zip(unlike, confirmed, strict=True) if sent}
            for at in sorted(gone):
                delivery, outgoing, reason = moves[at]
                await delivery.ack()
                if reason:
                    self._means.emit(MessageSetAside(outgoing.routing_key or outgoing.exchange, reason))
            self._moves.extend(move for at, move in enumerate(moves) if at not in gone)


def _ignore() -> None:
    return None


BOUNDS_SECONDS: Final = 60.0
AWAY_SECONDS: Final = 1.0  # the same, while there is no connection
BOUNDS_MS: Final = 50_000  # between two looks at the dead queue, by any process
# How often the oldest message is looked at before it is too old. Not more often, because a quorum queue counts each
# look as a failed delivery, and drops a message after too many of them.
AGE_LOOKS: Final = 100
REPUBLISH_MS: Final = 60_000  # within which all processes that had a connection notice that the broker was wiped


def topology_of(settings: Settings) -> Topology:
    return Topology(
        settings.broker_prefix, settings.broker_queues, settings.broker_dead_messages, settings.broker_dead_days
    )


class Republishing:
    """Writes hints again for all ready items when the broker has lost them. Many processes notice it; one does it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._mine = False  # it began in this process, and has not ended

    async def __call__(self) -> None:
        self._mine = self._mine or await self._store.duties.take("republish", REPUBLISH_MS)
        if self._mine:
            await self._store.outbox.republish()
            self._mine = False


class DeadQueueBounds:
    """Keeps the dead queue within its bounds. Many processes look; one does it, and reports the dropped messages."""

    def __init__(self, store: Store, broker: Broker) -> None:
        self._duties = store.duties
        self._broker = broker
        self._means = broker.means

    async def run(self) -> None:
        while True:
            try:
                await self.run_once()
            except Exception as error:
                self._means.emit(Trouble("dead queue", f"{type(error).__name__}: {error}"))
            await self._means.clock.sleep(BOUNDS_SECONDS if self._broker.publishing else AWAY_SECONDS)

    async def run_once(self) -> None:
        if self._broker.publishing and await self._duties.take("dead queue", BOUNDS_MS):
            async with connect_once(self._means.url, "backstay dead queue") as connection:
                await self._keep(connection)

    async def _keep(self, connection: "AbstractConnection") -> None:
        from backstay.messaging.dead_queue import DeadQueue

        topology = self._broker.topology
        depth = await depth_of(connection, topology.dead)
        if depth is None or not depth.messages:
            return
        queue = DeadQueue(connection, topology, self._means.clock)
        age_ms = int(topology.dead_days * DAY_MS)
        try:
            if depth.messages > topology.dead_messages:
                self._tell(await queue.drop_oldest(depth.messages - topology.dead_messages), "count")
            if await self._duties.take("dead queue age", max(age_ms // AGE_LOOKS, BOUNDS_MS)):
                self._tell(await queue.drop_expired(age_ms), "age")
        except NotAllowed:
            return  # a replay is running; the next look does it

    def _tell(self, messages: int, bound: Literal["count", "age"]) -> None:
        if messages:
            self._means.emit(DeadMessagesDropped(self._broker.topology.dead, messages, bound))


@asynccontextmanager
async def broker_here(app: Backstay, client: Client, watch: LinkWatch = WATCH) -> AsyncIterator[Broker | None]:
    """While the block runs, there is a connection to the broker of the settings. If the broker is not reachable, the
    block runs nevertheless, and the connection is tried again and again."""
    url = app.settings.broker_url
    if url is None:
        yield None
        return
    require_aio_pika()
    check_url(url)
    tasks = Tasks()
    # If the sink is open, the exchanges were declared before: if they are missing, the broker was wiped.
    expected = await client.store.outbox.is_open()
    means = ConnectionMeans(url, "backstay", client.clock, tasks, new_random(), app.bus.emit, watch)
    broker = Broker(means, topology_of(app.settings), Republishing(client.store), expected)
    broker.start()
    bounds = tasks.spawn(DeadQueueBounds(client.store, broker).run(), name="dead queue")
    try:
        yield broker
    finally:
        await cancel_until_ended([bounds])
        await broker.stop()
        await tasks.stop()


@asynccontextmanager
async def dispatching(
    app: Backstay, client: Client, broker: Broker | None, concurrency: int
) -> AsyncIterator[Consumer | None]:
    """While the block runs, hints are published to the broker, and the worker gets those that come in."""
    if broker is None:
        yield None
        return

    async def jobs_known(items: Sequence[int]) -> Collection[int]:
        return await client.store.item_views.by_ids(items)

    consumer = Consumer(broker, lambda: [handler.name for handler in app.handlers], concurrency, jobs_known)
    async with relaying_all(app, client, broker):
        consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()
