"""`backstay jobs`, the list; `backstay job watch`, one job live; and `backstay item`, one item of a job."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

from backstay.cli import database_choice, output
from backstay.cli.command import JOB, Command, LazyGroup, json_option, next_command, on_same_database, place_options
from backstay.cli.output import show_moment
from backstay.core.ids import show_item

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from backstay.client import Client
    from backstay.clock import Clock
    from backstay.store.item_views import ItemDetail, ItemReport, ItemView, Moment
    from backstay.store.job_views import JobView


ROWS_MAX = 1_000


@click.command(
    "jobs",
    cls=Command,
    examples=(
        "backstay jobs",
        "backstay jobs --limit 5 --json",
        "backstay jobs --before 120        # the page after the one that ended with job 120",
    ),
)
@click.option("--limit", type=click.IntRange(1, ROWS_MAX), default=20, show_default=True, help="How many jobs to show.")
@click.option("--before", type=JOB, metavar="JOB", help="Only jobs older than this one.")
@place_options
@json_option
def jobs(limit: int, before: int | None, db: str | None, as_json: bool) -> None:
    """Lists jobs, the newest first."""
    from backstay.store.job_views import LAST_ID

    async def read(client: "Client") -> "list[JobView]":
        return await client.store.job_views.page(client.owner, before or LAST_ID, limit)

    target = database_choice.choose(db)
    try:
        views = database_choice.with_client(database_choice.open_target(target), read)
    except database_choice.NoFileYet:
        views = []
    if as_json:
        for view in views:
            output.data(output.as_json(view))
        return
    if views:
        output.table(("JOB", "STATE", "DONE", "FAILED", "HANDLER", "CREATED", "LABEL"), map(_row, views))
    if len(views) == limit:
        output.note(f"more: {next_command(f'jobs --before {views[-1].id}')}")
    elif not views:
        older = "" if before is None else f" before {before}"
        output.note(f"no jobs{older} in {target.description} (from {target.source})")


def _row(view: "JobView") -> tuple[object, ...]:
    done = f"{view.done:,}/{view.total:,}"
    return str(view.id), show_state(view), done, view.failed, view.handler, show_moment(view.created_at), view.label


def show_state(view: "JobView") -> str:
    """The state of a job for people; a job that its budget stops says so."""
    return f"{view.state}, stopped at its budget" if view.held_by_budget else str(view.state)


LINE_SECONDS = 10.0
LINE_PERCENT = 10


class Watch(Protocol):
    def show(self, view: "JobView") -> None: ...


@contextmanager
def watching(as_json: bool) -> Iterator[Watch]:
    """Shows the progress in the form that fits the output: JSON, lines, or a bar on a terminal."""
    if as_json or not output.fancy(sys.stderr):
        from backstay.clock import Clock

        yield WatchLines(Clock(), as_json)
    else:
        with _bar() as bar:
            yield bar


class WatchLines:
    """Prints a line at the start, at the end, and in between after ten seconds or ten percent."""

    def __init__(self, clock: "Clock", as_json: bool) -> None:
        self._clock = clock
        self._as_json = as_json
        self._said_at: float | None = None
        self._said_percent = 0

    def show(self, view: "JobView") -> None:
        now, percent = self._clock.monotonic(), percent_of(view)
        waited = self._said_at is None or now - self._said_at >= LINE_SECONDS
        if not (waited or percent >= self._said_percent + LINE_PERCENT or view.ended):
            return
        self._said_at, self._said_percent = now, percent
        if self._as_json:
            output.data(output.as_json({"job": view.id, "percent": percent, **counts_of(view)}))
            sys.stdout.flush()
        else:
            said = "" if view.state == "cancelled" else f"{percent} %, "  # it will not go on
            output.note(f"job {view.id}: {said}{describe(view)}")


def percent_of(view: "JobView") -> int:
    return (view.done - view.cancelled) * 100 // view.total if view.total else 0


def counts_of(view: "JobView") -> dict[str, object]:
    from backstay.core.models import ANSWER_FLAWS

    counted = ("state", "total", "done", "processing", "succeeded", "failed", "skipped", "cancelled", "repeats")
    return {name: getattr(view, name) for name in (*counted, *ANSWER_FLAWS)}


def describe(view: "JobView") -> str:
    from backstay.core.models import ANSWER_FLAWS

    parts = [f"{view.done - view.cancelled:,} of {output.count(view.total, 'item')} done"]
    counted = ("failed", "skipped", "cancelled", *ANSWER_FLAWS)
    parts += [f"{getattr(view, name):,} {name}" for name in counted if getattr(view, name)]
    if view.state == "cancelled":
        return f"cancelled, {', '.join(parts)}"
    return ", ".join([*parts, show_state(view)])


class ProgressBar:
    """A progress bar on a terminal."""

    def __init__(self, progress: "Progress", task: "TaskID") -> None:
        self._progress = progress
        self._task = task

    def show(self, view: "JobView") -> None:
        text = f"job {view.id}: {describe(view)}"
        self._progress.update(self._task, completed=view.done, total=view.total, description=text)


@contextmanager
def _bar() -> Iterator[ProgressBar]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    left = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(
        *left, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as progress:
        yield ProgressBar(progress, progress.add_task("waiting", total=None))


# backstay item …: one item, its timeline, and why it is not running

COMMANDS = {
    "show": ("backstay.cli.jobs:show", "Show an item, its timeline, and why it is not running."),
    "retry": ("backstay.cli.jobs:retry", "Queue a failed item again."),
    "accept-late": ("backstay.cli.jobs:accept_late", "Accept the late result of a failed item."),
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
