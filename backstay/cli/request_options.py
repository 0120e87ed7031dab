"""The options of commands that send requests: how a file is read, where the requests go, how fast and for how much."""

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from backstay.cli.command import Dollars, Duration, Name
from backstay.cli.output import count, note
from backstay.core.errors import UsageError
from backstay.core.models import ANSWER_FLAWS
from backstay.run.options import ALWAYS, CHEAPEST, CONCURRENCY_MAX, NEVER, Reuse, RunOptions

if TYPE_CHECKING:
    from backstay.llm.formats import InputOptions
    from backstay.llm.intake import FileSurvey
    from backstay.llm.prices import PricePerMillion
    from backstay.llm.schemas import AnswerSchema


FORMATS = ("batch", "bodies", "prompts", "rows", "csv", "text")
FLAWS = tuple(flaw.value for flaw in ANSWER_FLAWS)
F = TypeVar("F", bound=Callable[..., Any])

_FORMAT = "The format of the requests. Default: found from the file name and the first line."
_MODEL = "The model for requests without one: prompts, rows, and bodies that name no model. May be PROVIDER:MODEL."
_TEMPLATE = "The request for each row, with {column} for its fields: a prompt, or @FILE with a prompt or a JSON body."
_ENDPOINT = "The path for requests without a url, for example /v1/responses. Default: found from their content."
_SKIP = "Skip lines that cannot be sent."
_PRICE = "Dollars per million tokens, as INPUT/OUTPUT or INPUT/OUTPUT/CACHED. Default: the published price."


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


class RequestOptions(NamedTuple):
    """The options about a file of requests."""

    format: str | None
    model: str | None
    template: str | None
    endpoint: str | None
    skip_bad_lines: bool

    def input_options(self) -> "InputOptions":
        from backstay.llm.formats import Format, InputOptions

        chosen = None if self.format is None else Format(self.format)
        return InputOptions(chosen, self.model, _template(self.template), self.endpoint)


def request_options(command: F) -> F:
    """Adds the options, which the command gets as one argument `wanted`."""

    @wraps(command)
    def collect(*args: Any, **given: Any) -> Any:
        wanted = RequestOptions(**{name: given.pop(name) for name in RequestOptions._fields})
        return command(*args, wanted=wanted, **given)

    options = (
        click.option("--format", type=click.Choice(FORMATS), help=_FORMAT),
        click.option("--model", metavar="NAME", help=_MODEL),
        click.option("--prompt", "--template", "template", metavar="TEXT", help=_TEMPLATE),
        click.option("--endpoint", metavar="PATH", help=_ENDPOINT),
        click.option("--skip-bad-lines", is_flag=True, help=_SKIP),
    )
    for option in reversed(options):
        collect = option(collect)
    return collect  # type: ignore[return-value]


class SchemaSource(click.ParamType["AnswerSchema"]):
    """A file with a JSON Schema, or a Python type as module:name."""

    name = "schema"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "AnswerSchema":
        try:
            return read_schema(value) if isinstance(value, str) else value
        except UsageError as error:
            self.fail(f"{error.message}; {error.hint}" if error.hint else error.message, param, ctx)


def read_schema(text: str) -> "AnswerSchema":
    """The schema in a file, or of the Python type that module:name names."""
    from backstay.cli.database_choice import import_attribute
    from backstay.llm.schemas import schema_of

    module, colon, _ = text.partition(":")
    if colon and "/" not in text and all(part.isidentifier() for part in module.split(".")):
        return schema_of(import_attribute(text, _SCHEMA_FORM))
    try:
        schema = json.loads(Path(text).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"cannot read the schema {text}: {error.strerror}", hint=_SCHEMA_FORM) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the schema {text} is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise UsageError(f"the schema {text} is not a JSON object", hint="see https://json-schema.org")
    return schema_of(schema, schema.get("title") or Path(text).stem)


def require_schema(schema: "AnswerSchema | None", reasks: int | None) -> None:
    if reasks is not None and schema is None:
        raise UsageError("--reasks without --schema has no effect", hint="give --schema, or leave --reasks out")


_SCHEMA_FORM = "give a file with a JSON Schema, or MODULE:MODEL"
schema_option = click.option(
    "--schema",
    type=SchemaSource(),
    metavar="FILE.json|MODULE:MODEL",
    help="Every answer must be JSON that fits: a JSON Schema, or a Pydantic model, dataclass or TypedDict.",
)
reasks_option = click.option(
    "--reasks",
    type=click.IntRange(0, 10),
    metavar="N",
    help="How often to ask again, with the error, for an answer that does not fit the schema. Default: 2.",
)


def price_option(command: F) -> F:
    return click.option("--price", type=PriceText(), metavar="IN/OUT", help=_PRICE)(command)


class PriceText(click.ParamType["PricePerMillion"]):
    """Dollars per million tokens: 0.15/0.60."""

    name = "price"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "PricePerMillion":
        from backstay.llm.prices import parse_price

        try:
            return parse_price(str(value))
        except UsageError as error:
            self.fail(f"{error.message}; {error.hint}", param, ctx)


def tell_bad_lines(surveyed: "FileSurvey", skip: bool) -> None:
    """Names the lines that cannot be sent; ends the command unless they may be skipped."""
    for bad in surveyed.bad:
        note(surveyed.describe(bad))
    if unnamed := surveyed.bad_count - len(surveyed.bad):
        note(f"and {count(unnamed, 'more bad line')}")
    if surveyed.bad_count and not skip:
        them = "it" if surveyed.bad_count == 1 else "them"
        hint = f"fix {them}, or skip {them} with --skip-bad-lines"
        raise UsageError(f"{count(surveyed.bad_count, 'bad line')}; nothing was sent", hint=hint)


def _template(given: str | None) -> str | None:
    if given is None or not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read the template {given[1:]}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"the template {given[1:]} is not UTF-8") from None


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
    help="The providers to try next, in this order, if the provider of a request fails, refuses it or has no capacity. "
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
    def collect(*args: Any, **given: Any) -> Any:
        terms = RunOptions(**{name: given.pop(name) for name in RunOptions._fields})
        require_schema(terms.schema, terms.reasks)
        return command(*args, terms=terms, **given)

    for option in reversed(_OPTIONS):
        collect = option(collect)
    return collect  # type: ignore[return-value]


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
        help="If a request may have been processed and the provider cannot be asked: send it again, or fail it.",
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
