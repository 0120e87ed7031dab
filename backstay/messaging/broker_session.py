"""A process's share in a broker, if it has one: connections, hints out of the outbox, and hints for its worker."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Final

from backstay.app import Backstay
from backstay.client import Client
from backstay.clock import Tasks, new_random
from backstay.messaging.broker import Broker
from backstay.messaging.connection import WATCH, LinkWatch, Means, check_url, require_aio_pika
from backstay.messaging.consumer import Consumer
from backstay.messaging.outbox_relay import relaying_all
from backstay.messaging.topology import Topology
from backstay.settings import Settings
from backstay.store.store import Store

REPUBLISH_MS: Final = 60_000  # within which all processes that had a connection notice that the broker was wiped


def topology_of(settings: Settings) -> Topology:
    return Topology(settings.broker_prefix, settings.broker_queues)


class Republishing:
    """Writes hints again for all ready items when the broker has lost them: many processes notice, one does it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._mine = False  # it was begun here, and has not come to its end

    async def __call__(self) -> None:
        self._mine = self._mine or await self._store.duties.take("republish", REPUBLISH_MS)
        if self._mine:
            await self._store.outbox.republish()
            self._mine = False


@asynccontextmanager
async def broker_here(app: Backstay, client: Client, watch: LinkWatch = WATCH) -> AsyncIterator[Broker | None]:
    """While the block runs there is the broker that the settings name. If it is away, it is called for until it comes:
    the block runs all the same."""
    url = app.settings.broker_url
    if url is None:
        yield None
        return
    require_aio_pika()
    check_url(url)
    tasks = Tasks()
    # With the sink open somebody has declared the exchanges before: if they are not there, the broker was wiped.
    expected = await client.store.outbox.is_open()
    means = Means(url, "backstay", client.clock, tasks, new_random(), app.bus.emit, watch)
    broker = Broker(means, topology_of(app.settings), Republishing(client.store), expected)
    broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
        await tasks.stop()


@asynccontextmanager
async def dispatching(
    app: Backstay, client: Client, broker: Broker | None, concurrency: int
) -> AsyncIterator[Consumer | None]:
    """While the block runs hints leave for the broker, and the worker is given those that come in."""
    if broker is None:
        yield None
        return

    async def jobs_known(items: Sequence[int]) -> Collection[int]:
        return await client.store.item_views.named(items)

    consumer = Consumer(broker, lambda: [handler.name for handler in app.handlers], concurrency, jobs_known)
    async with relaying_all(app, client, broker):
        consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()
