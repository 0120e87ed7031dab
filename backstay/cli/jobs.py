"""`backstay jobs`, the list, and `backstay job watch`, one job live."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

from backstay.cli import database_choice, output
from backstay.cli.command import JOB, Command, json_option, next_command, place_options
from backstay.cli.output import show_moment

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from backstay.client import Client
    from backstay.clock import Clock
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
