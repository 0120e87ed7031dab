"""Serves metrics: this process's own, or those of several worker processes together."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backstay.core.errors import BackstayError, UsageError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from backstay.client import Client
    from backstay.observe.metrics import Metrics

REFRESH_SECONDS = 5.0
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


async def refresh(client: "Client", metrics: "Metrics", alarm: int) -> None:
    """Looks at the queues every few seconds, for as long as the task lives."""
    from backstay.core.events import Trouble
    from backstay.store.archives import DAY_MS

    while True:
        try:
            holds = await client.store.holds()
            views = client.store.views
            metrics.show_depths(await views.backlog(), sum((await views.stuck()).values()), holds.now)
            metrics.show_breakers(holds.providers)
            metrics.show_letters(await client.store.archives.lately(DAY_MS, alarm + 1), alarm)
        except BackstayError as error:
            metrics(Trouble("metrics", error.message))
        await client.clock.sleep(REFRESH_SECONDS)
