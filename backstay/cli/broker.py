"""`backstay broker …`: what Backstay has on a broker, and the replay of its dead messages.
`backstay relay`: carries messages out of the outbox, and does no items.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from backstay.cli import database_choice, output
from backstay.cli.command import (
    Command,
    LazyGroup,
    Name,
    broker_option,
    json_option,
    log_level_option,
    metrics_options,
    place_options,
)
from backstay.core.errors import BrokerUnreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backstay.app import Backstay
    from backstay.client import Client
    from backstay.messaging.dead_queue import Choice
    from backstay.messaging.queues import InspectedPart
    from backstay.store.outbox import Lag


COMMANDS = {
    "show": ("backstay.cli.broker:show", "Show exchanges and queues, their messages, and problems."),
    "declare": ("backstay.cli.broker:declare", "Declare all missing exchanges and queues."),
    "off": ("backstay.cli.broker:off", "Stop writing hints for a broker, and drop unpublished hints."),
    "replay": ("backstay.cli.broker:replay", "Replay messages of the dead queue."),
}

broker = LazyGroup(
    "broker",
    lazy=COMMANDS,
    examples=("backstay broker show", "backstay broker off"),
    help="Shows or declares exchanges and queues on RabbitMQ, replays dead messages, or switches the broker off.",
    no_args_is_help=True,
)


class BrokerState(NamedTuple):
    """Both sides: what waits in the database to be published, and what is on the broker."""

    is_open: bool
    lag: "Lag"
    found: "list[InspectedPart]"
    away: BrokerUnreachable | None


@click.command(
    "show",
    cls=Command,
    examples=("backstay broker show", "backstay broker show --broker amqp://… --json | jq .problems"),
)
@broker_option
@place_options
@json_option
@click.pass_context
def show(ctx: click.Context, broker: str | None, db: str | None, as_json: bool) -> None:
    """Shows exchanges and queues as they are declared, their messages and consumers, and problems.

    It declares nothing. If the broker is unreachable, it shows what the database knows and ends with exit code 8.
    """
    loaded, url = database_choice.open_with_broker(db, broker)
    seen = database_choice.with_client(loaded, lambda client: _read_state(loaded, client, url))
    if as_json:
        output.data(output.as_json(_as_object(loaded, url, seen)))
    else:
        _print(loaded, url, seen)
    if seen.away is not None:
        output.note(f"backstay: {seen.away.message}")
        ctx.exit(seen.away.exit_code)


@click.command("declare", cls=Command, examples=("backstay broker declare --handler ocr --handler summarise",))
@click.option(
    "--handler", "handlers", type=Name(), multiple=True, help="Also declare the queue of this handler; may be repeated."
)
@broker_option
@place_options
@json_option
@click.pass_context
def declare(ctx: click.Context, handlers: tuple[str, ...], broker: str | None, db: str | None, as_json: bool) -> None:
    """Declares missing exchanges and queues: the general ones, and one queue per handler with unfinished work.

    Workers do this themselves; this command does it beforehand. An existing queue with other arguments is left alone
    and reported, with exit code 1: delete it, or set BACKSTAY_BROKER_QUEUES or BACKSTAY_BROKER_PREFIX.
    """
    from backstay.messaging.broker_session import topology_of
    from backstay.messaging.connection import connect_once, show_url
    from backstay.messaging.queues import declare as declare_on

    loaded, url = database_choice.open_with_broker(db, broker)
    topology = topology_of(loaded.settings)

    async def make(client: "Client") -> list[Any]:
        queues = topology.queues(sorted({*handlers, *await _busy_handlers(client)}))
        async with connect_once(url, "backstay declare") as connection:
            return list(await declare_on(connection, topology.exchanges, queues))

    differences = database_choice.with_client(loaded, make)
    if as_json:
        problems = [{"name": difference.name, "problem": difference.reason} for difference in differences]
        output.data(output.as_json({"broker": show_url(url), "problems": problems}))
    for difference in differences:
        output.note(difference.problem)
    if not differences and not as_json:
        output.note(f"declared on {show_url(url)}")
    ctx.exit(1 if differences else 0)


@click.command("off", cls=Command, examples=("backstay broker off",))
@place_options
@json_option
def off(db: str | None, as_json: bool) -> None:
    """Stops writing hints and your own messages for a broker, and drops those that have not left; the broker itself
    is not changed.

    Stop the processes that have a --broker first: the next one to start switches it on again. Workers then
    poll the database.
    """
    hints, messages = database_choice.with_client(database_choice.open_app(db), _close_sinks)
    if as_json:
        output.data(output.as_json({"dropped": hints, "messages_dropped": messages}))
    else:
        also = f" and {output.count(messages, 'message')} that you published" if messages else ""
        output.note(f"off: {output.count(hints, 'hint')}{also} dropped")


async def _close_sinks(client: "Client") -> tuple[int, int]:
    from backstay.store.outbox import MESSAGES

    return await client.store.outbox.close_sink(), await client.store.outbox.close_sink(MESSAGES)


async def _busy_handlers(client: "Client") -> list[str]:
    """The handlers with unfinished work."""
    return sorted({depth.handler for depth in await client.store.job_views.backlog()})


async def _read_state(app: "Backstay", client: "Client", url: str) -> BrokerState:
    from backstay.messaging.broker_session import topology_of
    from backstay.messaging.connection import connect_once
    from backstay.messaging.queues import inspect
    from backstay.store.outbox import WORK

    outbox = client.store.outbox
    is_open, lag, handlers = await outbox.is_open(), await outbox.lag(WORK), await _busy_handlers(client)
    names = sorted({*handlers, *(handler.name for handler in app.handlers)})
    try:
        async with connect_once(url, "backstay show") as connection:
            return BrokerState(is_open, lag, await inspect(connection, topology_of(app.settings), names), None)
    except BrokerUnreachable as error:
        return BrokerState(is_open, lag, [], error)


def _as_object(app: "Backstay", url: str, seen: BrokerState) -> dict[str, Any]:
    from backstay.messaging.broker_session import PREFETCH_MAX
    from backstay.messaging.connection import show_url

    return {
        "broker": show_url(url),
        "prefix": app.settings.broker_prefix,
        "queues": app.settings.broker_queues,
        "reachable": seen.away is None,
        "on": seen.is_open,
        "prefetch_max": PREFETCH_MAX,
        "dead_messages_max": app.settings.broker_dead_messages,
        "dead_days_max": app.settings.broker_dead_days,
        "pending": seen.lag.rows,
        "oldest_ms": seen.lag.age_ms,
        "found": seen.found,
        "problems": [{"name": found.name, "problem": found.problem} for found in seen.found if found.problem],
    }


def _print(app: "Backstay", url: str, seen: BrokerState) -> None:
    from backstay.messaging.broker_session import PREFETCH_MAX
    from backstay.messaging.connection import show_url

    settings = app.settings
    pending = output.count(seen.lag.rows, "hint") + (
        f", the oldest {seen.lag.age_ms / 1000:.0f} s" if seen.lag.rows else ""
    )
    output.record(
        [
            ("broker", show_url(url)),
            ("queues", f"{settings.broker_prefix}.…, {settings.broker_queues}"),
            ("on", "yes" if seen.is_open else "no: no process that used this database had a --broker"),
            ("prefetch", f"a worker's concurrency, at most {PREFETCH_MAX} messages for each handler"),
            (
                "dead queue",
                f"the newest {settings.broker_dead_messages:,} messages, for {settings.broker_dead_days:g} days",
            ),
            ("not published", pending),
        ]
    )
    if seen.found:
        output.data("")
        columns = ("KIND", "NAME", "DECLARED AS", "MESSAGES", "CONSUMERS", "PROBLEM")
        rows = (
            (one.kind, one.name, _describe_arguments(one.arguments), one.messages, one.consumers, one.problem)
            for one in seen.found
        )
        output.table(columns, rows)


def _describe_arguments(arguments: "Mapping[str, Any]") -> str:
    """The arguments that matter for messages; --json has all of them."""
    said = [str(arguments["type"])] if "type" in arguments else []
    if "x-max-priority" in arguments:
        said.append(f"{arguments['x-max-priority']} priorities")
    if "alternate-exchange" in arguments:
        said.append(f"unrouted messages to {arguments['alternate-exchange']}")
    if "x-max-length" in arguments:
        said.append(f"at most {arguments['x-max-length']:,} messages for {arguments['x-message-ttl'] // 1000:,} s")
    elif "x-message-ttl" in arguments:
        said.append(f"{arguments['x-message-ttl'] // 1000} s, then to {arguments['x-dead-letter-exchange']}")
    elif "x-dead-letter-exchange" in arguments:
        said.append(f"dead letters to {arguments['x-dead-letter-exchange']}")
    return ", ".join(said)


@click.command(
    "replay",
    cls=Command,
    examples=(
        "backstay broker replay --item 12-345",
        "backstay broker replay --reason rejected --dry-run",
        "backstay broker replay --all",
    ),
)
@click.option("--item", metavar="ITEM", help="Only messages that name this item; replays only this item.")
@click.option("--reason", help="Only messages whose reason contains this text.")
@click.option("--all", "everything", is_flag=True, help="All messages of the dead queue.")
@click.option("--dry-run", is_flag=True, help="Only count; change nothing.")
@broker_option
@place_options
@json_option
def replay(
    item: str | None,
    reason: str | None,
    everything: bool,
    dry_run: bool,
    broker: str | None,
    db: str | None,
    as_json: bool,
) -> None:
    """Replays messages of the broker's dead queue; the database decides what each item needs.

    An item that failed is queued again, once; one that is queued is announced again; one that is done needs nothing.
    Callbacks of remote workers are read again.
    Messages that are not chosen stay, in their order. So do messages that cannot be read or that name an unknown item.
    The messages pass through a second queue, a few at a time, so that memory does not grow with the queue; after a
    crash the next replay puts them back. Only one replay can run at a time.
    """
    from backstay.core.ids import read_item
    from backstay.messaging.dead_queue import Choice

    if everything == (item is not None or reason is not None):
        raise UsageError("no messages are chosen", hint="give --item, --reason or both, or else --all")
    choice = Choice(None if item is None else read_item(item), reason)
    loaded, url = database_choice.open_with_broker(db, broker)
    who = None if dry_run else database_choice.person()
    counts = database_choice.with_client(loaded, lambda client: _replay(loaded, client, url, choice, who))
    if as_json:
        output.data(output.as_json({**counts, "dry_run": dry_run}))
    else:
        _print_counts(counts, dry_run)


async def _replay(app: "Backstay", client: "Client", url: str, choice: "Choice", who: str | None) -> dict[str, Any]:
    from backstay.messaging.broker_session import topology_of
    from backstay.messaging.connection import connect_once
    from backstay.messaging.dead_queue import ITEMS, MESSAGES, DeadMessages, DeadQueue

    topology = topology_of(app.settings)
    judge = DeadMessages(client.store, topology, choice, who)
    async with connect_once(url, "backstay replay") as connection:
        await DeadQueue(connection, topology, client.clock).replay(judge)
    return {word: judge.counts[word] for word in (*MESSAGES, *ITEMS)} | {"reasons": dict(judge.reasons)}


def _print_counts(counts: dict[str, Any], dry_run: bool) -> None:
    chosen = output.count(counts["chosen"], "message")
    would = "would be " if dry_run else ""
    output.data(f"{chosen} chosen of {counts['seen']:,} in the dead queue")
    lines = {
        "replayed": f"{would}queued again",
        "published": f"{would}announced again",
        "done": "needed nothing",
        "refused": "stay in the dead queue: they cannot be retried now",
        "unknown": "stay in the dead queue: they are not in the database",
    }
    for word, said in lines.items():
        if counts[word]:
            output.data(f"  {output.count(counts[word], 'item')} {said}")
    if counts["callbacks"]:
        output.data(f"  {output.count(counts['callbacks'], 'callback')} {would}read again")
    if counts["poison"]:
        output.data(f"  {output.count(counts['poison'], 'message')} stay in the dead queue: not readable")
    for reason, messages in counts["reasons"].items():
        output.data(f"    {messages:,} {reason}")


class RelayOptions(NamedTuple):
    """The options of one call."""

    metrics_port: int | None
    metrics_host: str
    log_level: str | None
    as_json: bool


@click.command(
    "relay",
    cls=Command,
    examples=(
        "backstay relay --db postgresql://… --broker amqp://user:password@host/vhost",
        "backstay relay --db postgresql://… --metrics-port 9101        # webhooks only, without a broker",
    ),
)
@broker_option
@metrics_options
@place_options
@log_level_option
@json_option
@click.pass_context
def relay(ctx: click.Context, /, db: str | None, broker: str | None, **given: Any) -> None:
    """Publishes messages from the outbox until it is stopped. It runs no items.

    With a broker it tells workers which items are ready. With the service's key (BACKSTAY_SECRET_KEY, or the file
    beside an SQLite database) it sends webhooks. A worker with a --broker includes the first relay, the service
    includes both; any number of relays may run at once. Celery needs none: its own workers relay. Logs go to stderr;
    --json makes them JSON. If PostgreSQL cannot be reached at the start, it waits (BACKSTAY_START_WAIT_SECONDS).

    On SIGTERM or Ctrl-C it first waits for the messages under way. A second signal stops it at once.
    """
    from backstay.cli.running import log_to_stderr

    asked = RelayOptions(**given)
    loaded = database_choice.use_broker(database_choice.open_app(db), broker)
    log_to_stderr(loaded, asked.log_level, asked.as_json)
    ctx.exit(database_choice.run(_relay(loaded, asked)))


async def _relay(app: "Backstay", asked: RelayOptions) -> int:
    from backstay.cli import running
    from backstay.cli.running import INTERRUPTED, Signals, Stopping
    from backstay.observe.metrics import Metrics
    from backstay.process import start_when_reachable

    metrics, stopping, mine = Metrics(), Stopping(), asyncio.current_task()
    assert mine is not None
    signals = Signals(stopping.ask, mine.cancel)
    app.bus.subscribe(metrics)
    try:
        with running.serving(metrics.registry, asked.metrics_host, asked.metrics_port), stopping.while_starting():
            async with start_when_reachable(app, lambda: _run_relays(app)):
                await stopping.wait()
    except asyncio.CancelledError:
        return INTERRUPTED
    return signals.exit_code


@asynccontextmanager
async def _run_relays(app: "Backstay") -> AsyncIterator[None]:
    """Whatever there is to relay here, while the block runs."""
    from backstay.messaging.broker_session import broker_here
    from backstay.process import relaying_outboxes
    from backstay.remote.work import local_service_key

    key = app.settings.secret_key or local_service_key(app)
    if app.settings.broker_url is None and key is None:
        hint = "give --broker to publish to workers, or set BACKSTAY_SECRET_KEY to send webhooks"
        raise UsageError("neither a broker nor a secret key for webhooks is set", hint=hint)
    async with (
        database_choice.client_of(app) as client,
        broker_here(app, client) as broker,
        relaying_outboxes(app, client, broker, key),
    ):
        yield
