"""`backstay provider …`: the services behind handlers, and holds on them. `backstay providers`: the LLM providers.
`backstay practice`: a stand-in for a paid provider, to rehearse a run before paying for it.
"""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, Duration, LazyGroup, json_option, next_command, place_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from backstay.client import Client
    from backstay.core.breaker import Breaker
    from backstay.practice import Practice


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

    rows = [ability_of(name, os.environ) for name in provider_names()]
    for row in rows if as_json else ():
        output.data(output.as_json(row))
    if not as_json:
        output.table(COLUMNS, map(ability_row, rows))


def ability_of(name: str, environ: Mapping[str, str]) -> dict[str, Any]:
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


F = TypeVar("F", bound="Callable[..., Any]")

SHARE = click.FloatRange(0, 1)
SECONDS = click.FloatRange(0)
COUNT = click.IntRange(1)


class PracticeAddress(NamedTuple):
    host: str
    port: int
    as_json: bool


def fault_options(command: F) -> F:
    """In the order in which the help shows them; shares are of all requests."""
    for flag, kind, text in reversed(
        (
            ("--seed", int, "The seed of random faults: with the same seed the same requests get the same faults."),
            ("--latency", SECONDS, "Mean duration of a call in seconds; single calls take 50 % to 150 % of it."),
            ("--fail", SHARE, "Share of calls that get status 500, 502 or 503."),
            ("--throttle", SHARE, "Share of calls that get status 429, with or without a Retry-After header."),
            ("--retry-after", SECONDS, "Seconds in the Retry-After header of a throttled call. Default: 1."),
            ("--hang", SHARE, "Share of calls without an answer; half of them are done and billed."),
            ("--cut", SHARE, "Share of calls whose connection is cut: before, during or after the answer."),
            ("--slow-body", SHARE, "Share of calls whose answer arrives slowly, in pieces."),
            ("--slow-seconds", SECONDS, "Seconds until a slow answer is complete. Default: 5."),
            (
                "--nonsense",
                SHARE,
                "Share of calls with status 200 and a broken body: not JSON, cut short, a gzip bomb.",
            ),
            ("--invalid", SHARE, "Share of answers that do not fit the schema that the request asks for."),
            ("--quota", click.IntRange(0), "Charged calls allowed; every later call gets 429 insufficient_quota."),
            ("--concurrency", COUNT, "Concurrent calls; further calls wait and are never refused."),
            ("--key", str, "The only valid API key; others get 401."),
            ("--answer-tokens", COUNT, "Tokens of an answer, if the request allows it. Default: a short echo."),
            ("--visible-after", SECONDS, "Seconds until a stored completion can be listed. Default: 0."),
            ("--background-seconds", SECONDS, "Seconds that a background response takes. Default: 1."),
            ("--file-seconds", SECONDS, "Seconds until an uploaded file can be used for a batch. Default: 0."),
            ("--batch-seconds", SECONDS, "Seconds that a batch takes. Default: 5."),
            ("--batch-expire", SHARE, "Share of batches that expire half-way."),
            ("--batch-enqueued-tokens", COUNT, "Tokens that may wait in all batches together."),
        )
    ):
        command = click.option(flag, type=kind, help=text)(command)
    return command


@click.command(
    "practice",
    cls=Command,
    examples=(
        "backstay practice --port 9000 --latency 0.2 --fail 0.05 --rate-limit 500rpm",
        "backstay practice --port 0 --json --cut 0.01 --hang 0.001 --outage 30:60",
        "curl http://127.0.0.1:9000/bill?summary=1",
    ),
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to serve on.")
@click.option("--port", type=click.IntRange(0, 65_535), default=9000, show_default=True, help="0 picks a free port.")
@fault_options
@click.option("--rate-limit", multiple=True, metavar="RATE", help="500rpm or 100000tpm; may be repeated.")
@click.option("--outage", multiple=True, metavar="START:SECONDS", help="Be down from START on; may be repeated.")
@click.option("--price", default="0.15/0.60", show_default=True, help="Dollars per million tokens, as INPUT/OUTPUT.")
@click.option("--bill-file", type=click.Path(dir_okay=False, path_type=Path), help="Keeps the bill across restarts.")
@json_option
def practice(
    host: str,
    port: int,
    rate_limit: tuple[str, ...],
    outage: tuple[str, ...],
    price: str,
    bill_file: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Serves a stand-in for OpenAI's API that fails as you ask it to and keeps a bill, until it is stopped.

    It prints its address on stderr, or with --json on stdout. The bill is at /bill, its counts are at /counts, and POST
    /faults changes what goes wrong while it runs.
    """
    from backstay.practice import Faults, Practice
    from backstay.practice.faults import parse_outage, parse_rate

    given |= {**dict(map(parse_rate, rate_limit)), "outage": tuple(map(parse_outage, outage))}
    faults = Faults(**{name: value for name, value in given.items() if value is not None})
    database_choice.run(_serve(Practice(faults, price, bill_file), PracticeAddress(host, port, as_json)))


async def _serve(provider: "Practice", address: PracticeAddress) -> None:
    from backstay.clock import collect_rarely
    from backstay.core.errors import UsageError

    _raise_file_limit()
    collect_rarely()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with provider.serving(address.host, address.port) as base_url:
            _print_address(base_url, address.as_json)
            await stop.wait()
    except OSError as error:
        raise UsageError(f"cannot serve on {address.host}:{address.port}: {error.strerror}") from None


def _print_address(base_url: str, as_json: bool) -> None:
    if as_json:
        click.echo(output.as_json({"base_url": base_url}))
    else:
        output.note(f"practice provider at {base_url}, its bill at {base_url.removesuffix('/v1')}/bill")


def _raise_file_limit() -> None:
    """Every connection is an open file, and the usual limit is a thousand."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
