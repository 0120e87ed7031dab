"""An outbox full of hints, and a relay between it and a real broker."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from backstay.client import Client
from backstay.clock import Clock, new_random
from backstay.core.events import Event, Trouble
from backstay.core.limits import Limits
from backstay.messaging.broker import Broker
from backstay.messaging.messages import Incoming, Topology
from backstay.messaging.outbox_relay import OutboxRelay
from backstay.observe.bus import Bus
from backstay.store.store import Store
from tests.databases import Site
from tests.messaging.rig import QUICK, Bystander, Scene, until

# On a busy machine a batch takes its time, and what is taken for lost is published twice.
PATIENT = replace(QUICK, answer_seconds=10.0, publish_seconds=30.0)
# A second apart, so that what is older is so beyond doubt; long ago, whatever the site's clock says.
LONG_AGO_MS = 1_000_000_000_000
ADD = """
    INSERT INTO outbox (owner, aggregate_type, aggregate_id, message_type, payload, created_at, due_at, sink)
    WITH RECURSIVE numbers(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM numbers WHERE i < {last})
    SELECT 'ann', 'items', CAST(i AS text), 'work.ready', {payload}, {at} + 1000 * i, {at} + 1000 * i, 'work'
    FROM numbers
"""
HINT = """'{"handler": "echo", "priority": 0, "first": ' || i || ', "count": 1}'"""


class Office:
    """One database's outbox, and as many relays as a test wants."""

    def __init__(self, site: Site, store: Store, url: str, topology: Topology) -> None:
        self.site = site
        self.store = store
        self.url = url
        self.topology = topology
        self.bystander = Bystander(url)
        self.events: list[Event] = []
        self.bus = Bus()
        self.bus.subscribe(self.events.append)
        self.client = Client(store, "ann", Limits(), site.clock, self.bus)

    async def add(self, first: int, last: int, payload: str = HINT) -> None:
        """Rows of numbers in a row; on a fresh database the numbers are their ids."""
        await self.site.rows(ADD.format(first=first, last=last, payload=payload, at=LONG_AGO_MS))

    @asynccontextmanager
    async def relaying(self, broker: Broker) -> AsyncIterator[OutboxRelay]:
        relay = OutboxRelay(self.store.outbox, broker, Clock(), self.bus, new_random())
        relay.start()
        try:
            yield relay
        finally:
            await relay.stop()

    @asynccontextmanager
    async def relay(self, url: str | None = None) -> AsyncIterator[Broker]:
        """A relay with a broker of its own, as in a process of its own."""
        scene = Scene(url or self.url, self.topology, PATIENT)
        scene.means = replace(scene.means, emit=self.events.append)
        async with scene.broker() as broker, self.relaying(broker):
            yield broker

    async def pending(self) -> int:
        return int(await self.site.one("SELECT count(*) FROM outbox WHERE status = 'pending'"))

    async def all_left(self, seconds: float = 60.0) -> None:
        async def none_pending() -> bool:
            return await self.pending() == 0

        await until(none_pending, seconds)

    async def delivered(self, handler: str = "echo") -> list[Incoming]:
        return await self.bystander.take_all(self.topology.work_queue(handler).name)

    async def tries(self) -> list[int]:
        return [row[0] for row in await self.site.rows("SELECT retry_count FROM outbox ORDER BY id")]

    def troubles(self) -> Sequence[Trouble]:
        return [event for event in self.events if isinstance(event, Trouble)]
