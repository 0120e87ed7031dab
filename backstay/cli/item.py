"""`backstay item …`: one item, its timeline, and why it is not running."""

import json
from typing import TYPE_CHECKING, Any

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, LazyGroup, json_option, on_same_database, place_options
from backstay.cli.output import show_moment
from backstay.core.ids import show_item

if TYPE_CHECKING:
    from backstay.client import Client
    from backstay.store.item_views import ItemDetail, ItemReport, ItemView, Moment

COMMANDS = {
    "show": ("backstay.cli.item:show", "Show an item, its timeline, and why it is not running."),
    "retry": ("backstay.cli.item:retry", "Queue a failed item again."),
    "accept-late": ("backstay.cli.item:accept_late", "Accept the late result of a failed item."),
}

item = LazyGroup(
    "item",
    lazy=COMMANDS,
    examples=("backstay item show 12-345", "backstay item retry 12-345"),
    help="Shows an item and why it is not running, retries it, or accepts its late result.",
    no_args_is_help=True,
)


@click.command("show", cls=Command, examples=("backstay item show 12-345", "backstay item show 12-345 --json"))
@click.argument("item_id", metavar="ITEM")
@click.option("--body", is_flag=True, help="Show the payload and the result too.")
@place_options
@json_option
def show(item_id: str, body: bool, db: str | None, as_json: bool) -> None:
    """Shows an item, everything that happened to it, and why it is not running now."""
    from backstay.core.ids import read_item
    from backstay.store.item_views import read_item_story, timeline

    number = read_item(item_id)
    item_id = show_item(number)
    app = database_choice.open_app(db)
    lease_ms = app.limits.lease_ms

    async def read(client: "Client") -> "tuple[ItemReport, ItemView]":
        shown = await read_item_story(client.store, number, client.owner, lease_ms, shows_reason=True)
        asked = (number, client.owner)
        return shown, (await client.store.item_views.many([asked]))[asked]

    shown, listed = database_choice.with_client(app, read)
    moments = timeline(shown.view, shown.attempts, shown.events)
    if as_json:
        moves = {key: getattr(listed, key) for key in ("started_at", "updated_at", "retry_after")}
        output.data(output.as_json({**_item_object(item_id, shown, moments, body), **moves}))
        return
    _print_item(item_id, shown.view)
    output.data("why it is not running" if shown.view.state in ("queued", "processing") else "state")
    for reason in shown.reasons:
        output.data(f"  {on_same_database(reason.text)}")
    if body:
        last = shown.attempts[-1].result if shown.attempts else None
        output.record((("payload", shown.view.body), ("result", last)))
    output.data("timeline")
    for moment in moments:
        output.data(f"  {show_moment(moment.at)}  {moment.what}" + (f": {moment.detail}" if moment.detail else ""))


def _print_item(name: str, view: "ItemDetail") -> None:
    output.record(
        (
            ("item", name),
            ("state", view.state),
            ("job", f"{view.job_id} ({view.job_state})"),
            ("handler", view.handler),
            ("attempts", str(view.attempt_count)),
            ("calls", str(view.calls)),
            ("repeats", str(view.repeats) if view.repeats else None),
            ("progress", f"{view.progress} %" if view.progress else None),
            ("error", view.error_code),
            ("flaw", view.flaw),
            ("reused from", None if view.reused_from is None else f"item {show_item(view.reused_from)}, at no cost"),
            ("task", view.provider_task_id),
            ("deadline", show_moment(view.deadline_at) if view.deadline_at else None),
        )
    )


def _item_object(name: str, shown: "ItemReport", moments: "list[Moment]", body: bool) -> dict[str, Any]:
    bodies: dict[str, Any] = {}
    if body:
        result = shown.attempts[-1].result if shown.attempts else None
        bodies = {"payload": json.loads(shown.view.body or "null"), "result": json.loads(result or "null")}
    reused = shown.view.reused_from
    return {
        "item": name,
        **{key: getattr(shown.view, key) for key in shown.view.__slots__ if key not in ("id", "body")},
        "reused_from": None if reused is None else show_item(reused),
        **bodies,
        "reasons": [reason._asdict() for reason in shown.reasons],
        "attempts": [{key: getattr(a, key) for key in a.__slots__ if key != "result"} for a in shown.attempts],
        "timeline": [moment._asdict() for moment in moments],
    }


@click.command("retry", cls=Command, examples=("backstay item retry 12-345",))
@click.argument("item_id", metavar="ITEM")
@place_options
@json_option
def retry(item_id: str, db: str | None, as_json: bool) -> None:
    """Queues a failed item again and resets its attempts."""
    from backstay.core.ids import job_of, read_item

    number = read_item(item_id)

    async def act(client: "Client") -> None:
        await client.store.jobs.retry(job_of(number), client.owner, number)
        await client.store.notify()

    database_choice.with_client(database_choice.open_app(db), act)
    output.data(output.as_json({"item": item_id, "act": "retry"}) if as_json else f"item {item_id} is queued again")


@click.command("accept-late", cls=Command, examples=("backstay item accept-late 12-345",))
@click.argument("item_id", metavar="ITEM")
@place_options
@json_option
def accept_late(item_id: str, db: str | None, as_json: bool) -> None:
    """Accepts the late result of a failed item: the item succeeds with it."""
    from backstay.core.ids import job_of, read_item

    number = read_item(item_id)
    database_choice.with_client(
        database_choice.open_app(db), lambda client: client.job(job_of(number)).accept_late(number)
    )
    said = f"item {item_id} has succeeded with its late result"
    output.data(output.as_json({"item": item_id, "act": "accept_late"}) if as_json else said)
