"""`backstay serve`: the HTTP service, with a worker inside.
`backstay key …`: the API keys of the HTTP service.
"""

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from backstay.cli import database_choice, output
from backstay.cli.command import (
    Command,
    Dollars,
    Duration,
    LazyGroup,
    Name,
    app_option,
    broker_option,
    data_option,
    db_option,
    json_option,
    log_level_option,
    metrics_options,
    next_command,
    place_options,
)
from backstay.cli.output import show_moment
from backstay.cli.request_options import (
    api_key_command_option,
    api_key_env_option,
    further_limit_options,
    header_option,
    max_output_tokens_option,
    price_option,
    rpm_option,
    timeout_option,
    tpm_option,
)
from backstay.core.errors import UsageError
from backstay.run.options import RunOptions

if TYPE_CHECKING:
    from backstay.app import Backstay
    from backstay.client import Client
    from backstay.server.service import ServiceOptions
    from backstay.settings import Settings
    from backstay.store.keys import ApiKey, NewKey


BEHIND = ("api_key_env", "concurrency")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
ONE_ONLY = ("base_url", "api_key_env", "api_key_command", "header")  # one provider's key must not be sent to another
# Of no use without a provider.
UPSTREAM = (
    "header",
    "rpm",
    "tpm",
    "itpm",
    "otpm",
    "rpd",
    "timeout",
    "price",
    "budget",
    "max_output_tokens",
    "api_key_command",
)


@click.command(
    "serve",
    cls=Command,
    examples=(
        "backstay serve --base-url http://127.0.0.1:9000/v1 --db sqlite:///runs.db",
        "backstay serve --provider openai --provider anthropic --db sqlite:///runs.db",
        "backstay serve --host 0.0.0.0 --port 8000 --db postgresql://… --data s3://bucket/backstay --no-worker",
    ),
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8000, show_default=True, help="The port; 0 picks a free one."
)
@click.option(
    "--provider",
    "providers",
    multiple=True,
    metavar="NAME",
    help="The provider of batch requests: see `backstay providers`. Give it several times to serve several providers: "
    "each request goes to the provider of its model.",
)
@click.option("--base-url", help="The service that batch requests are sent to. Default: the provider's own.")
@api_key_env_option
@api_key_command_option
@click.option("--concurrency", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Concurrent calls.")
@header_option
@rpm_option
@tpm_option
@further_limit_options
@timeout_option
@price_option
@click.option(
    "--budget", type=Dollars(), metavar="DOLLARS", help="The budget of each batch: it never spends more than this."
)
@max_output_tokens_option
@data_option
@click.option(
    "--worker/--no-worker", "works", default=True, show_default=True, help="Also run a worker in this process."
)
@click.option(
    "--require-key/--no-require-key",
    default=None,
    help="Require an API key for requests from this machine, too. The default if public_url names another machine, or "
    "trusted_proxies is set.",
)
@click.option("--strict-openai", is_flag=True, help="Refuse requests that OpenAI would refuse.")
@click.option(
    "--replay/--no-replay",
    default=True,
    show_default=True,
    help="If a client repeats a batch request because the answer was lost, return the existing batch.",
)
@metrics_options
@app_option
@db_option
@broker_option
@json_option
@log_level_option
@click.pass_context
def serve(ctx: click.Context, /, db: str | None, app: str | None, log_level: str | None, **given: Any) -> None:
    """Serves the HTTP API, including OpenAI's Files and Batches, and runs the submitted work.

    While it listens only on this machine, no key is needed unless --require-key is given; with any other --host every
    request needs a key from `backstay key create`. Behind a proxy on this machine, give --require-key: the service
    cannot always tell forwarded requests from local ones.

    SIGTERM or Ctrl-C stops it cleanly: running requests and items get time to finish. When it is ready, it prints its
    address on stderr, or with --json on stdout. If PostgreSQL cannot be reached at the start, it waits
    (BACKSTAY_START_WAIT_SECONDS).
    """
    from backstay.cli.running import log_to_stderr

    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise UsageError(
            "the service needs packages that are not installed", hint="pip install 'backstay[service]'"
        ) from None
    loaded = database_choice.load_served_app(app, db) if app else database_choice.open_app(db, must_exist=False)
    database_choice.use_broker(loaded, given["broker"])
    if given["data"]:
        loaded.settings = loaded.settings.model_copy(update={"data": given["data"]})
    log_to_stderr(loaded, log_level, given["as_json"])
    options = _options(ctx, given, loaded.settings)
    if options.upstream is not None and given["api_key_command"]:
        database_choice.use_key_commands(loaded, {options.upstream.api: given["api_key_command"]})
    ctx.exit(database_choice.run(_serve(loaded, given, options)))


def _open_here(given: dict[str, Any], settings: "Settings") -> bool:
    """Whether requests from this machine need no key. A service with a public URL has a proxy in front of it, and
    nothing always tells a request that the proxy passes on from one that a program on this machine sends."""
    listens_here, required = given["host"] in LOOPBACK, given["require_key"]
    if required is False and not listens_here:
        hint = f"leave out --host, or create keys with `{next_command('key create')}`"
        raise UsageError("--no-require-key works only for a service that listens on this machine", hint=hint)
    if required is None:
        elsewhere = settings.public_url is not None and urlsplit(settings.public_url).hostname not in LOOPBACK
        required = elsewhere or bool(settings.trusted_proxies)
    return listens_here and not required


def _options(ctx: click.Context, given: dict[str, Any], settings: "Settings") -> "ServiceOptions":
    from backstay.llm.fallbacks import Route
    from backstay.server.service import ServiceOptions

    options = ServiceOptions(
        open_here=_open_here(given, settings),
        strict_openai=given["strict_openai"],
        concurrency=given["concurrency"],
        works=given["works"],
        replays=given["replay"],
    )
    names = sorted(set(given["providers"]) or (() if given["base_url"] else settings.providers))
    only = names[0] if len(names) == 1 else None
    asked = RunOptions(provider=only, lane="call", **{name: given[name] for name in ("base_url", *BEHIND, *UPSTREAM)})
    if len(names) > 1:
        _check_one_only(given, names)
    elif (api := asked.destination.only_provider) is not None:
        names = [api]
    else:
        for name in UPSTREAM:
            if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                option = f"--{name.replace('_', '-')}"
                raise UsageError(
                    f"{option} applies to batch requests, and no --base-url is given",
                    hint="also give --base-url or --provider",
                )
        return options
    if given["works"]:
        for api in names:
            asked.destination.require_key(api)
    order = asked.order(map(Route, names), out="-")
    return replace(
        options,
        upstream=order.endpoint,
        terms=order.terms,
        budget_micros=order.budget_micros,
        output_tokens_default=order.output_tokens_default,
    )


def _check_one_only(given: dict[str, Any], names: list[str]) -> None:
    from backstay.llm.providers import provider_named

    for name in ONE_ONLY:
        if given[name]:
            own = provider_named(names[0]).access
            variables = {"base_url": own.base_url_env, "api_key_env": own.key_env}
            hint = f"set the variables of each provider, for example {variables.get(name, own.key_env)}"
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} works with one provider only, not with {' and '.join(names)}", hint=hint)


async def _serve(loaded: "Backstay", given: dict[str, Any], options: "ServiceOptions") -> int:
    from backstay.cli import running
    from backstay.clock import collect_rarely
    from backstay.process import start_when_reachable
    from backstay.server.app import ServiceServer, create_app, server_config, take_port

    collect_rarely()
    app, sockets = create_app(loaded, options), take_port(given["host"], given["port"])
    config = server_config(
        app,
        loaded.settings.trusted_proxies,
        timeout_graceful_shutdown=int(loaded.limits.shutdown_seconds),
        timeout_keep_alive=75,
        lifespan="off",
    )
    host = f"[{given['host']}]" if ":" in given["host"] else given["host"]
    url = f"http://{host}:{sockets[0].getsockname()[1]}"
    async with start_when_reachable(
        loaded, lambda: running.serve_metrics(loaded, given["metrics_host"], given["metrics_port"])
    ):
        await ServiceServer(config, app, loaded, lambda: _print_address(url, options, given["as_json"])).serve(sockets)
    return 0


def _print_address(url: str, options: "ServiceOptions", as_json: bool) -> None:
    if as_json:
        click.echo(output.as_json({"url": url, "process": os.getpid()}))
        return
    output.note(f"backstay: serving on {url} (process {os.getpid()})")
    if options.upstream is None:
        output.note(
            "backstay: batches are refused: no --base-url or --provider is given, so their requests have no destination"
        )
    if not options.open_here:
        output.note(f"backstay: every request needs a key, `{next_command('key create')}` creates one")


COMMANDS = {
    "create": ("backstay.cli.serve:create", "Create a key; it is shown once."),
    "list": ("backstay.cli.serve:list_keys", "List the keys of an owner."),
    "revoke": ("backstay.cli.serve:revoke", "Revoke a key at once."),
    "rotate": ("backstay.cli.serve:rotate", "Replace a key; the old one works for a while longer."),
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
@click.option("--name", default="", help="A name, to recognise the key in lists.")
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
