"""A relay that publishes and then never comes to mark what it has published: `DATABASE BROKER PREFIX`."""

import asyncio
import sys
from collections.abc import Sequence

from backstay.clock import Clock, Tasks, new_random
from backstay.messaging.broker import Broker
from backstay.messaging.link import Means
from backstay.messaging.topology import Topology
from backstay.observe.bus import Bus
from backstay.run.outbox_relay import OutboxRelay
from backstay.store.outbox import Outbox
from tests.sites import Leaping, Site


class Hanging(Outbox):
    async def published(self, ids: Sequence[int]) -> None:
        if ids:  # else nothing was confirmed, and it tries again
            print("confirmed", flush=True)
            await asyncio.Event().wait()


async def main(database: str, broker_url: str, prefix: str) -> None:
    site = Site(database, Leaping())
    store = await site.open_store()
    bus = Bus()
    broker = Broker(Means(broker_url, "test", Clock(), Tasks(), new_random(), bus.emit), Topology(prefix))
    broker.start()
    OutboxRelay(Hanging(store._db), broker, Clock(), bus, new_random()).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
