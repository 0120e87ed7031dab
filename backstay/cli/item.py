"""`backstay item …`: one item, its timeline, and why it is not running."""

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from backstay.cli import access, output
from backstay.cli.command import Command, LazyGroup, json_option, place_options, repeated
from backstay.cli.jobs import show_moment

if TYPE_CHECKING:
    from backstay.client import Client
    from backstay.core.reasons import Reason, Standing
    from backstay.store.views import AttemptView, EventView, ItemView, WorkerView

COMMANDS = {
    "show": ("backstay.cli.item:show", "Show an item, its timeline, and why it is not running."),
    "retry": ("backstay.cli.item:retry", "Queue a failed item afresh."),
}

item = LazyGroup(
    "item",
    lazy=COMMANDS,
    examples=("backstay item show 12-345", "backstay item retry 12-345"),
    help="Shows an item and why it is not running, or retries it.",
    no_args_is_help=True,
)


class Shown(NamedTuple):
    view: "ItemView"
    attempts: "list[AttemptView]"
    events: "list[EventView]"
    reasons: "list[Reason]"


class Moment(NamedTuple):
    """A line of a timeline."""

    at: int
    what: str
    detail: str | None


@click.command("show", cls=Command, examples=("backstay item show 12-345", "backstay item show 12-345 --json"))
@click.argument("item_id", metavar="ITEM")
@click.option("--body", is_flag=True, help="Show the payload and the result too.")
@place_options
@json_option
def show(item_id: str, body: bool, db: str | None, as_json: bool) -> None:
    """Shows an item, everything that happened to it, and why it is not running now."""
    from backstay.core.ids import read_item, show_item

    number = read_item(item_id)
    item_id = show_item(number)
    app = access.open_app(db)
    shown = access.with_client(app, lambda client: look(client, number, int(app.limits.lease_seconds * 1000)))
    moments = timeline(shown.view, shown.attempts, shown.events)
    if as_json:
        output.data(output.as_json(_item_object(item_id, shown, moments, body)))
        return
    _print_item(item_id, shown.view)
    output.data("why it is not running" if shown.view.state in ("queued", "processing") else "how it stands")
    for reason in shown.reasons:
        output.data(f"  {repeated(reason.text)}")
    if body:
        last = shown.attempts[-1].result if shown.attempts else None
        output.record((("payload", shown.view.body), ("result", last)))
    output.data("timeline")
    for moment in moments:
        output.data(f"  {show_moment(moment.at)}  {moment.what}" + (f": {moment.detail}" if moment.detail else ""))


async def look(client: "Client", item_id: int, lease_ms: int) -> Shown:
    from backstay.core.reasons import why_not_running

    views = client.store.views
    view = _unparked(await views.item(item_id, client.owner))
    attempts = await views.attempts(item_id)
    workers = await views.workers()
    live = sum(view.handler in worker.handlers and worker.alive(lease_ms) for worker in workers)
    breaker = (await client.store.holds()).providers.get(provider_of(view.handler, workers))
    ahead = await views.ahead(item_id) if view.state == "queued" else 0
    is_request = view.handler in dict(await client.store.endpoints(open_only=False))
    standing = _standing(view, attempts, breaker=breaker, live_workers=live, ahead=ahead, is_request=is_request)
    return Shown(view, attempts, await views.events(f"item:{item_id}"), why_not_running(standing))


def _unparked(view: "ItemView") -> "ItemView":
    """The due time of a paused job's item that was moved out of the claim's way is no time to show."""
    from dataclasses import replace

    from backstay.store.park import NEVER_MS

    return view if view.due_at is None or view.due_at < NEVER_MS else replace(view, due_at=None)


def provider_of(handler: str, workers: "list[WorkerView]") -> str:
    """The provider behind a handler, as the workers that run it say; without any, it has the handler's name."""
    told = (worker.providers[handler] for worker in workers if handler in worker.providers)
    return next(told, handler)


def _standing(view: "ItemView", attempts: "list[AttemptView]", **around: Any) -> "Standing":
    """The item's row, as far as it has a say, with what is around it."""
    from dataclasses import fields

    from backstay.core.reasons import Standing

    own = {field.name: getattr(view, field.name) for field in fields(Standing) if field.name in view.__slots__}
    return Standing(**own, last_message=attempts[-1].message if attempts else None, **around)


def timeline(view: "ItemView", attempts: "list[AttemptView]", events: "list[EventView]") -> list[Moment]:
    """The item's submission, tries and rare acts in the order of time."""
    moments = [Moment(view.created_at, "submitted", None)]
    for attempt in attempts:
        status = None if attempt.provider_status is None else f"provider status {attempt.provider_status}"
        took = f"{(attempt.ended_at - attempt.started_at) / 1000:.3f} s"
        detail = ", ".join(part for part in (took, status, attempt.error_code, attempt.message) if part)
        # An item that time ended before its first try has an attempt without a time.
        at = attempt.ended_at or view.finished_at or view.created_at
        moments.append(Moment(at, f"attempt {attempt.number} ended: {attempt.outcome}", detail))
    moments += [Moment(event.at, event.act, event.detail) for event in events]
    return sorted(moments, key=lambda moment: moment.at)


def _print_item(name: str, view: "ItemView") -> None:
    output.record(
        (
            ("item", name),
            ("state", view.state),
            ("job", f"{view.job_id} ({view.job_state})"),
            ("handler", view.handler),
            ("attempts", str(view.attempt_count)),
            ("repeats", str(view.repeats) if view.repeats else None),
            ("progress", f"{view.progress} %" if view.progress else None),
            ("error", view.error_code),
            ("task", view.provider_task_id),
            ("deadline", show_moment(view.deadline_at) if view.deadline_at else None),
        )
    )


def _item_object(name: str, shown: Shown, moments: list[Moment], body: bool) -> dict[str, Any]:
    bodies: dict[str, Any] = {}
    if body:
        result = shown.attempts[-1].result if shown.attempts else None
        bodies = {"payload": json.loads(shown.view.body or "null"), "result": json.loads(result or "null")}
    return {
        "item": name,
        **{key: getattr(shown.view, key) for key in shown.view.__slots__ if key not in ("id", "body")},
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
    """Queues a failed item afresh, with all its attempts before it."""
    from backstay.core.ids import job_of, read_item

    number = read_item(item_id)

    async def act(client: "Client") -> None:
        await client.store.retry(job_of(number), client.owner, number)
        await client.store.notify()

    access.with_client(access.open_app(db), act)
    output.data(output.as_json({"item": item_id, "act": "retry"}) if as_json else f"item {item_id} is queued again")
