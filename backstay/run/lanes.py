"""The lanes that are open in this process: endpoints as handlers, each with its own connections."""

from contextlib import AsyncExitStack
from dataclasses import replace

from backstay.app import Backstay
from backstay.core.errors import UsageError
from backstay.core.events import Trouble
from backstay.handlers.handler import Handler, Rules
from backstay.llm import background, batch, call
from backstay.llm.background import BackgroundHandler
from backstay.llm.batch import BatchHandler
from backstay.llm.call import CallHandler
from backstay.llm.credentials import key_of
from backstay.llm.endpoint import Endpoint, Lane, load_endpoint
from backstay.llm.task_lane import POLL_SECONDS, TaskLane
from backstay.llm.wire import Wire
from backstay.observe.bus import Bus
from backstay.store.store import Store

POLL_SHARE = 0.8  # of the time that the engine gives a poll: what was learnt by then is told


class Lanes:
    def __init__(self, app: Backstay, calls_max: int) -> None:
        self._app = app
        self._registry = app.handlers
        self._calls_max = calls_max
        self._closing = AsyncExitStack()
        self._refused: set[str] = set()

    async def open(self, endpoint: Endpoint) -> Handler:
        """The handler of an endpoint; it is there from now on."""
        if endpoint.name in self._registry:
            return self._registry[endpoint.name]
        wire = Wire(endpoint, key_of(endpoint), self._calls_max, http=self._app.settings.http)
        await wire.open()
        self._closing.push_async_callback(wire.close)
        handler = self._handler(endpoint, wire)
        if isinstance(handler, TaskLane):  # one question in a poll that hangs must not cost the answers to the others
            handler.poll_seconds = min(POLL_SECONDS, POLL_SHARE * self._app.limits.call_timeout_seconds)
        if isinstance(handler, BatchHandler):
            self._closing.push_async_callback(handler.close)
        self._registry.add(handler)
        self._closing.callback(self._registry.remove, handler.name)
        return handler

    async def open_all(self, store: Store, bus: Bus) -> None:
        """Opens what the unfinished jobs of a database need; one that cannot be opened here is told of once."""
        for name, spec in await store.providers.endpoints():
            if name in self._registry or name in self._refused:
                continue
            try:
                await self.open(load_endpoint(spec))
            except (UsageError, ValueError) as error:
                self._refused.add(name)
                bus.emit(Trouble(f"lane {name}", str(error)))

    async def close(self) -> None:
        await self._closing.aclose()

    def _handler(self, endpoint: Endpoint, wire: Wire) -> Handler:
        match endpoint.lane:
            case Lane.CALL:
                rules = replace(self._rules(endpoint, call.RULES), concurrency=self._calls_max)
                return CallHandler(endpoint, wire, rules)
            case Lane.BACKGROUND:
                rules = replace(self._rules(endpoint, background.RULES), concurrency=self._calls_max)
                return BackgroundHandler(endpoint, wire, rules)
            case Lane.BATCH:
                return BatchHandler(endpoint, wire, self._rules(endpoint, batch.RULES))

    def _rules(self, endpoint: Endpoint, usual: Rules) -> Rules:
        """A lane's usual rules under the settings of this process; what the run itself was given wins over both."""
        settings = self._app.settings
        return replace(
            usual,
            retry=settings.retry_policy(usual.retry),
            breaker=settings.breaker_policy(),
            timeout_seconds=endpoint.timeout_seconds or settings.call_seconds() or usual.timeout_seconds,
            item_timeout_seconds=self._app.limits.llm_item_timeout_seconds,
        )
