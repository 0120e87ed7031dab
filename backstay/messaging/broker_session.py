"""Runs a process with the broker of its settings, if there is one: connections, hints from the outbox, and hints for
its worker."""

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
from backstay.messaging.consumer import Consumer
from backstay.messaging.outbox_relay import relaying_all
from backstay.messaging.queues import depth_of
from backstay.messaging.topology import Topology
from backstay.settings import Settings
from backstay.store.store import Store

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection

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
