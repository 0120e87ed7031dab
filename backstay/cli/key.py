"""`backstay key …`: the API keys of the HTTP service."""

from typing import TYPE_CHECKING

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, Duration, LazyGroup, Name, json_option, place_options
from backstay.cli.output import show_moment

if TYPE_CHECKING:
    from backstay.client import Client
    from backstay.store.keys import ApiKey, NewKey

COMMANDS = {
    "create": ("backstay.cli.key:create", "Create a key; it is shown once."),
    "list": ("backstay.cli.key:list_keys", "List the keys of an owner."),
    "revoke": ("backstay.cli.key:revoke", "Revoke a key at once."),
    "rotate": ("backstay.cli.key:rotate", "Replace a key; the old one works for a while longer."),
}

key = LazyGroup(
    "key",
    lazy=COMMANDS,
    examples=("backstay key create --role write", "backstay key rotate 3f2a91c0d4e5"),
    help="Creates, lists, revokes and rotates the API keys of the HTTP service.",
    no_args_is_help=True,
)

_ROLES = "read: see work; write: also submit, stop and delete; admin: also hold providers and accept late results."
_owner = click.option(
    "--owner",
    type=Name(),
    help="The owner whose work the key can see. Default: the owner in the settings.",
)


def _without_secret(ctx: click.Context, parameter: click.Parameter, text: str) -> str:
    """A person may paste the whole key; its secret must not be repeated in a message."""
    return text.split("_")[1] if text.startswith("bks_") else text


_key_id = click.argument("key_id", metavar="KEY", callback=_without_secret)
_lives = click.option(
    "--expires", type=Duration(), help="How long the key is valid, for example 90d. Default: until revoked."
)


@click.command("create", cls=Command, examples=("backstay key create --role read --name grafana --expires 90d",))
@click.option("--role", type=click.Choice(["read", "write", "admin"]), default="write", show_default=True, help=_ROLES)
@click.option("--name", default="", help="A name for people.")
@_owner
@_lives
@place_options
@json_option
def create(role: str, name: str, owner: str | None, expires: float | None, db: str | None, as_json: bool) -> None:
    """Creates an API key and prints it. It is not stored and cannot be shown again."""
    from backstay.store.keys import Role

    async def make(client: "Client") -> "NewKey":
        return await client.store.keys.create(owner or client.owner, Role(role), name, expires)

    _show_new(database_choice.with_client(database_choice.open_app(db, must_exist=False), make), as_json)


@click.command("list", cls=Command, examples=("backstay key list --json",))
@_owner
@place_options
@json_option
def list_keys(owner: str | None, db: str | None, as_json: bool) -> None:
    """Lists the keys of an owner, the newest first; never their secrets."""

    async def read(client: "Client") -> "list[ApiKey]":
        return await client.store.keys.list(owner or client.owner)

    keys = database_choice.with_client(database_choice.open_app(db), read)
    if as_json:
        shown = ({name: value for name, value in one._asdict().items() if name != "digest"} for one in keys)
        output.data(output.as_json(list(shown)))
        return
    columns = ("id", "role", "name", "created", "expires", "last used", "revoked")
    rows = [
        (
            one.id,
            one.role.value,
            one.name,
            *(_moment(at) for at in (one.created_at, one.expires_at, one.used_at)),
            _moment(one.revoked_at),
        )
        for one in keys
    ]
    output.table(columns, rows)


@click.command("revoke", cls=Command, examples=("backstay key revoke 3f2a91c0d4e5",))
@_key_id
@_owner
@place_options
@json_option
def revoke(key_id: str, owner: str | None, db: str | None, as_json: bool) -> None:
    """Revokes a key: servers stop accepting it within seconds."""

    async def end(client: "Client") -> None:
        await client.store.keys.revoke(key_id, owner or client.owner)

    database_choice.with_client(database_choice.open_app(db), end)
    if as_json:
        output.data(output.as_json({"id": key_id, "revoked": True}))
        return
    output.note(f"key {key_id} is revoked")


@click.command("rotate", cls=Command, examples=("backstay key rotate 3f2a91c0d4e5 --grace 1h",))
@_key_id
@click.option(
    "--grace", type=Duration(or_none=True), default="1d", show_default=True, help="How long the old key stays valid."
)
@_owner
@_lives
@place_options
@json_option
def rotate(key_id: str, grace: float, owner: str | None, expires: float | None, db: str | None, as_json: bool) -> None:
    """Creates a new key with the same role and name. The old one expires after --grace."""

    async def make(client: "Client") -> "NewKey":
        return await client.store.keys.rotate(key_id, owner or client.owner, grace, expires)

    _show_new(database_choice.with_client(database_choice.open_app(db), make), as_json)


def _show_new(made: "NewKey", as_json: bool) -> None:
    if as_json:
        shown = {"id": made.id, "key": made.text, "created_at": made.created_at, "expires_at": made.expires_at}
        output.data(output.as_json(shown))
        return
    output.data(made.text)
    output.note(f"key {made.id}: copy it now, it is not stored and cannot be shown again")


def _moment(at: int | None) -> str | None:
    return None if at is None else show_moment(at)
