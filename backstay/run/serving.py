"""Lets a worker or a tick do what runs have queued: it opens the lanes that unfinished jobs need, now and later."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from backstay.app import Backstay
from backstay.client import Client
from backstay.clock import Tasks
from backstay.core.errors import DatabaseUnreachable
from backstay.core.events import Trouble
from backstay.run.lanes import Lanes
from backstay.run.order import BATCH_REQUESTS_MAX

LOOK_SECONDS = 2.0


@asynccontextmanager
async def serving(app: Backstay, client: Client, concurrency: int) -> AsyncIterator[int]:
    """While the block runs, the lanes of new jobs are opened as they come. Gives how many items to hold at once: where
    there are only lanes, more than are called at once, because requests that go together in a batch are held together.
    """
    slots = concurrency if len(app.handlers) else max(concurrency, BATCH_REQUESTS_MAX)
    lanes, tasks = Lanes(app, concurrency), Tasks()
    await lanes.open_all(client.store, app.bus)
    looking = tasks.spawn(_look(app, client, lanes))
    try:
        yield slots
    finally:
        looking.cancel()
        await lanes.close()


async def _look(app: Backstay, client: Client, lanes: Lanes) -> None:
    while True:
        await client.clock.sleep(LOOK_SECONDS)
        try:
            await lanes.open_all(client.store, app.bus)
        except DatabaseUnreachable as error:
            app.bus.emit(Trouble("lanes", str(error)))
