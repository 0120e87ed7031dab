"""What long-running commands share: logs on stderr, signals that ask first and insist later, and the metrics port."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from backstay.cli import output
from backstay.core.errors import BackstayError, UsageError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from backstay.app import Backstay
    from backstay.clock import Clock
    from backstay.observe.metrics import Gauges, Metrics
    from backstay.store.store import Store


INTERRUPTED = 130


def log_to_stderr(app: "Backstay", level: str | None, as_json: bool) -> None:
    """Subscribes the log lines; flags win over the settings. With BACKSTAY_DEBUG libraries log as they like."""
    import logging

    from backstay.observe.logs import LibraryLog, Logs

    wanted = {"json": True, "console": False}.get(app.settings.log_format)
    colours = output.fancy(sys.stderr)
    logs = Logs(sys.stderr, level or app.settings.log_level, True if as_json else wanted, colours)
    app.bus.subscribe(logs)
    if os.environ.get("BACKSTAY_DEBUG", "0") in ("", "0"):
        logging.lastResort = LibraryLog(logs)


class Stopping:
    """Whether someone asked the process to stop. If they ask while it still starts, the start is cut short."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._starting: asyncio.Task[object] | None = None

    def ask(self) -> None:
        self._asked.set()
        if self._starting is not None:
            self._starting.cancel()

    async def wait(self) -> None:
        """Everything has started; returns when someone asks for a stop."""
        self._starting = None
        await self._asked.wait()

    @contextmanager
    def while_starting(self) -> Iterator[None]:
        self._starting = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError:
            if self._starting is None or not self._asked.is_set():
                raise
            self._starting.uncancel()
        finally:
            self._starting = None


class Signals:
    """SIGTERM, SIGINT and a terminal that goes away. The first asks for an end, the second cuts short what runs, the
    third ends the process."""

    def __init__(self, ask: Callable[[], object], insist: Callable[[], object]) -> None:
        self._ask = ask
        self._insist = insist
        self.received = 0
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup has it ignored
                loop.add_signal_handler(number, self.receive)

    def receive(self) -> None:
        self.received += 1
        if self.received == 1:
            self._ask()
        elif self.received == 2:
            self._insist()
        else:
            os._exit(INTERRUPTED)

    @property
    def exit_code(self) -> int:
        """0 after one signal: a stop that was asked for. Only a second signal interrupts."""
        return INTERRUPTED if self.received > 1 else 0


REFRESH_SECONDS = 5.0
HOUR_MINUTES = 60
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


@contextmanager
def serving(registry: "CollectorRegistry", host: str, port: int | None) -> Iterator[None]:
    """Serves metrics on the port while the block runs; without a port it does nothing."""
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


def forget_process(folder: str, pid: int) -> None:
    """Drops the gauges of a process that is gone; its counters stay."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]


def is_counted_by_parent() -> bool:
    return FOLDER_VARIABLE in os.environ


@asynccontextmanager
async def serve_metrics(app: "Backstay", host: str, port: int | None) -> AsyncIterator[None]:
    """While the block runs, events of the application are counted, and gauges are read from the database with their own
    store. Without a port it does nothing."""
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
    from backstay.observe.metrics import Gauges

    gauges = Gauges(metrics.registry)
    while True:
        try:
            await update_gauges(store, metrics, gauges, app)
        except BackstayError as error:
            metrics(Trouble("metrics", error.message))
        except Exception as error:  # after any error: gauges that never change again would be wrong
            app.bus.emit(Trouble("metrics", f"{type(error).__name__}: {error}"))
        await clock.sleep(REFRESH_SECONDS)


async def update_gauges(store: "Store", metrics: "Metrics", gauges: "Gauges", app: "Backstay") -> None:
    """Fills the gauges from the database. Each read is of counters, or of a bounded number of rows."""
    holds = await store.providers.holds()
    backlog = await store.job_views.backlog()
    since = {depth.handler: await store.item_views.waiting_since(depth.handler) for depth in backlog}
    gauges.show_queues(backlog, {handler: at for handler, at in since.items() if at is not None}, holds.now)
    lease_ms = app.limits.lease_ms
    alive = sum(worker.alive(lease_ms) for worker in await store.workers.page())
    gauges.show_workers(alive, sum((await store.item_views.stuck()).values()))
    metrics.show_breakers(holds.providers)
    raised = {standing.reading.alarm for standing in await store.alarms.all_raised()}
    gauges.show_alarms((await store.alarms.failures()).letters, raised)
    ceilings = await store.job_views.ceilings()
    gauges.show_money(await store.measures.spending(HOUR_MINUTES), ceilings.used, ceilings.held)
    gauges.show_ticks(await store.invocations.lately(HOUR_MINUTES * 60_000))
