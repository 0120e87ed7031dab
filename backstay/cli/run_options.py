"""The options that say where requests go, how fast and for how much; `run` and `submit` have the same."""

import os
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import click

from backstay.cli.command import Duration
from backstay.cli.request_options import price_option
from backstay.core.errors import UsageError
from backstay.core.outcomes import ANSWER_FLAWS

if TYPE_CHECKING:
    from backstay.llm.endpoint import Endpoint
    from backstay.llm.formats import OnlyPath
    from backstay.llm.prices import PricePerMillion
    from backstay.llm.provider import ProviderAccess
    from backstay.run.submission import Order

F = TypeVar("F", bound=Callable[..., Any])

API = "openai"
CONCURRENCY_MAX = 10_000
CHEAPEST = "cheapest"
FLAWS = tuple(flaw.value for flaw in ANSWER_FLAWS)
LANES = click.Choice(["call", "background", "batch", CHEAPEST])

api_option = click.option(
    "--api",
    metavar="NAME",
    default=API,
    show_default=True,
    help="Whose API the service speaks.",
)
base_url_option = click.option(
    "--base-url",
    metavar="URL",
    help="The base URL of the service. Default: OPENAI_BASE_URL, or OpenAI; with another --api, its own.",
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
timeout_option = click.option(
    "--timeout",
    type=Duration(),
    help="How long one request may take. Default: gateway_timeout_ms, or 10m for a call.",
)
dedupe_option = click.option("--dedupe", is_flag=True, help="Send and pay for identical requests only once.")


class Dollars(click.ParamType[int]):
    """An amount of dollars, as micro-dollars: 5, 5.00, $0.25."""

    name = "dollars"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).strip().removeprefix("$")
        try:
            micros = Decimal(text) * 1_000_000
        except InvalidOperation:
            self.fail(f"{value!r} is not an amount of dollars; write 5, 5.00 or 0.25", param, ctx)
        if not micros.is_finite() or micros != micros.to_integral_value() or not 0 < micros < 1 << 62:
            self.fail(f"{value!r} is out of range: it must be above 0, with at most six decimals", param, ctx)
        return int(micros)


class Flaws(click.ParamType[tuple[str, ...]]):
    """Some of the flaws that an answer can have, with commas between them."""

    name = "flaws"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        named = {part.strip().lower() for part in str(value).split(",")}
        for part in sorted(named - set(FLAWS)):
            self.fail(f"{part!r} is not valid; choose from {', '.join(FLAWS)}", param, ctx)
        return tuple(flaw for flaw in FLAWS if flaw in named)


class RunOptions(NamedTuple):
    """What the user said about where requests go."""

    base_url: str | None
    api: str
    lane: str
    api_key_env: str | None
    header: tuple[str, ...]
    concurrency: int
    rpm: int | None
    tpm: int | None
    timeout: float | None
    price: "PricePerMillion | None"
    budget: int | None
    max_output_tokens: int | None
    reconcilable: bool = False
    delivery: str | None = None
    deadline: float | None = None
    dedupe: bool = False
    new: bool = False
    fail_on: tuple[str, ...] = ()

    def order(self, **more: Any) -> "Order":
        from backstay.llm.endpoint import Lane
        from backstay.run.submission import Order

        cheapest = self.lane == CHEAPEST
        if cheapest:
            _check_deadline(self.deadline, self.timeout)
        return Order(
            endpoint=self._endpoint(Lane.BATCH if cheapest else Lane(self.lane)),
            call_instead=self._endpoint(Lane.CALL) if cheapest else None,
            concurrency=self.concurrency,
            requests_per_minute=self.rpm,
            tokens_per_minute=self.tpm,
            budget_micros=self.budget,
            output_tokens_default=self.max_output_tokens,
            delivery=self.delivery,
            deadline_seconds=self.deadline,
            dedupe=self.dedupe,
            new=self.new,
            **more,
        )

    def require_key(self) -> None:
        """Refuses what would only be refused by the service, where that is certain before anything is sent."""
        if os.environ.get(self.key_env) or any(text.lower().startswith("authorization=") for text in self.header):
            return
        own = access_of(self.api)
        hint = f"set {self.key_env} to your API key"
        if self.key_env != own.key_env:
            raise UsageError(f"the environment variable {self.key_env} is not set", hint=hint)
        if self.url == own.base_url:
            host = urlsplit(own.base_url).hostname
            raise UsageError(f"{own.key_env} is not set, and {host} needs a key", hint=f"{hint}, or give a --base-url")

    @property
    def key_env(self) -> str:
        return self.api_key_env or access_of(self.api).key_env

    @property
    def url(self) -> str:
        return service_url(self.base_url, self.api)

    @property
    def only(self) -> "OnlyPath | None":
        return only_of(self.api, self.lane, self.reconcilable)

    def _endpoint(self, lane: Any) -> "Endpoint":
        from backstay.llm.endpoint import Endpoint, Lane
        from backstay.llm.registry import check_base_url

        if self.reconcilable and lane is not Lane.CALL:
            raise UsageError(
                "--reconcilable works only with --lane call", hint="leave out --reconcilable, or use --lane call"
            )
        price = None if self.price is None else tuple(rate for rate in self.price[:3] if rate is not None)
        headers = tuple(_header(text) for text in self.header)
        check_base_url(self.url, self.api)
        terms = (price, self.reconcilable, self.timeout, self.fail_on)
        return Endpoint(self.url, lane, self.key_env, headers, *terms, self.api)


def access_of(api: str) -> "ProviderAccess":
    from backstay.llm.registry import provider_named

    return provider_named(api).access


def service_url(base_url: str | None, api: str) -> str:
    if base_url is not None and not base_url.strip():
        raise UsageError("--base-url is empty", hint="give the URL of the service, or leave the option out")
    own = access_of(api)
    return (base_url or os.environ.get(own.base_url_env) or own.base_url).rstrip("/")


def only_of(api: str, lane: str, reconcilable: bool = False) -> "OnlyPath | None":
    """The path of the requests that can be sent so, if not all can."""
    from backstay.llm.endpoint import Lane
    from backstay.llm.formats import OnlyPath
    from backstay.llm.registry import provider_named

    kind = Lane.BACKGROUND if lane == Lane.BACKGROUND else Lane.CALL
    path = provider_named(api).requests.only_path(kind, reconcilable)
    option = "--lane background" if kind is Lane.BACKGROUND else "--reconcilable"
    return None if path is None else OnlyPath(path, option, kind is Lane.BACKGROUND)


def _check_deadline(deadline: float | None, timeout: float | None) -> None:
    """Batches may begin until the last quarter of the deadline, which must be enough to gather and create one."""
    from backstay import settings
    from backstay.core.display import show_seconds
    from backstay.llm.batch import RUN_SECONDS

    if deadline is None:
        raise UsageError("--lane cheapest needs a deadline", hint="for example --deadline 24h")
    least = 3 * min(RUN_SECONDS, timeout or settings.load().call_seconds() or RUN_SECONDS)
    if deadline < least:
        raise UsageError(
            f"{show_seconds(deadline)} is too short for a batch: --lane cheapest needs {show_seconds(least)} or more",
            hint="give a later --deadline, or --lane call",
        )


def _header(text: str) -> tuple[str, str]:
    name, equals, variable = text.partition("=")
    if not (equals and name.strip() and re.fullmatch(r"[A-Za-z_]\w*", variable.strip(), re.ASCII)):
        raise UsageError(
            f"--header {name!r} must have the form NAME=VARIABLE",
            hint="the value is read from the environment, for example X-Org=MY_ORG",
        )
    return name.strip(), variable.strip()


def run_options(command: F) -> F:
    """Adds the options, which the command gets as one argument `terms`."""

    @wraps(command)
    def collecting(*args: Any, **given: Any) -> Any:
        terms = RunOptions(**{name: given.pop(name) for name in RunOptions._fields})
        return command(*args, terms=terms, **given)

    for option in reversed(_OPTIONS):
        collecting = option(collecting)
    return collecting  # type: ignore[return-value]


_OPTIONS = (
    api_option,
    base_url_option,
    click.option(
        "--lane", type=LANES, default="call", show_default=True, help="Calls, background tasks, or half-price batches."
    ),
    click.option(
        "--api-key-env",
        metavar="NAME",
        help="The environment variable that holds the API key. Default: OPENAI_API_KEY; with another --api, its own.",
    ),
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
    dedupe_option,
    click.option(
        "--fail-on",
        type=Flaws(),
        default=(),
        metavar="FLAWS",
        help=f"Count these answers as failures, and retry them: any of {','.join(FLAWS)}.",
    ),
    click.option("--new", is_flag=True, help="Start a new run instead of resuming the earlier one."),
)
