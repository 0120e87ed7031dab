"""The lanes that are open in this process: endpoints as handlers, each with its own connections."""

from contextlib import AsyncExitStack
from dataclasses import replace

from backstay.core.errors import UsageError
from backstay.core.events import Trouble
from backstay.handlers.handler import Handler
from backstay.handlers.registry import Registry
from backstay.llm.background import BackgroundHandler
from backstay.llm.batch import BatchHandler
from backstay.llm.call import CallHandler
from backstay.llm.credentials import key_of
from backstay.llm.endpoint import Endpoint, Lane, load_endpoint
from backstay.llm.wire import OWN, Wire
from backstay.observe.bus import Bus
from backstay.run.order import ITEM_SECONDS
from backstay.store.store import Store


class Lanes:
    def __init__(self, registry: Registry, calls_max: int, http: str = OWN) -> None:
        self._registry = registry
        self._calls_max = calls_max
        self._http = http
        self._closing = AsyncExitStack()
        self._refused: set[str] = set()

    async def open(self, endpoint: Endpoint) -> Handler:
        """The handler of an endpoint; it is there from now on."""
        if endpoint.name in self._registry:
            return self._registry[endpoint.name]
        wire = Wire(endpoint, key_of(endpoint), self._calls_max, http=self._http)
        await wire.open()
        self._closing.push_async_callback(wire.close)
        handler = _handler(endpoint, wire)
        # Whoever does them, a run's own worker or one that knows nothing of runs: batches take a day, outages hours.
        handler.rules = replace(handler.rules, item_timeout_seconds=ITEM_SECONDS)
        if isinstance(handler, BatchHandler):
            self._closing.push_async_callback(handler.close)
        else:
            handler.rules = replace(handler.rules, concurrency=self._calls_max)
        self._registry.add(handler)
        self._closing.callback(self._registry.remove, handler.name)
        return handler

    async def open_all(self, store: Store, bus: Bus) -> None:
        """Opens what the unfinished jobs of a database need; one that cannot be opened here is told of once."""
        for name, spec in await store.endpoints():
            if name in self._registry or name in self._refused:
                continue
            try:
                await self.open(load_endpoint(spec))
            except (UsageError, ValueError) as error:
                self._refused.add(name)
                bus.emit(Trouble(f"lane {name}", str(error)))

    async def close(self) -> None:
        await self._closing.aclose()


def _handler(endpoint: Endpoint, wire: Wire) -> Handler:
    match endpoint.lane:
        case Lane.CALL:
            return CallHandler(endpoint, wire)
        case Lane.BACKGROUND:
            return BackgroundHandler(endpoint, wire)
        case Lane.BATCH:
            return BatchHandler(endpoint, wire)
