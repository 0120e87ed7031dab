"""`backstay provider …`: the services behind handlers, and holds on them. `backstay providers`: the LLM providers."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, Duration, LazyGroup, json_option, next_command, place_options

if TYPE_CHECKING:
    from backstay.client import Client
    from backstay.core.breaker import Breaker

COMMANDS = {
    "list": ("backstay.cli.provider:list_", "List providers and their circuit breakers."),
    "hold": ("backstay.cli.provider:hold", "Stop sending to a provider."),
    "release": ("backstay.cli.provider:release", "Close a provider's circuit breaker, or end its hold."),
}

provider = LazyGroup(
    "provider",
    lazy=COMMANDS,
    examples=(
        "backstay provider list",
        "backstay provider hold openai --reason 'quota' --for 2h",
        "backstay provider release openai",
    ),
    help="Lists, holds or releases providers: the services that handlers call.",
    no_args_is_help=True,
)


@click.command("list", cls=Command, examples=("backstay provider list", "backstay provider list --json"))
@place_options
@json_option
def list_(db: str | None, as_json: bool) -> None:
    """Lists the providers that workers run or that were ever held, with the state of their circuit breakers."""
    from backstay.core.breaker import Breaker

    async def read(client: "Client") -> "tuple[list[Breaker], int]":
        holds = await client.store.providers.holds()
        names = holds.providers.keys() | await known_providers(client)
        return [holds.providers.get(name, Breaker(name)) for name in sorted(names)], holds.now

    breakers, now = database_choice.with_client(database_choice.open_app(db), read)
    if as_json:
        for breaker in breakers:
            output.data(output.as_json(_object(breaker)))
    elif breakers:
        output.table(("PROVIDER", "STATE", "UNTIL", "WHY"), (_row(breaker, now) for breaker in breakers))
    else:
        output.note("no providers: no worker has run yet")


async def known_providers(client: "Client") -> set[str]:
    return {name for worker in await client.store.workers.page() for name in worker.providers.values()}


def _object(breaker: "Breaker") -> dict[str, object]:
    shown = ("provider", "state", "since_at", "until_at", "reason")
    return {name: getattr(breaker, name) for name in shown}


def _row(breaker: "Breaker", now: int) -> tuple[object, ...]:
    from backstay.core.breaker import BreakerState
    from backstay.core.display import TimePoint

    until = None if breaker.until_at is None else str(TimePoint(breaker.until_at, now))
    if until is None and breaker.state is BreakerState.HELD:
        until = "released by hand"
    return breaker.provider, breaker.state, until, breaker.reason


@click.command(
    "hold",
    cls=Command,
    examples=("backstay provider hold openai --reason 'quota used up'", "backstay provider hold openai --for 2h"),
)
@click.argument("name", metavar="PROVIDER")
@click.option("--reason", default="an operator asked for it", show_default=True, help="The reason, shown to operators.")
@click.option("--for", "seconds", type=Duration(), help="End the hold after this time. Default: until `release`.")
@place_options
@json_option
def hold(name: str, reason: str, seconds: float | None, db: str | None, as_json: bool) -> None:
    """Stops sending to a provider: its items stay queued and lose no attempt."""
    from backstay.core.failures import one_line

    async def act(client: "Client") -> "tuple[Breaker, bool]":
        change = await client.store.providers.hold(name, one_line(reason), seconds)
        return change.after, name in await known_providers(client)

    after, known = database_choice.with_client(database_choice.open_app(db), act)
    if not known:
        output.note(f"no worker has used a provider {name!r} yet; it is held anyway")
    output.data(output.as_json(_object(after)) if as_json else f"provider {name} is {after.state}")


@click.command("release", cls=Command, examples=("backstay provider release openai",))
@click.argument("name", metavar="PROVIDER")
@place_options
@json_option
def release(name: str, db: str | None, as_json: bool) -> None:
    """Closes a provider's circuit breaker, or ends its hold: its items run again at once."""
    from backstay.core.errors import NotFound

    async def act(client: "Client") -> "Breaker":
        holds = await client.store.providers.holds()
        if name not in holds.providers:
            raise NotFound(
                f"no provider {name!r} is held or open", hint=f"`{next_command('provider list')}` shows them all"
            )
        change = await client.store.providers.release(name)
        await client.store.notify()
        return change.after

    after = database_choice.with_client(database_choice.open_app(db), act)
    output.data(output.as_json(_object(after)) if as_json else f"provider {name} is {after.state}")


COLUMNS = ("PROVIDER", "LANES", "CALL FOUND AGAIN", "BATCH FOUND AGAIN", "PRICES", "KEY IN", "KEY")


@click.command("providers", cls=Command, examples=("backstay providers", "backstay providers --json"))
@json_option
def providers(as_json: bool) -> None:
    """Lists the LLM providers for --provider, and what each can do.

    "Found again" tells how sure Backstay can be about a request after a crash. certain: it knows whether the provider
    got it. if found: it knows only if it finds it. never: it sends the request again, or gives it up (--delivery).
    A key itself is never shown.
    """
    from backstay.llm.providers import provider_names

    rows = [ability_of(name) for name in provider_names()]
    for row in rows if as_json else ():
        output.data(output.as_json(row))
    if not as_json:
        output.table(COLUMNS, map(ability_row, rows))


def ability_of(name: str, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What a provider can do. Without an instance of its parts: none has a key here."""
    from backstay.llm.provider import Certainty
    from backstay.llm.providers import provider_named

    provider = provider_named(name)
    access = provider.access_in(environ)
    return {
        "provider": name,
        "lanes": provider.lanes,
        "call_found_again": getattr(provider.call_lookup, "certainty", Certainty.NEVER),
        "batch_found_again": getattr(provider.batches, "certainty", None),
        "prices": provider.price_list is not None,
        "key_env": access.key_env,
        "key_needed": access.needs_key,
        "key_set": bool(environ.get(access.key_env)),
        "base_url": access.base_url or None,
        "base_url_env": access.base_url_env,
    }


def ability_row(row: dict[str, Any]) -> tuple[Any, ...]:
    prices = "known" if row["prices"] else "give --price"
    key = "set" if row["key_set"] else "missing" if row["key_needed"] else "not needed"
    found = (row["call_found_again"], row["batch_found_again"] or "-")
    return row["provider"], ", ".join(row["lanes"]), *found, prices, row["key_env"], key
