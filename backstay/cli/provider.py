"""`backstay provider …`: the services behind the handlers, and the holds on them."""

from typing import TYPE_CHECKING

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, Duration, LazyGroup, again, json_option, place_options

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
            raise NotFound(f"no provider {name!r} is held or open", hint=f"`{again('provider list')}` shows them all")
        change = await client.store.providers.release(name)
        await client.store.notify()
        return change.after

    after = database_choice.with_client(database_choice.open_app(db), act)
    output.data(output.as_json(_object(after)) if as_json else f"provider {name} is {after.state}")
