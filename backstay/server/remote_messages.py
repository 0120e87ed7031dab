"""Remote work over a broker: requests out, callbacks in, by the same handler, tags and inbox as over HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from backstay.clock import Clock, new_random
from backstay.core.callbacks import Told
from backstay.core.errors import NotAllowed, NotFound
from backstay.handlers.over_messages import OverMessages
from backstay.messaging.broker import Broker
from backstay.messaging.callback_reader import CallbackReader
from backstay.messaging.messages import Poison
from backstay.observe.bus import Bus
from backstay.server.seals import Seals
from backstay.settings import Settings
from backstay.store.inbox import InboxMessages


class Desk:
    """Where callbacks are taken in: only for what was sent from here, and written down before anything else."""

    def __init__(self, inbox: InboxMessages, seals: Seals) -> None:
        self._inbox = inbox
        self._seals = seals

    async def receive(self, told: Told) -> Poison | None:
        opened = await self._seals.open(told.item, told.fence, told.tag)
        if opened is None:
            return Poison("its tag does not fit")
        try:
            await self._inbox.receive(*opened, told.callback)
        except (NotFound, NotAllowed) as error:
            return Poison(error.message)
        return None


@asynccontextmanager
async def over_messages(
    broker: Broker, settings: Settings, inbox: InboxMessages, seals: Seals, clock: Clock, bus: Bus
) -> AsyncIterator[OverMessages]:
    """The way out while the block runs, and the reader of what comes back."""
    from backstay.messaging.requests import Requests  # needs the extra, which a process without a broker need not have

    requests = Requests(settings.broker_url or "", clock)
    reader = CallbackReader(broker, Desk(inbox, seals).receive, clock, new_random(), bus.emit)
    topology = broker.topology
    named = frozenset(name.strip() for name in settings.remote_exchanges.split(",") if name.strip())
    reader.start()
    try:
        place = {"exchange": topology.callbacks, "routing_key": topology.callbacks}
        yield OverMessages(requests, place, topology.prefix, named, seals.tag, seals.sign)
    finally:
        await reader.stop()
        await requests.close()
