"""`backstay deadletters archive`, `archives` and `restore`: dead letters that leave the database, and come back."""

from typing import TYPE_CHECKING

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, again, json_option, place_options
from backstay.cli.deadletters import ROWS_MAX, filter_options, wanted_of
from backstay.cli.jobs import show_moment

if TYPE_CHECKING:
    from backstay.app import Backstay
    from backstay.artifacts import Artifacts
    from backstay.client import Client
    from backstay.store.archives import Archive

data_option = click.option(
    "--data", metavar="PLACE", help="Where Backstay keeps files: a folder, or s3://bucket/prefix."
)


def open_files(app: "Backstay", data: str | None) -> "Artifacts":
    from backstay.artifacts import default_folder, files_at

    return files_at(data or app.settings.data or str(default_folder(app.url)), app.settings)


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
    from backstay.upkeep.retention import Retention, bounds_of

    app = database_choice.open_app(db)
    files = open_files(app, data)

    async def act(client: "Client") -> int:
        retention = Retention(client.store.archives, files, client.clock, bounds_of(app.settings))
        gone = 0
        while True:
            if job is None and code is None and older_than is None:
                some = await retention.run_once(exact=True)
            else:
                some = await retention.archive(client.owner, wanted_of(job, code, older_than))
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
    from backstay.upkeep.retention import bounds_of

    app = database_choice.open_app(db)
    files = open_files(app, data)

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
    output.note(f"to run them again: {again('deadletters replay')} with --job, --code or item ids")
