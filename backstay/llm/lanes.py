"""The lanes that are open in this process: endpoints as handlers, each with its own connections.

A run opens its own. A worker or a tick opens what the unfinished jobs of its database need, now and later.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Protocol

from backstay.clock import Clock, Tasks
from backstay.core.errors import DatabaseUnreachable, UsageError
from backstay.core.events import Trouble
from backstay.core.limits import Limits
from backstay.handlers.function import Registry
from backstay.handlers.handler import Handler, Rules
from backstay.llm import batch, lane_handler
from backstay.llm.batch import BatchHandler
from backstay.llm.endpoint import Endpoint, Lane, key_of, load_endpoint
from backstay.llm.http.wire import Wire
from backstay.llm.lane_handler import POLL_SECONDS, BackgroundHandler, CallHandler, TaskLane
from backstay.llm.shards import BATCH_REQUESTS_MAX
from backstay.observe.bus import Bus
from backstay.settings import Settings
from backstay.store.store import Store

POLL_SHARE = 0.8  # of the time that the engine gives a poll: the answers so far are then returned
LOOK_SECONDS = 2.0


class LaneHost(Protocol):
    """What lanes need of the application that they are opened in."""

    @property
    def handlers(self) -> Registry: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def bus(self) -> Bus: ...


class Lanes:
    def __init__(self, app: LaneHost, calls_max: int) -> None:
        self._app = app
        self._registry = app.handlers
        self._calls_max = calls_max
        self._closing = AsyncExitStack()
        self._refused: set[str] = set()

    async def open(self, endpoint: Endpoint) -> Handler:
        """The handler of an endpoint; it stays registered."""
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

    async def open_all(self, store: Store) -> None:
        """Opens the lanes that the unfinished jobs of a database need; one that cannot be opened here is reported
        once."""
        for name, spec in await store.providers.endpoints():
            if name in self._registry or name in self._refused:
                continue
            try:
                await self.open(load_endpoint(spec))
            except (UsageError, ValueError) as error:
                self._refused.add(name)
                self._app.bus.emit(Trouble(f"lane {name}", str(error)))

    async def close(self) -> None:
        await self._closing.aclose()

    def _handler(self, endpoint: Endpoint, wire: Wire) -> Handler:
        match endpoint.lane:
            case Lane.CALL:
                rules = replace(self._rules(endpoint, lane_handler.RULES), concurrency=self._calls_max)
                return CallHandler(endpoint, wire, rules)
            case Lane.BACKGROUND:
                rules = replace(self._rules(endpoint, lane_handler.BACKGROUND_RULES), concurrency=self._calls_max)
                return BackgroundHandler(endpoint, wire, rules)
            case Lane.BATCH:
                return BatchHandler(endpoint, wire, self._rules(endpoint, batch.RULES))

    def _rules(self, endpoint: Endpoint, usual: Rules) -> Rules:
        """A lane's usual rules, changed by the settings of this process; the run's own options win over both."""
        settings = self._app.settings
        return replace(
            usual,
            retry=settings.retry_policy(usual.retry),
            breaker=settings.breaker_policy(),
            timeout_seconds=endpoint.timeout_seconds or settings.call_seconds() or usual.timeout_seconds,
            item_timeout_seconds=self._app.limits.llm_item_timeout_seconds,
        )


@asynccontextmanager
async def serve_lanes(app: LaneHost, store: Store, clock: Clock, concurrency: int) -> AsyncIterator[int]:
    """While the block runs, the lanes of new jobs are opened as they come. Yields how many items to hold at once: with
    only lanes, more than are called at once, because the requests of one batch are held together.
    """
    slots = concurrency if len(app.handlers) else max(concurrency, BATCH_REQUESTS_MAX)
    lanes, tasks = Lanes(app, concurrency), Tasks()
    await lanes.open_all(store)
    looking = tasks.spawn(_look(app, lanes, store, clock))
    try:
        yield slots
    finally:
        looking.cancel()
        await lanes.close()


async def _look(app: LaneHost, lanes: Lanes, store: Store, clock: Clock) -> None:
    while True:
        await clock.sleep(LOOK_SECONDS)
        try:
            await lanes.open_all(store)
        except DatabaseUnreachable as error:
            app.bus.emit(Trouble("lanes", str(error)))
