"""`backstay prune`: deletes old jobs now, and archives them first if asked.
`backstay migrate`: the database gets the schema of this version.
"""

from typing import TYPE_CHECKING

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, Duration, Name, data_option, json_option, place_options
from backstay.cli.output import show_moment
from backstay.core.errors import UsageError

if TYPE_CHECKING:
    from backstay.app import Backstay
    from backstay.artifacts import Artifacts
    from backstay.client import Client
    from backstay.store.jobs import FinishedJob
    from backstay.upkeep.loop import PrunedJob, PruneRules


@click.command(
    "prune",
    cls=Command,
    examples=(
        "backstay prune --older-than 30d --archive --dry-run",
        "backstay prune --older-than 30d --archive",
        "backstay prune --keep 1000 --all-owners",
    ),
)
@click.option(
    "--older-than",
    type=Duration(needs_unit=True),
    help="Delete jobs that ended at least this long ago, for example 30d.",
)
@click.option("--keep", type=click.IntRange(0, 1_000_000), help="Keep only this many jobs: those that ended last.")
@click.option("--owner", type=Name(), metavar="NAME", help="Only jobs of this owner. Default: BACKSTAY_OWNER.")
@click.option("--all-owners", is_flag=True, help="The jobs of all owners; --keep counts per owner.")
@click.option("--archive/--no-archive", default=None, help="Write each job to a file before it is deleted.")
@click.option("--dry-run", is_flag=True, help="Only list the jobs; delete nothing.")
@data_option
@place_options
@json_option
def prune(
    older_than: float | None,
    keep: int | None,
    owner: str | None,
    all_owners: bool,
    archive: bool | None,
    dry_run: bool,
    data: str | None,
    db: str | None,
    as_json: bool,
) -> None:
    """Deletes ended jobs with their items and results, the oldest first. It can be stopped at any time and run again.

    Without --older-than and --keep, BACKSTAY_JOB_DAYS and BACKSTAY_JOB_COUNT apply; BACKSTAY_JOB_ARCHIVE says
    whether each is archived. A job that another job waits for, or whose batch is being written, is skipped.
    """
    from backstay.upkeep.loop import Pruner, rules_of

    if owner is not None and all_owners:
        raise UsageError("--owner and --all-owners cannot be used together")
    app = database_choice.open_app(db)
    if older_than is not None or keep is not None:  # then the limits of the settings do not apply
        given = {"job_days": older_than and older_than / 86_400, "job_count": keep}
        app.settings = app.settings.model_copy(update=given)
    found = rules_of(app.settings)
    if found is None:
        hint = "use --older-than or --keep, or set BACKSTAY_JOB_DAYS or BACKSTAY_JOB_COUNT"
        raise UsageError("no limit for old jobs is set", hint=hint)
    wanted = found.archive if archive is None else archive
    rules = found._replace(archive=wanted and not dry_run, quiet_ms=0)
    files = _files(app, data, rules)

    async def act(client: "Client") -> "list[PrunedJob]":
        mine = rules._replace(owner=None if all_owners else owner or client.owner)
        pruner = Pruner(client.store, files, client.clock, mine)
        if dry_run:
            return [_show_chosen(job, as_json) async for job in pruner.chosen_jobs()]
        return [_show_pruned(one, as_json) async for one in pruner.run()]

    _sum_up(database_choice.with_client(app, act), dry_run, as_json)


def _files(app: "Backstay", data: str | None, rules: "PruneRules") -> "Artifacts | None":
    from backstay.artifacts import artifacts_of
    from backstay.store.databases.database import is_postgres

    if data or app.settings.data or (rules.archive and not is_postgres(app.url)):
        return database_choice.open_files(app, data)
    return artifacts_of(app.url, app.settings.model_copy(update={"job_archive": False}))


def _show_chosen(job: "FinishedJob", as_json: bool) -> "PrunedJob":
    from backstay.upkeep.loop import HELD, PrunedJob

    skipped = HELD if job.held else None
    if as_json:
        shown = {"job": job.id, "owner": job.owner, "items": job.total, "finished_at": job.finished_at}
        output.data(output.as_json({**shown, "skipped": skipped, "deleted": False}))
    else:
        would = f"would be skipped: {HELD}" if job.held else "would be deleted"
        output.data(f"job {job.id} of {job.owner}, {_items(job.total)}, ended {show_moment(job.finished_at)}: {would}")
    return PrunedJob(job.id, job.owner, job.total, skipped=skipped)


def _show_pruned(one: "PrunedJob", as_json: bool) -> "PrunedJob":
    """Prints each job at once, as progress."""
    if as_json:
        shown = {"job": one.job_id, "owner": one.owner, "items": one.items, "archive": one.archive}
        output.data(output.as_json({**shown, "skipped": one.skipped, "deleted": one.skipped is None}))
    elif one.skipped:
        output.data(f"job {one.job_id} was skipped: {one.skipped}")
    else:
        output.data(f"job {one.job_id}, {_items(one.items)}, was deleted" + (f": {one.archive}" if one.archive else ""))
    return one


def _items(items: int) -> str:
    return output.count(items, "item")


def _sum_up(done: "list[PrunedJob]", dry_run: bool, as_json: bool) -> None:
    if as_json:
        return
    gone = [one for one in done if one.skipped is None]
    jobs, items = output.count(len(gone), "job"), _items(sum(one.items for one in gone))
    skipped = f"; {output.count(len(done) - len(gone), 'job')} skipped" if len(done) > len(gone) else ""
    output.note(f"{jobs} with {items} {'would be ' if dry_run else ''}deleted{skipped}")


@click.command(
    "migrate",
    cls=Command,
    examples=("backstay migrate", "backstay migrate --db postgresql://backstay@localhost/backstay"),
)
@place_options
@json_option
def migrate(db: str | None, as_json: bool) -> None:
    """Upgrades the database to the schema of this version. Running it again changes nothing.

    An SQLite file is created and upgraded automatically at its first use; PostgreSQL needs this command.
    """
    from backstay import wiring

    target = database_choice.choose(db)
    database_choice.make_folder(target)

    async def act() -> tuple[str | None, str | None]:
        before = await wiring.schema_version(target.url)
        await wiring.migrate(target.url)
        return before, await wiring.schema_version(target.url)

    before, after = database_choice.run(act())
    if as_json:
        output.data(output.as_json({"before": before, "after": after, "changed": before != after}))
    elif before == after:
        output.data(f"the schema is already {after}")
    else:
        output.data(f"the schema was upgraded from {before or 'nothing'} to {after}")
