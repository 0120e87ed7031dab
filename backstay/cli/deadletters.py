"""`backstay deadletters …`: lists, replays, archives and restores permanently failed items of all jobs."""

import json
from typing import TYPE_CHECKING, Any

import click

from backstay.cli import database_choice, output
from backstay.cli.command import (
    JOB,
    Command,
    Duration,
    LazyGroup,
    data_option,
    json_option,
    next_command,
    place_options,
)
from backstay.cli.output import show_moment
from backstay.core.errors import ErrorCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from backstay.client import Client
    from backstay.store.archives import Archive
    from backstay.store.dead_letters import Groups, LetterFilter, Replayed, ReplayRow
    from backstay.store.item_views import ItemView


ROWS_MAX = 1_000

COMMANDS = {
    "list": ("backstay.cli.deadletters:list_letters", "List failed items, grouped by error or one by one."),
    "show": ("backstay.cli.deadletters:show", "Show a failed item and its request."),
    "replay": ("backstay.cli.deadletters:replay", "Queue failed items again, all at once or at a rate."),
    "replays": ("backstay.cli.deadletters:replays", "List past replays: who replayed which items."),
    "archive": (
        "backstay.cli.deadletters:archive",
        "Move failed items into archives, by the settings or by a filter.",
    ),
    "archives": ("backstay.cli.deadletters:archives", "List the archives."),
    "restore": ("backstay.cli.deadletters:restore", "Bring the items of an archive back."),
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
    """The options that choose failed items; each one narrows the choice."""
    codes = click.Choice([code.value for code in ErrorCode])
    command = click.option(
        "--older-than",
        type=Duration(needs_unit=True),
        help="Only items that failed at least this long ago, for example 2d.",
    )(command)
    command = click.option("--code", type=codes, help="Only items that failed with this error code.")(command)
    return click.option("--job", type=JOB, metavar="JOB", help="Only items of this job.")(command)


def letter_filter(job: int | None, code: str | None, older_than: float | None) -> "LetterFilter":
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
        wanted = letter_filter(job, code, older_than)
        _print_items(database_choice.with_client(app, lambda client: _first(client, wanted, limit)), as_json)
        return
    _print_groups(
        database_choice.with_client(app, lambda client: client.store.dead_letters.groups(client.owner, job)), as_json
    )


async def _first(client: "Client", wanted: "LetterFilter", n: int) -> "list[ItemView]":
    """The first `n` items, from as many pages as needed."""
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
    where = (
        None if row.archive_id is None else f"{row.archive_id}: {next_command(f'deadletters restore {row.archive_id}')}"
    )
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
    wanted, named = letter_filter(job, code, older_than), [read_item(item) for item in items]
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


@click.command(
    "archive",
    cls=Command,
    examples=("backstay deadletters archive", "backstay deadletters archive --job 12 --older-than 1d"),
)
@filter_options
@data_option
@place_options
@json_option
def archive(
    job: int | None, code: str | None, older_than: float | None, data: str | None, db: str | None, as_json: bool
) -> None:
    """Moves failed items of ended jobs into archives: the items beyond the limits, or the items a filter chooses.

    The limits are BACKSTAY_DEAD_LETTER_DAYS, _ITEMS and _BYTES. Servers and workers also apply them on their own.
    """
    from backstay.upkeep.loop import Retention, bounds_of

    app = database_choice.open_app(db)
    files = database_choice.open_files(app, data)

    async def act(client: "Client") -> int:
        retention = Retention(client.store.archives, files, client.clock, bounds_of(app.settings))
        gone = 0
        while True:
            if job is None and code is None and older_than is None:
                some = await retention.run_once(exact=True)
            else:
                some = await retention.archive(client.owner, letter_filter(job, code, older_than))
            gone += some
            if not some:
                return gone

    gone = database_choice.with_client(app, act)
    if as_json:
        output.data(output.as_json({"items": gone}))
    else:
        output.data(f"{output.count(gone, 'item')} {'is' if gone == 1 else 'are'} archived")


@click.command("archives", cls=Command, examples=("backstay deadletters archives",))
@click.option(
    "--limit", type=click.IntRange(1, ROWS_MAX), default=20, show_default=True, help="How many archives to show."
)
@place_options
@json_option
def archives(limit: int, db: str | None, as_json: bool) -> None:
    """Lists the archives of dead letters, the newest first."""

    async def read(client: "Client") -> "list[Archive]":
        return await client.store.archives.page(client.owner, None, limit)

    found = database_choice.with_client(database_choice.open_app(db), read)
    if as_json:
        for one in found:
            output.data(output.as_json(one._asdict()))
        return
    rows = [
        (
            one.id,
            one.items,
            one.bytes,
            *map(show_moment, (one.first_at, one.last_at, one.created_at)),
            None if one.restored_at is None else show_moment(one.restored_at),
        )
        for one in found
    ]
    if rows:
        output.table(("ARCHIVE", "ITEMS", "BYTES", "FIRST FAILED", "LAST FAILED", "ARCHIVED", "RESTORED"), rows)
    else:
        output.note("no archives")


@click.command("restore", cls=Command, examples=("backstay deadletters restore 3",))
@click.argument("archive_id", metavar="ARCHIVE", type=click.IntRange(1, (1 << 63) - 1))
@data_option
@place_options
@json_option
def restore(archive_id: int, data: str | None, db: str | None, as_json: bool) -> None:
    """Brings the items of an archive back, after checking that its file is complete. Running it twice is harmless.

    Restored items stay for another BACKSTAY_DEAD_LETTER_DAYS.
    """
    from backstay.upkeep.archivist import Archivist
    from backstay.upkeep.loop import bounds_of

    app = database_choice.open_app(db)
    files = database_choice.open_files(app, data)

    async def act(client: "Client") -> "tuple[Archive, int]":
        store = client.store
        found = await store.archives.archive(archive_id, client.owner)
        keep_ms = bounds_of(app.settings).age_ms
        return found, await Archivist(store.archives, files, client.clock).restore(found, keep_ms)

    found, items = database_choice.with_client(app, act)
    if as_json:
        output.data(output.as_json({"archive": archive_id, "items": items}))
        return
    if found.restored_at is not None:
        output.data(f"archive {archive_id} was restored before, on {show_moment(found.restored_at)}")
        return
    output.data(f"{output.count(items, 'item')} {'is' if items == 1 else 'are'} back")
    output.note(f"to run them again: {next_command('deadletters replay')} with --job, --code or item ids")
