"""Serves metrics: this process's own, or those of several worker processes together."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from backstay.core.errors import BackstayError, UsageError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from backstay.app import Backstay
    from backstay.clock import Clock
    from backstay.observe.gauges import Gauges
    from backstay.observe.metrics import Metrics
    from backstay.store.store import Store

REFRESH_SECONDS = 5.0
HOUR_MINUTES = 60
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


@contextmanager
def serving(registry: "CollectorRegistry", host: str, port: int | None) -> Iterator[None]:
    """Answers on the port while the block runs; without a port, nothing."""
    if port is None:
        yield
        return
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise UsageError(f"cannot serve metrics on {host}:{port}: {error.strerror or error}") from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def shared_folder() -> Iterator[str]:
    """Where worker processes put their counts for the parent to add up."""
    folder = tempfile.mkdtemp(prefix="backstay-metrics-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def registry_of(folder: str) -> "CollectorRegistry":
    from prometheus_client import CollectorRegistry
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = CollectorRegistry()
    MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
    return registry


def forget(folder: str, pid: int) -> None:
    """A process that is gone no longer says how things stand; what it counted stays counted."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]


def counted_for_a_parent() -> bool:
    return FOLDER_VARIABLE in os.environ


@asynccontextmanager
async def metered(app: "Backstay", host: str, port: int | None) -> AsyncIterator[None]:
    """While the block runs, what the application does is counted and how things stand is looked at, on a store of its
    own; without a port, nothing."""
    if port is None:
        yield
        return
    from backstay import wiring
    from backstay.clock import Clock, Tasks
    from backstay.observe.metrics import Metrics

    metrics, tasks = Metrics(), Tasks()
    with serving(metrics.registry, host, port):
        store = await wiring.open_store(app.url)
        app.bus.subscribe(metrics)
        tasks.spawn(refresh(store, Clock(), metrics, app))
        try:
            yield
        finally:
            await tasks.stop()
            await store.close()


async def refresh(store: "Store", clock: "Clock", metrics: "Metrics", app: "Backstay") -> None:
    """Looks at the database every few seconds, for as long as the task lives."""
    from backstay.core.events import Trouble
    from backstay.observe.gauges import Gauges

    gauges = Gauges(metrics.registry)
    while True:
        try:
            await look(store, metrics, gauges, app)
        except BackstayError as error:
            metrics(Trouble("metrics", error.message))
        except Exception as error:  # whatever it is, gauges that stand still for ever would be a lie
            app.bus.emit(Trouble("metrics", f"{type(error).__name__}: {error}"))
        await clock.sleep(REFRESH_SECONDS)


async def look(store: "Store", metrics: "Metrics", gauges: "Gauges", app: "Backstay") -> None:
    """Shows how things stand. Each read is of counters, or of a bounded number of rows."""
    views, holds = store.views, await store.providers.holds()
    backlog = await views.backlog()
    since = {depth.handler: await views.waiting_since(depth.handler) for depth in backlog}
    gauges.show_queues(backlog, {handler: at for handler, at in since.items() if at is not None}, holds.now)
    lease_ms = app.limits.lease_ms
    alive = sum(worker.alive(lease_ms) for worker in await views.workers())
    gauges.show_workers(alive, sum((await views.stuck()).values()))
    metrics.show_breakers(holds.providers)
    raised = {standing.reading.alarm for standing in await store.alarms.raised()}
    gauges.show_alarms((await store.alarms.failures()).letters, raised)
    ceilings = await views.ceilings()
    gauges.show_money(await store.measures.spending(HOUR_MINUTES), ceilings.used, ceilings.held)
    gauges.show_ticks(await store.invocations.lately(HOUR_MINUTES * 60_000))
