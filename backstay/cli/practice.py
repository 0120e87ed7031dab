"""`backstay practice`: a stand-in for a paid provider, to rehearse a run before paying for it."""

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, json_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from backstay.practice import Practice

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
