"""`backstay tick`: one bounded invocation, and with --chain the follow-ups that it asks for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, app_option, db_option, json_option, log_level_option
from backstay.core.errors import UsageError

if TYPE_CHECKING:
    from backstay.app import Backstay
    from backstay.engine.tick import TickReport


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
