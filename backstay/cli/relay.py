"""`backstay relay`: carries messages out of the outbox, and does no items."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from backstay.cli import database_choice
from backstay.cli.command import Command, broker_option, json_option, log_level_option, metrics_options, place_options
from backstay.core.errors import UsageError

if TYPE_CHECKING:
    from backstay.app import Backstay


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
