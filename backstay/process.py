"""One place composes a process. Workers, ticks, the service, relays and Celery's workers differ only in their
arguments.

Each opens a client and enters `equipment`, which has all that items may need; then a worker or a tick runs the items.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from backstay.app import Backstay
from backstay.artifacts import Artifacts, ConverterFiles, artifacts_of
from backstay.client import Client
from backstay.clock import Clock
from backstay.core.errors import DatabaseRefused, DatabaseUnreachable
from backstay.core.events import Trouble
from backstay.core.signing import Signer
from backstay.engine.worker import Worker
from backstay.handlers.gateway import NAME, GatewayHandler
from backstay.handlers.handler import Rules, call_limits
from backstay.handlers.outgoing import Outgoing
from backstay.llm.lanes import serve_lanes
from backstay.messaging.broker import Broker
from backstay.messaging.broker_session import broker_here, dispatching
from backstay.messaging.outbox_relay import relaying_all, reporting_lag
from backstay.messaging.webhook_relay import Relay, relaying
from backstay.observe.logs import ItemLogs
from backstay.remote.handler import CallbackTags
from backstay.remote.work import remote_here, remote_work
from backstay.store.databases.database import is_postgres, show_url
from backstay.store.outbox import WEBHOOKS
from backstay.upkeep.loop import upkeep

T = TypeVar("T")

AGAIN_SECONDS: Final = 1.0
SILENT_SECONDS: Final = 1.5  # then it reports what it waits for, even if nothing has failed yet
_START_HINT: Final = "check the database URL and the server; to wait longer, set BACKSTAY_START_WAIT_SECONDS"


class Equipment(NamedTuple):
    slots: int  # how many items to hold at once
    broker: Broker | None


@asynccontextmanager
async def equipment(
    app: Backstay,
    client: Client,
    concurrency: int,
    *,
    works: bool = True,
    with_broker: bool = True,
    artifacts: Artifacts | None = None,
    remote: tuple[CallbackTags, Outgoing] | None = None,
) -> AsyncIterator[Equipment]:
    """While the block runs: handlers for the LLM requests of unfinished jobs, for the converter and for remote work, a
    place for files, upkeep, and the broker. The parts start in the order of their dependencies. `works` is false in a
    process that runs no items. The service passes its own place for files, and the signer of its remote requests."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        slots = await enter(serve_lanes(app, client.store, client.clock, concurrency)) if works else 0
        artifacts = artifacts or artifacts_of(app.url, app.settings)
        if artifacts is not None:
            await enter(ItemLogs(artifacts, client.clock, app.bus))
            await enter(_converter(app, client, artifacts, concurrency))
        await enter(upkeep(client, artifacts, app.settings, app.bus))
        broker = await enter(broker_here(app, client)) if with_broker else None
        await enter(remote_work(app, client, *remote, broker) if remote else remote_here(app, client, broker))
        yield Equipment(slots, broker)


@asynccontextmanager
async def working(app: Backstay, client: Client, equipped: Equipment) -> AsyncIterator[Worker]:
    """While the block runs, a worker runs items. With a broker, hints about new items are published and received."""
    async with (
        dispatching(app, client, equipped.broker, equipped.slots) as hints,
        app.working(equipped.slots, hints=hints) as worker,
    ):
        yield worker


@asynccontextmanager
async def relaying_outboxes(
    app: Backstay, client: Client, broker: Broker | None, key: str | None
) -> AsyncIterator[None]:
    """While the block runs, hints and users' messages are published to the broker and, with the key that signs them,
    webhooks are notified."""
    async with AsyncExitStack() as stack:
        if broker is not None:
            await stack.enter_async_context(relaying_all(app, client, broker))
        if key is not None:
            outgoing = Outgoing(app.settings.inside_hosts)
            stack.push_async_callback(outgoing.close)
            relay = Relay(client.store.webhooks, outgoing, Signer(key), client.clock, app.bus)
            await stack.enter_async_context(relaying_webhooks(client, relay))
        yield


@asynccontextmanager
async def relaying_webhooks(client: Client, relay: Relay) -> AsyncIterator[None]:
    """While the block runs, webhooks are notified, and the number of waiting messages is reported."""
    async with relaying(relay), reporting_lag(client, WEBHOOKS):
        yield


@asynccontextmanager
async def _converter(app: Backstay, client: Client, artifacts: Artifacts, concurrency: int) -> AsyncIterator[None]:
    """With a gateway's URL, a handler for it is registered."""
    url = app.settings.gateway_url
    if url is None or NAME in app.handlers:
        yield
        return
    files = ConverterFiles(client.store.files, artifacts, app.settings.file_days)
    handler = GatewayHandler(url, files, gateway_rules(app, concurrency), app.settings.upload_max_bytes)
    app.handlers.add(handler)
    try:
        yield
    finally:
        app.handlers.remove(NAME)
        await handler.close()


def gateway_rules(app: Backstay, concurrency: int) -> Rules:
    return replace(
        Rules(),
        retry=app.settings.gateway_policy(),
        breaker=app.settings.breaker_policy(),
        timeout_seconds=app.limits.call_timeout_seconds,
        concurrency=concurrency,
        calls=call_limits(app.settings.gateway_rate, None, None, app.settings.gateway_cost),
    )


@asynccontextmanager
async def start_when_reachable(app: Backstay, make: Callable[[], AbstractAsyncContextManager[T]]) -> AsyncIterator[T]:
    """As `async with make()`, but it waits at its start until PostgreSQL can be reached: machines start in any
    order."""
    async with AsyncExitStack() as stack:
        yield await enter_when_reachable(stack, app, make)


async def enter_when_reachable(
    stack: AsyncExitStack, app: Backstay, make: Callable[[], AbstractAsyncContextManager[T]]
) -> T:
    """Enters a context that needs the database, and retries for at most `start_wait_seconds`."""
    if not is_postgres(app.url) or app.settings.start_wait_seconds == 0:
        return await stack.enter_async_context(make())
    clock, seconds = Clock(), app.settings.start_wait_seconds
    give_up_at = clock.monotonic() + seconds
    said: set[str] = set()

    def say(why: str) -> None:
        if why not in said:
            said.add(why)
            app.bus.emit(Trouble("start", f"waiting up to {seconds:g} s for {show_url(app.url)}: {why}"))

    while True:
        silent = asyncio.get_running_loop().call_later(SILENT_SECONDS, say, "the database has not answered yet")
        try:
            return await stack.enter_async_context(make())
        except DatabaseRefused:
            raise
        except DatabaseUnreachable as error:
            if clock.monotonic() >= give_up_at:
                raise DatabaseUnreachable(f"{error.message} (after {seconds:g} s)", hint=_START_HINT) from error
            say(error.message)
        finally:
            silent.cancel()
        await clock.sleep(AGAIN_SECONDS)
