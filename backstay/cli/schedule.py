"""`backstay schedule …`: adds, lists, pauses, resumes, runs and removes schedules."""

import json
from typing import TYPE_CHECKING, Any

import click

from backstay.cli import database_choice, output
from backstay.cli.command import (
    Command,
    LazyGroup,
    Name,
    app_option,
    db_option,
    json_option,
    next_command,
    place_options,
)
from backstay.core.models import MissedPolicy

if TYPE_CHECKING:
    from backstay.client import Client, Job
    from backstay.core.models import NewSchedule
    from backstay.store.schedules import Schedule

COMMANDS = {
    "add": ("backstay.cli.schedule:add", "Add a schedule: a handler, a cron line, a time zone."),
    "list": ("backstay.cli.schedule:list_", "List schedules, with their next and last firing."),
    "pause": ("backstay.cli.schedule:pause", "Stop firing a schedule until it is resumed."),
    "resume": ("backstay.cli.schedule:resume", "Fire a paused schedule again."),
    "run": ("backstay.cli.schedule:run", "Submit a job of a schedule now."),
    "remove": ("backstay.cli.schedule:remove", "Remove a schedule; its jobs stay."),
}

schedule = LazyGroup(
    "schedule",
    lazy=COMMANDS,
    examples=(
        "backstay schedule add morning '0 7 * * *' --handler report --timezone Europe/Berlin",
        "backstay schedule list",
        "backstay schedule pause morning",
    ),
    help="Adds, lists, pauses, resumes, runs and removes schedules. Workers and ticks fire them.",
    no_args_is_help=True,
)

_name = click.argument("name", metavar="NAME")


@click.command(
    "add",
    cls=Command,
    examples=(
        "backstay schedule add morning '0 7 * * *' --handler report --timezone Europe/Berlin",
        "backstay schedule add poll '*/5 * * * *' --handler fetch --payload '{\"page\": 1}' --missed skip",
    ),
)
@_name
@click.argument("cron", metavar="CRON")
@click.option(
    "--handler", type=Name(), metavar="HANDLER", required=True, help="The handler that gets a job at each firing."
)
@click.option("--timezone", metavar="ZONE", default="UTC", show_default=True, help="The time zone of the cron line.")
@click.option("--payload", metavar="JSON", default="{}", show_default=True, help="The payload that the handler gets.")
@click.option(
    "--missed",
    type=click.Choice([policy.value for policy in MissedPolicy]),
    default=MissedPolicy.ONCE.value,
    show_default=True,
    help="If no worker was running at one or more firings: skip them, fire once, or fire all of them.",
)
@click.option("--force", is_flag=True, help="Add it even if no worker is known to run the handler.")
@app_option
@db_option
@json_option
def add(name: str, cron: str, db: str | None, as_json: bool, **given: Any) -> None:
    """Adds a schedule. CRON has five fields: minute, hour, day of month, month, day of week.

    With an application, its code is checked for the handler and the payload. Without one, some worker must have run the
    handler on this database, unless --force is given.
    """
    from backstay import settings

    app = given["app"] or settings.load().app
    made = database_choice.load_app(app, db) if app else database_choice.open_app(db, must_exist=not given["force"])
    new = _new_schedule(made, name, cron, bool(app), given)

    async def write(client: "Client") -> "Schedule":
        if not app and not given["force"]:
            await _require_known(client, new.handler)
        return await client.store.schedules.add(new, client.owner)

    _print_schedule(database_choice.with_client(made, write), "added", as_json)


def _new_schedule(made: Any, name: str, cron: str, has_code: bool, given: dict[str, Any]) -> "NewSchedule":
    """Checked before anything is opened."""
    from backstay.app import new_schedule
    from backstay.core.errors import UsageError

    try:
        payload = json.loads(given["payload"])
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--payload is not JSON: {error}", hint="for example --payload '{\"page\": 1}'") from None
    named = given["handler"]
    is_here = has_code and (named in made.handlers or not given["force"])
    handler = made.handlers[named] if is_here else named
    return new_schedule(handler, cron, given["timezone"], name, payload, given["missed"])


async def _require_known(client: "Client", handler: str) -> None:
    from backstay.app import known_handler
    from backstay.core.errors import UsageError
    from backstay.handlers.function import Registry

    try:
        await known_handler(client.store, Registry(), handler)
    except UsageError as error:
        error.hint = f"{error.hint}; --app MODULE:NAME checks your code instead, --force adds it anyway"
        raise


@click.command("list", cls=Command, examples=("backstay schedule list", "backstay schedule list --json"))
@place_options
@json_option
def list_(db: str | None, as_json: bool) -> None:
    """Lists schedules by name. Firings are shown in the time zone of their schedule."""
    from backstay.app import all_schedules

    async def read(client: "Client") -> "list[Schedule]":
        return [found async for found in all_schedules(client.store, client.owner)]

    target = database_choice.choose(db)
    try:
        found = database_choice.with_client(database_choice.open_target(target), read)
    except database_choice.NoFileYet:
        found = []
    if as_json:
        for one in found:
            output.data(output.as_json(_object(one)))
    elif found:
        columns = ("SCHEDULE", "WHEN", "TIME ZONE", "HANDLER", "MISSED", "NEXT", "LAST", "JOB", "ERROR")
        output.table(columns, map(_row, found))
    else:
        output.note(f"no schedules in {target.description} (from {target.source})")


@click.command("pause", cls=Command, examples=("backstay schedule pause morning",))
@_name
@place_options
@json_option
def pause(name: str, db: str | None, as_json: bool) -> None:
    """Stops firing a schedule until `resume`. Firings in between are skipped."""

    async def act(client: "Client") -> "Schedule":
        return await client.store.schedules.pause(name, client.owner)

    _print_schedule(database_choice.with_client(database_choice.open_app(db), act), "paused", as_json)


@click.command("resume", cls=Command, examples=("backstay schedule resume morning",))
@_name
@place_options
@json_option
def resume(name: str, db: str | None, as_json: bool) -> None:
    """Fires a paused schedule again, from its next time on."""

    async def act(client: "Client") -> "Schedule":
        return await client.store.schedules.resume(name, client.owner)

    _print_schedule(database_choice.with_client(database_choice.open_app(db), act), "resumed", as_json)


@click.command("run", cls=Command, examples=("backstay schedule run morning",))
@_name
@place_options
@json_option
def run(name: str, db: str | None, as_json: bool) -> None:
    """Submits one job now, as a firing would. The next firing stays as it is."""
    app = database_choice.open_app(db)

    async def act(client: "Client") -> "Job[Any]":
        return await app.schedules.run(name)

    job = database_choice.with_client(app, act)
    if as_json:
        output.data(output.as_json({"schedule": name, "job": job.id}))
        return
    output.data(f"schedule {name} runs now as job {job.id}")
    output.note(f"to watch it: {next_command(f'job watch {job.id}')}")


@click.command("remove", cls=Command, examples=("backstay schedule remove morning",))
@_name
@place_options
@json_option
def remove(name: str, db: str | None, as_json: bool) -> None:
    """Removes a schedule. Its jobs stay. A schedule in your code comes back when a worker or a tick starts."""

    async def act(client: "Client") -> "Schedule":
        found = await client.store.schedules.get(name, client.owner)
        await client.store.schedules.remove(name, client.owner)
        return found

    found = database_choice.with_client(database_choice.open_app(db), act)
    output.data(output.as_json({"name": name, "removed": True}) if as_json else f"schedule {name} is removed")
    if found.declared_at is not None:
        output.note("it is also in your code: remove its decorator, or it comes back when a worker or a tick starts")


def _print_schedule(found: "Schedule", done: str, as_json: bool) -> None:
    if as_json:
        output.data(output.as_json(_object(found)))
    else:
        following = "" if found.next_at is None else f"; its next firing is {_moment(found.next_at, found.timezone)}"
        output.data(f"schedule {found.name} is {done}{following}")


def _object(found: "Schedule") -> dict[str, Any]:
    shown = {name: getattr(found, name) for name in found.__slots__ if name != "now"}
    return {**shown, "payload": json.loads(found.payload)}


def _row(found: "Schedule") -> tuple[object, ...]:
    following = "paused" if found.paused_at is not None else _moment(found.next_at, found.timezone)
    last, job = _moment(found.last_at, found.timezone), None if found.last_job is None else str(found.last_job)
    return found.name, found.cron, found.timezone, found.handler, found.missed, following, last, job, found.error


def _moment(at: int | None, timezone: str) -> str | None:
    from backstay.cli.output import show_moment
    from backstay.clock.cron import show_local
    from backstay.core.errors import UsageError

    try:
        return None if at is None else show_local(at, timezone)
    except UsageError:  # a zone that this machine does not know
        return None if at is None else show_moment(at)
