"""The options that say where requests go, how fast and for how much; `run` and `submit` have the same."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from backstay.cli.command import Duration, Name
from backstay.cli.request_options import (
    FLAWS,
    Dollars,
    Flaws,
    price_option,
    reasks_option,
    require_schema,
    schema_option,
)
from backstay.run.destination import CHEAPEST
from backstay.run.options import ALWAYS, CONCURRENCY_MAX, NEVER, Reuse, RunOptions

F = TypeVar("F", bound=Callable[..., Any])

LANES = click.Choice(["call", "background", "batch", CHEAPEST])

provider_option = click.option(
    "--provider",
    metavar="NAME",
    help="The provider of all requests: see `backstay providers`. Default: found by the model or the key that is set.",
)
base_url_option = click.option(
    "--base-url",
    metavar="URL",
    help="The base URL of the service. Default: the provider's own. Without --provider it speaks OpenAI's API.",
)
api_key_env_option = click.option(
    "--api-key-env",
    metavar="NAME",
    help="The environment variable that holds the API key. Default: the provider's own, for example OPENAI_API_KEY.",
)
api_key_command_option = click.option(
    "--api-key-command",
    metavar="COMMAND",
    help="A command that prints the API key; it runs again before the key expires. Or google-auth, azure-identity.",
)
max_output_tokens_option = click.option(
    "--max-output-tokens", type=click.IntRange(1), help="The longest reply, for requests that set no limit themselves."
)
header_option = click.option(
    "--header",
    multiple=True,
    metavar="NAME=VARIABLE",
    help="An additional header; its value is read from an environment variable.",
)
rpm_option = click.option(
    "--rpm", type=click.IntRange(1), help="Rate limit: requests per minute, of all workers together."
)
tpm_option = click.option("--tpm", type=click.IntRange(1), help="Rate limit: tokens per minute, input and output.")


def further_limit_options(command: F) -> F:
    for name, what in (
        ("rpd", "requests in any 24 hours"),
        ("otpm", "output tokens per minute"),
        ("itpm", "input tokens per minute"),
    ):
        command = click.option(f"--{name}", type=click.IntRange(1), help=f"Rate limit: {what}.")(command)
    return command


timeout_option = click.option(
    "--timeout",
    type=Duration(),
    help="How long one request may take. Default: gateway_timeout_ms, or 10m for a call.",
)
fallback_option = click.option(
    "--fallback",
    type=Name(),
    metavar="PROVIDER:MODEL,…",
    help="Where to send requests that their own provider fails, refuses or has no capacity for, in this order. "
    "PROVIDER:MODEL=IN/OUT gives a price. With `submit --handler`: the name of another handler.",
)


class ReuseChoice(click.ParamType[Reuse]):
    """always, never, or the highest age of an answer."""

    name = "reuse"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Reuse:
        if isinstance(value, Reuse):
            return value
        known = {"always": ALWAYS, "never": NEVER}.get(str(value))
        return known or Reuse(age_seconds=Duration(needs_unit=True).convert(value, param, ctx))


reuse_option = click.option(
    "--reuse",
    type=ReuseChoice(),
    metavar="always|never|AGE",
    help="Use the answers of earlier runs to the same requests, at no cost: always, never, or those not older than AGE "
    "(12h, 7d). Default: always; with --new: never.",
)
dedupe_option = click.option("--dedupe", is_flag=True, help="Send and pay for identical requests only once.")


def run_options(command: F) -> F:
    """Adds the options, which the command gets as one argument `terms`."""

    @wraps(command)
    def collecting(*args: Any, **given: Any) -> Any:
        terms = RunOptions(**{name: given.pop(name) for name in RunOptions._fields})
        require_schema(terms.schema, terms.reasks)
        return command(*args, terms=terms, **given)

    for option in reversed(_OPTIONS):
        collecting = option(collecting)
    return collecting  # type: ignore[return-value]


_OPTIONS = (
    provider_option,
    base_url_option,
    click.option(
        "--lane", type=LANES, default="call", show_default=True, help="Calls, background tasks, or half-price batches."
    ),
    api_key_env_option,
    api_key_command_option,
    header_option,
    click.option(
        "--concurrency",
        type=click.IntRange(1, CONCURRENCY_MAX),
        default=100,
        show_default=True,
        help="Concurrent requests.",
    ),
    rpm_option,
    tpm_option,
    further_limit_options,
    timeout_option,
    price_option,
    click.option(
        "--budget", type=Dollars(), metavar="DOLLARS", help="The budget: the run never spends more than this."
    ),
    max_output_tokens_option,
    click.option(
        "--reconcilable",
        is_flag=True,
        help="Have the provider store completions, so that they can be looked up after a crash.",
    ),
    click.option(
        "--delivery",
        type=click.Choice(["at_least_once", "at_most_once"]),
        help="What to do with a request that may have been processed, if the provider cannot be asked.",
    ),
    click.option("--deadline", type=Duration(), help="Requests that are not done by then fail: 90s, 20m, 24h."),
    fallback_option,
    dedupe_option,
    click.option(
        "--fail-on",
        type=Flaws(),
        default=(),
        metavar="FLAWS",
        help=f"Count these answers as failures, and retry them: any of {','.join(FLAWS)}.",
    ),
    schema_option,
    reasks_option,
    click.option("--new", is_flag=True, help="Start a new run instead of resuming the earlier one."),
    reuse_option,
)
