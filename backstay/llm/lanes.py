"""The lanes that are open in this process: endpoints as handlers, each with its own connections.

A run opens its own. A worker or a tick opens what the unfinished jobs of its database need, now and later.
"""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Protocol

from backstay.clock import Clock, Tasks
from backstay.core.errors import DatabaseUnreachable, UsageError
from backstay.core.events import Trouble
from backstay.core.failures import RetryPolicy
from backstay.core.limits import Limits
from backstay.handlers.function import Registry
from backstay.handlers.handler import Handler, Rules
from backstay.llm import batch, lane_handler
from backstay.llm.batch import BatchHandler
from backstay.llm.credentials import Credentials, credentials_for
from backstay.llm.endpoint import Endpoint, Lane, load_endpoint
from backstay.llm.http.wire import Wire
from backstay.llm.lane_handler import POLL_SECONDS, BackgroundHandler, CallHandler, TaskLane
from backstay.llm.schemas import AnswerCheck
from backstay.llm.shards import BATCH_REQUESTS_MAX
from backstay.observe.bus import Bus
from backstay.settings import Settings
from backstay.store.store import Store

POLL_SHARE = 0.8  # of the time that the engine gives a poll: the answers so far are then returned
LOOK_SECONDS = 2.0


class LaneHost(Protocol):
    """The parts of an application that lanes use."""

    @property
    def handlers(self) -> Registry: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def bus(self) -> Bus: ...


class Lanes:
    """`check`, if given, looks at the text of every answer in this process, and refuses it by raising ValueError or
    AssertionError. It stands in for the endpoint's schema, so it must check that too, as `AnswerSchema.parse` does."""

    def __init__(self, app: LaneHost, calls_max: int, check: AnswerCheck | None = None) -> None:
        self._app = app
        self._check = check
        self._registry = app.handlers
        self._calls_max = calls_max
        self._closing = AsyncExitStack()
        self._refused: set[str] = set()
        self._credentials: list[Credentials] = []

    async def open(self, endpoint: Endpoint) -> Handler:
        """The handler of an endpoint; it stays registered."""
        if endpoint.name in self._registry:
            return self._registry[endpoint.name]
        settings = self._app.settings
        key = credentials_for(endpoint, settings, os.environ)
        wire = Wire(endpoint, key, self._calls_max, http=settings.http)
        await wire.open()
        self._closing.push_async_callback(wire.close)
        if (credentials := wire.credentials) is not None:
            credentials.on_failure = lambda said: self._app.bus.emit(Trouble(f"API key of {endpoint.name}", said))
            self._credentials.append(credentials)
        handler = self._handler(endpoint, wire)
        handler.use_check(self._check)
        if isinstance(handler, TaskLane):  # if one question of a poll hangs, the answers to the others must not be lost
            handler.poll_seconds = min(POLL_SECONDS, POLL_SHARE * self._app.limits.call_timeout_seconds)
        if isinstance(handler, BatchHandler):
            handler.channel.lag_seconds = self._app.limits.batch_lag_seconds
            self._closing.push_async_callback(handler.close)
        self._registry.add(handler)
        self._closing.callback(self._registry.remove, handler.name)
        return handler

    async def require_keys(self) -> None:
        """Raises UsageError if the first key cannot be had, before anything is sent. Later, requests wait for one."""
        for credentials in self._credentials:
            await credentials.require()

    def missing_key(self) -> str | None:
        """Why a provider has no valid key now."""
        return next((problem for one in self._credentials if (problem := one.problem) is not None), None)

    async def open_all(self, store: Store) -> None:
        """Opens the lanes that the unfinished jobs of a database need; one that cannot be opened here is reported
        once."""
        for name, spec in await store.providers.endpoints():
            if name in self._registry or name in self._refused:
                continue
            try:
                for endpoint in reversed(
                    load_endpoint(spec).all
                ):  # the first one last: it must not work without the others
                    await self.open(endpoint)
            except (UsageError, ValueError) as error:
                self._refused.add(name)
                self._app.bus.emit(Trouble(f"lane {name}", str(error)))

    async def close(self) -> None:
        await self._closing.aclose()

    def _handler(self, endpoint: Endpoint, wire: Wire) -> CallHandler | TaskLane:
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
        settings, limits, then = self._app.settings, self._app.limits, endpoint.fallback
        return replace(
            usual,
            retry=_with_reasks(settings.retry_policy(usual.retry), endpoint.reasks),
            breaker=settings.breaker_policy(endpoint.api),
            timeout_seconds=endpoint.timeout_seconds or settings.call_seconds() or usual.timeout_seconds,
            item_timeout_seconds=limits.llm_item_timeout_seconds,
            fallback=None if then is None else then.name,
            fallback_after_seconds=None if then is None else limits.fallback_after_seconds,
        )


def _with_reasks(policy: RetryPolicy, reasks: int) -> RetryPolicy:
    """An answer that does not fit costs an attempt, so the limit is raised: failures keep all of theirs."""
    most = policy.attempts_max
    return policy if most is None or not reasks else replace(policy, attempts_max=most + reasks)


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
