"""`backstay jobs`: the list."""

from typing import TYPE_CHECKING

import click

from backstay.cli import database_choice, output
from backstay.cli.command import JOB, Command, again, json_option, place_options

if TYPE_CHECKING:
    from backstay.client import Client
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
        output.note(f"more: {again(f'jobs --before {views[-1].id}')}")
    elif not views:
        older = "" if before is None else f" before {before}"
        output.note(f"no jobs{older} in {target.shown} (from {target.source})")


def _row(view: "JobView") -> tuple[object, ...]:
    done = f"{view.done:,}/{view.total:,}"
    return str(view.id), show_state(view), done, view.failed, view.handler, show_moment(view.created_at), view.label


def show_state(view: "JobView") -> str:
    """A job whose next item does not fit under its budget runs no further by itself."""
    return f"{view.state}, stopped at its budget" if view.held_by_budget else str(view.state)


def show_moment(at: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
