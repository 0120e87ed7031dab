"""`backstay broker replay`: has dead messages of the broker done again."""

from typing import TYPE_CHECKING, Any

import click

from backstay.cli import access, output
from backstay.cli.command import Command, broker_option, json_option, place_options
from backstay.core.errors import UsageError

if TYPE_CHECKING:
    from backstay.app import Backstay
    from backstay.client import Client
    from backstay.messaging.dead_messages import Choice


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
    from backstay.messaging.dead_messages import Choice

    if everything == (item is not None or reason is not None):
        raise UsageError("no messages are chosen", hint="give --item, --reason or both, or else --all")
    choice = Choice(None if item is None else read_item(item), reason)
    loaded, url = access.open_with_broker(db, broker)
    who = None if dry_run else access.person()
    counts = access.with_client(loaded, lambda client: _replay(loaded, client, url, choice, who))
    if as_json:
        output.data(output.as_json({**counts, "dry_run": dry_run}))
    else:
        _tell(counts, dry_run)


async def _replay(app: "Backstay", client: "Client", url: str, choice: "Choice", who: str | None) -> dict[str, Any]:
    from backstay.messaging.connection import connected
    from backstay.messaging.dead_messages import ITEMS, MESSAGES, DeadMessages
    from backstay.messaging.dead_queue import DeadQueue
    from backstay.messaging.dispatch import topology_of

    topology = topology_of(app.settings)
    judge = DeadMessages(client.store, topology, choice, who)
    async with connected(url, "backstay replay") as connection:
        await DeadQueue(connection, topology, client.clock).replay(judge)
    return {word: judge.counts[word] for word in (*MESSAGES, *ITEMS)} | {"reasons": dict(judge.reasons)}


def _tell(counts: dict[str, Any], dry_run: bool) -> None:
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
