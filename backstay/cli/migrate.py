"""`backstay migrate`: the database gets the schema of this version."""

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, json_option, place_options


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
        output.data(f"the schema is {after} already")
    else:
        output.data(f"the schema went from {before or 'nothing'} to {after}")
