"""`backstay worker`: runs an application's items, in this process or in several.
`backstay tick`: one bounded invocation, and with --chain the follow-ups that it asks for.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from backstay.cli import database_choice, output
from backstay.cli.command import (
    Command,
    app_option,
    broker_option,
    db_option,
    json_option,
    log_level_option,
    metrics_options,
)
from backstay.core.errors import UsageError

if TYPE_CHECKING:
    from backstay.app import Backstay
    from backstay.engine.tick import TickReport
    from backstay.engine.worker import Worker
    from backstay.observe.metrics import Metrics


# A URL may hold a password, and everyone can read a process's arguments.
CHILD_DATABASE = "BACKSTAY_CHILD_DATABASE_URL"
CHILD_BROKER = "BACKSTAY_BROKER_URL"
KILL_MARGIN_SECONDS = 20.0


class WorkerOptions(NamedTuple):
    """The options of one call."""

    app: str | None
    concurrency: int | None
    processes: int
    metrics_port: int | None
    metrics_host: str
    log_level: str | None
    as_json: bool
    attached: bool


@click.command(
    "worker",
    cls=Command,
    examples=(
        "backstay worker --app shop.work:backstay",
        "backstay worker --app shop.work:backstay --processes 4 --concurrency 50 --metrics-port 9100",
        "backstay worker --db sqlite:///runs.db                # requests that `run` or `submit` queued",
    ),
)
@app_option
@click.option("--concurrency", type=click.IntRange(1, 10_000), help="Concurrent items in each process.")
@click.option("--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="Worker processes.")
@metrics_options
@db_option
@broker_option
@log_level_option
@json_option
@click.option(
    "--attached", is_flag=True, hidden=True, help="Stop when stdin closes, because the parent process is gone."
)
@click.pass_context
def worker(ctx: click.Context, /, db: str | None, broker: str | None, **given: Any) -> None:
    """Runs the items of an application, and queued LLM requests, until it is stopped.

    Without an application it runs only the requests of `backstay submit` and `backstay run`. Logs go to stderr; --json
    makes them JSON. If PostgreSQL cannot be reached at the start, it waits (BACKSTAY_START_WAIT_SECONDS).

    On SIGTERM or Ctrl-C it claims no more items, gives running items time to finish (BACKSTAY_SHUTDOWN_SECONDS), and
    returns the rest to the queue. A second signal cuts off what still runs.
    """
    from backstay.cli.running import log_to_stderr

    asked = WorkerOptions(**given)
    loaded = database_choice.load_served_app(asked.app, os.environ.get(CHILD_DATABASE) if asked.attached else db)
    database_choice.use_broker(loaded, broker)
    log_to_stderr(loaded, asked.log_level, asked.as_json)
    serve = _serve(loaded, asked) if asked.processes == 1 else _supervise(loaded, asked)
    ctx.exit(database_choice.run(serve))


async def _serve(app: "Backstay", asked: WorkerOptions) -> int:
    from backstay.cli import running
    from backstay.cli.running import Signals, Stopping
    from backstay.clock import collect_rarely
    from backstay.observe.metrics import Metrics
    from backstay.process import start_when_reachable

    collect_rarely()
    metrics, working = Metrics(), None
    stopping = Stopping()
    counting = asked.metrics_port is not None or running.is_counted_by_parent()
    if counting:
        app.bus.subscribe(metrics)
    signals = Signals(stopping.ask, lambda: working.stop_now() if working else None)
    if asked.attached:
        _watch_parent(stopping.ask)
    with running.serving(metrics.registry, asked.metrics_host, asked.metrics_port), stopping.while_starting():
        async with start_when_reachable(app, lambda: _run_worker(app, asked, metrics if counting else None)) as working:
            working.when_outdated(stopping.ask)
            await stopping.wait()
    if working is not None and working.outdated is not None:
        raise working.outdated
    return signals.exit_code


@asynccontextmanager
async def _run_worker(app: "Backstay", asked: WorkerOptions, metrics: "Metrics | None") -> "AsyncIterator[Worker]":
    """A worker with all that its items may need, while the block runs; given metrics are kept up to date."""
    from backstay.cli import running
    from backstay.clock import Tasks
    from backstay.process import equipment, working

    tasks, concurrency = Tasks(), asked.concurrency or app.limits.worker_concurrency
    async with database_choice.client_of(app) as client:
        if metrics is not None:
            tasks.spawn(running.refresh(client.store, client.clock, metrics, app))
        try:
            async with equipment(app, client, concurrency) as equipped, working(app, client, equipped) as worker:
                yield worker
        finally:
            await tasks.stop()


def _watch_parent(ask: Callable[[], None]) -> None:
    """Our stdin is a pipe that the parent never writes to: it becomes readable when the parent is gone."""
    loop = asyncio.get_running_loop()

    def on_parent_gone() -> None:
        loop.remove_reader(sys.stdin.fileno())
        ask()

    loop.add_reader(sys.stdin.fileno(), on_parent_gone)


async def _supervise(app: "Backstay", asked: WorkerOptions) -> int:
    import signal

    from backstay.cli import running
    from backstay.clock import Clock
    from backstay.engine.worker import Orders, Supervisor
    from backstay.process import start_when_reachable

    async with start_when_reachable(app, lambda: database_choice.client_of(app)):
        output.note(f"starting {asked.processes} worker processes")  # the database is there, and has its schema
    with running.shared_folder() as folder:
        environment = {**os.environ, CHILD_DATABASE: app.url}
        if app.settings.broker_url is not None:
            environment[CHILD_BROKER] = app.settings.broker_url
        if asked.metrics_port is not None:
            environment[running.FOLDER_VARIABLE] = folder
        stop_seconds = app.limits.shutdown_seconds + KILL_MARGIN_SECONDS
        orders = Orders(child_command(asked), environment, asked.processes, stop_seconds)
        supervisor = Supervisor(orders, Clock(), app.bus.emit, lambda pid: running.forget_process(folder, pid))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, supervisor.forward_signal, number)
        with running.serving(running.registry_of(folder), asked.metrics_host, asked.metrics_port):
            return await supervisor.run()


def child_command(asked: WorkerOptions) -> list[str]:
    command = [sys.executable, "-m", "backstay", "worker", "--attached"]
    if asked.app is not None:
        command += ["--app", asked.app]
    if asked.concurrency is not None:
        command += ["--concurrency", str(asked.concurrency)]
    if asked.log_level is not None:
        command += ["--log-level", asked.log_level]
    return command + (["--json"] if asked.as_json else [])


@click.command(
    "tick",
    cls=Command,
    examples=(
        "backstay tick --app shop.work:backstay --chain        # from cron, every five minutes",
        "backstay tick --app shop.work:backstay --chain-depth 1 --json",
        "backstay tick --db sqlite:///runs.db                  # requests that `run` or `submit` queued",
    ),
)
@app_option
@click.option(
    "--chain-depth", type=click.IntRange(0), default=0, help="How many chained invocations preceded this one."
)
@click.option("--chain", is_flag=True, help="Run follow-up invocations here, one after the other, up to the limit.")
@db_option
@log_level_option
@json_option
@click.pass_context
def tick(
    ctx: click.Context,
    app: str | None,
    chain_depth: int,
    chain: bool,
    db: str | None,
    log_level: str | None,
    as_json: bool,
) -> None:
    """Works once within limits: sweep, poll, submit, time out, finish.

    Without an application it runs only the LLM requests of `backstay submit` and `backstay run`.
    It prints what it did. If `follow_up` is true, there is more work and another invocation is allowed: run it again
    with a depth of one more, or use --chain. If PostgreSQL cannot be reached, it waits (BACKSTAY_START_WAIT_SECONDS).
    """
    from backstay.cli.running import log_to_stderr

    loaded = database_choice.load_served_app(app, db)
    check_depth(loaded, chain_depth)
    log_to_stderr(loaded, log_level, as_json=False)
    ctx.exit(database_choice.run(_chain(loaded, chain_depth, chain, as_json)))


def check_depth(app: "Backstay", depth: int) -> None:
    limit = app.limits.chain_depth_max
    if depth > limit:
        raise UsageError(f"chain depth {depth} is beyond the limit of {limit}", hint="nothing was run")


@asynccontextmanager
async def equipped_app(app: "Backstay") -> AsyncIterator[int]:
    """While the block runs, the application has all that its items may need. Yields how many items to hold at once."""
    from backstay.process import equipment

    client = await app.open()
    async with app, equipment(app, client, app.limits.tick_concurrency, with_broker=False) as equipped:
        yield equipped.slots


async def _chain(app: "Backstay", depth: int, chain: bool, as_json: bool) -> int:
    from backstay.process import start_when_reachable

    async with start_when_reachable(app, lambda: equipped_app(app)) as slots:
        while True:
            report, code = await _tick(app, depth, slots)
            if report is None:
                return code
            _print(report, as_json)
            if not (chain and report.follow_up) or code:
                return code
            depth = report.depth + 1


async def _tick(app: "Backstay", depth: int, slots: int) -> "tuple[TickReport | None, int]":
    """One invocation; a signal ends it early: running items finish or go back to the queue."""
    import asyncio

    from backstay import wiring
    from backstay.cli.running import INTERRUPTED, Signals
    from backstay.engine.tick import Tick

    client = await app.open()
    made = wiring.parts(client.store, app.handlers, app.limits, app.bus, app.settings)
    engine = wiring.engine(app.url, made, slots)
    invocation = made.tasks.spawn(Tick(engine).run(depth))
    loop = asyncio.get_running_loop()

    def insist() -> None:
        engine.flights.shut_down()

    def ask() -> None:
        invocation.cancel()
        loop.call_later(app.limits.shutdown_seconds, insist)

    signals = Signals(ask, insist)
    try:
        report: TickReport = await invocation
        return report, INTERRUPTED if signals.received else 0
    except asyncio.CancelledError:
        output.note("backstay: interrupted; unfinished items went back to the queue")
        return None, INTERRUPTED


def _print(report: "TickReport", as_json: bool) -> None:
    if as_json:
        output.data(output.as_json(report))
        return
    more = "a follow-up is needed" if report.follow_up else "no follow-up is asked for"
    claimed = output.count(report.claimed, "item")
    output.data(
        f"depth {report.depth}: {claimed} claimed, {report.polled:,} polled in {report.seconds:.1f} s, "
        f"{'more is pending' if report.pending else 'nothing more to do now'}, {more}"
    )
