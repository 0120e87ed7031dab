"""The options that say how a file of requests is read and paid; every command that takes such a file has the same."""

import json
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from backstay.cli.output import count, note
from backstay.core.errors import UsageError
from backstay.core.outcomes import ANSWER_FLAWS

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


class RequestOptions(NamedTuple):
    """What the user said about a file of requests."""

    format: str | None
    model: str | None
    template: str | None
    endpoint: str | None
    skip_bad_lines: bool

    def reading(self) -> "InputOptions":
        from backstay.llm.formats import Format, InputOptions

        chosen = None if self.format is None else Format(self.format)
        return InputOptions(chosen, self.model, _template(self.template), self.endpoint)


def request_options(command: F) -> F:
    """Adds the options, which the command gets as one argument `wanted`."""

    @wraps(command)
    def collecting(*args: Any, **given: Any) -> Any:
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
        collecting = option(collecting)
    return collecting  # type: ignore[return-value]


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
