"""`backstay deadletters …`: lists permanently failed items of all jobs, and replays them."""

import json
from typing import TYPE_CHECKING, Any

import click

from backstay.cli import database_choice, output
from backstay.cli.command import JOB, Command, Duration, LazyGroup, again, json_option, place_options
from backstay.cli.jobs import show_moment
from backstay.core.errors import ErrorCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from backstay.client import Client
    from backstay.store.dead_letters import Groups, LetterFilter, Replayed, ReplayRow
    from backstay.store.item_views import ItemView

ROWS_MAX = 1_000

COMMANDS = {
    "list": ("backstay.cli.deadletters:list_letters", "List failed items, grouped by error or one by one."),
    "show": ("backstay.cli.deadletters:show", "Show a failed item and its request."),
    "replay": ("backstay.cli.deadletters:replay", "Queue failed items again, all at once or at a rate."),
    "replays": ("backstay.cli.deadletters:replays", "List past replays: who replayed which items."),
    "archive": (
        "backstay.cli.archives:archive",
        "Move failed items into archives, by the settings or by a filter.",
    ),
    "archives": ("backstay.cli.archives:archives", "List the archives."),
    "restore": ("backstay.cli.archives:restore", "Bring the items of an archive back."),
}

deadletters = LazyGroup(
    "deadletters",
    lazy=COMMANDS,
    examples=(
        "backstay deadletters list",
        "backstay deadletters replay --code GW_5XX --rate 10 --dry-run",
        "backstay deadletters restore 3",
    ),
    help="Lists, replays, archives and restores dead letters: items of any job that failed permanently.",
    no_args_is_help=True,
)


def filter_options(command: "Callable[..., None]") -> "Callable[..., None]":
    """Which failed items: every part narrows it down."""
    codes = click.Choice([code.value for code in ErrorCode])
    command = click.option(
        "--older-than",
        type=Duration(needs_unit=True),
        help="Only items that failed at least this long ago, for example 2d.",
    )(command)
    command = click.option("--code", type=codes, help="Only items that failed with this error code.")(command)
    return click.option("--job", type=JOB, metavar="JOB", help="Only items of this job.")(command)


def wanted_of(job: int | None, code: str | None, older_than: float | None) -> "LetterFilter":
    from backstay.store.dead_letters import LetterFilter

    return LetterFilter(job, code, int((older_than or 0) * 1000))


@click.command(
    "list",
    cls=Command,
    examples=("backstay deadletters list", "backstay deadletters list --items --code GW_4XX --limit 20"),
)
@click.option("--items", "one_by_one", is_flag=True, help="List single items, those of the newest jobs first.")
@filter_options
@click.option(
    "--limit", type=click.IntRange(1, ROWS_MAX), default=50, show_default=True, help="How many items to show."
)
@place_options
@json_option
def list_letters(
    one_by_one: bool,
    job: int | None,
    code: str | None,
    older_than: float | None,
    limit: int,
    db: str | None,
    as_json: bool,
) -> None:
    """Lists failed items, grouped by error code: how many, the first, the last. Archived items are not listed."""
    if not one_by_one and (code or older_than):
        raise UsageError("a filter needs --items", hint="add --items to use --job, --code or --older-than")
    app = database_choice.open_app(db)
    if one_by_one:
        wanted = wanted_of(job, code, older_than)
        _print_items(database_choice.with_client(app, lambda client: _first(client, wanted, limit)), as_json)
        return
    _print_groups(
        database_choice.with_client(app, lambda client: client.store.dead_letters.groups(client.owner, job)), as_json
    )


async def _first(client: "Client", wanted: "LetterFilter", n: int) -> "list[ItemView]":
    """As many as are wanted, over as many pages as that takes."""
    found: list[ItemView] = []
    before: int | None = None
    while len(found) < n:
        rows, before = await client.store.dead_letters.page(client.owner, wanted, before, n - len(found))
        found += rows
        if before is None:
            break
    return found


def _print_groups(found: "Groups", as_json: bool) -> None:
    from backstay.core.ids import show_item

    if as_json:
        for group in found.groups:
            shown = {"oldest": show_item(group.oldest), "newest": show_item(group.newest)}
            output.data(output.as_json({**group._asdict(), **shown}))
        return
    rows = [
        (one.error_code, one.items, show_moment(one.first_at), show_moment(one.last_at), show_item(one.newest))
        for one in found.groups
    ]
    if rows:
        output.table(("ERROR", "ITEMS", "FIRST", "LAST", "FOR EXAMPLE"), rows)
    if not found.complete:
        output.note(f"these are the first items of {found.items:,} failed items of the newest {found.jobs} jobs")
    elif not rows:
        output.note("no dead letters")


def _print_items(rows: "list[ItemView]", as_json: bool) -> None:
    from backstay.core.ids import show_item

    if as_json:
        for row in rows:
            output.data(output.as_json({"item": show_item(row.id), **_item_fields(row)}))
        return
    cells = [(show_item(row.id), row.error_code, _moment(row.finished_at), row.handler, row.message) for row in rows]
    if cells:
        output.table(("ITEM", "ERROR", "FAILED", "HANDLER", "MESSAGE"), cells)
    else:
        output.note("no dead letters")


def _item_fields(row: "ItemView") -> dict[str, Any]:
    names = ("handler", "error_code", "message", "attempt_count", "finished_at", "archive_id")
    return {name: getattr(row, name) for name in names}


def _moment(at: int | None) -> str | None:
    return None if at is None else show_moment(at)


@click.command("show", cls=Command, examples=("backstay deadletters show 12-345",))
@click.argument("item_id", metavar="ITEM")
@place_options
@json_option
def show(item_id: str, db: str | None, as_json: bool) -> None:
    """Shows a failed item and its request. For an archived item it names the archive."""
    import json

    from backstay.core.errors import NotFound
    from backstay.core.ids import read_item, show_item

    number = read_item(item_id)
    name = show_item(number)

    async def read(client: "Client") -> "tuple[ItemView, str | None]":
        row = await client.store.item_views.row(number, client.owner)
        if row.state != "failed":
            raise NotFound(f"no failed item {name}", hint="someone may have retried it")
        return row, (await client.store.item_views.bodies(number, client.owner)).payload

    row, payload = database_choice.with_client(database_choice.open_app(db), read)
    asked = None if row.archive_id is not None else payload
    if as_json:
        output.data(output.as_json({"item": name, **_item_fields(row), "payload": json.loads(asked or "null")}))
        return
    where = None if row.archive_id is None else f"{row.archive_id}: {again(f'deadletters restore {row.archive_id}')}"
    failed = (("error", row.error_code), ("message", row.message), ("failed", _moment(row.finished_at)))
    output.record(
        (("item", name), *failed, ("attempts", str(row.attempt_count)), ("payload", asked), ("archive", where))
    )


@click.command(
    "replay",
    cls=Command,
    examples=(
        "backstay deadletters replay --code GW_5XX --dry-run      # how many would that be?",
        "backstay deadletters replay --code GW_5XX --rate 10      # ten of them a second",
        "backstay deadletters replay 12-345 12-346",
    ),
)
@click.argument("items", metavar="[ITEM]...", nargs=-1)
@filter_options
@click.option("--all", "everything", is_flag=True, help="Replay all dead letters; required if no filter is given.")
@click.option("--rate", type=click.FloatRange(0.01, 10_000), help="Items per second. Default: all at once.")
@click.option("--dry-run", is_flag=True, help="Only count; replay nothing.")
@place_options
@json_option
def replay(
    items: tuple[str, ...],
    job: int | None,
    code: str | None,
    older_than: float | None,
    everything: bool,
    rate: float | None,
    dry_run: bool,
    db: str | None,
    as_json: bool,
) -> None:
    """Queues failed items again and resets their attempts. Running the same replay twice queues each item once.

    With --rate the items return gradually; the command need not stay running for that. Backstay records who replayed
    what: see `backstay deadletters replays`.
    """
    from backstay.core.ids import read_item
    from backstay.store.dead_letters import ReplayRequest

    if not (items or job is not None or code or older_than or everything):
        raise UsageError("no dead letters are chosen", hint="give item ids, --job, --code, --older-than or --all")
    wanted, named = wanted_of(job, code, older_than), [read_item(item) for item in items]
    by = None if dry_run else ReplayRequest(database_choice.person(), rate)

    async def act(client: "Client") -> "Replayed":
        store = client.store
        if named:
            done = await store.replays.replay_some(client.owner, wanted, named, by)
        else:
            done = await store.replays.replay(client.owner, wanted, by)
        await store.notify()
        return done

    done = database_choice.with_client(database_choice.open_app(db), act)
    _print_replayed(done, dry_run, as_json)
    if (left := len(set(named)) - done.items) > 0 and not done.more:
        output.note(f"{output.count(left, 'named item')} skipped: not failed, in an archive, or excluded by a filter")


def _print_replayed(done: "Replayed", dry_run: bool, as_json: bool) -> None:
    if as_json:
        output.data(output.as_json({"dry_run": dry_run, "items": done.items, "replay": done.number, "more": done.more}))
        return
    number = f" (replay {done.number})" if done.number is not None else ""
    are = "is" if done.items == 1 else "are"
    output.data(f"{output.count(done.items, 'item')} {'would be' if dry_run else are} queued again{number}")
    if done.more:
        output.note("there may be more: run the same command again")


@click.command("replays", cls=Command, examples=("backstay deadletters replays",))
@click.option(
    "--limit", type=click.IntRange(1, ROWS_MAX), default=20, show_default=True, help="How many replays to show."
)
@place_options
@json_option
def replays(limit: int, db: str | None, as_json: bool) -> None:
    """Lists past replays of dead letters and who ran them, the newest first."""

    async def read(client: "Client") -> "list[ReplayRow]":
        return await client.store.replays.page(client.owner, None, limit)

    rows = database_choice.with_client(database_choice.open_app(db), read)
    if as_json:
        for row in rows:
            output.data(output.as_json(row._asdict() | {"filter": json.loads(row.filter)}))
        return
    cells = [(row.id, show_moment(row.at), row.by, row.items, row.rate, row.filter) for row in rows]
    if cells:
        output.table(("REPLAY", "WHEN", "BY", "ITEMS", "A SECOND", "FILTER"), cells)
    else:
        output.note("no replays")
