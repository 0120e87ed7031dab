"""The options that say how a file of requests is read and paid; every command that takes such a file has the same."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from backstay.cli.output import count, note
from backstay.core.errors import UsageError

if TYPE_CHECKING:
    from backstay.llm.formats import InputOptions, OnlyPath
    from backstay.llm.intake import FileSurvey
    from backstay.llm.prices import PricePerMillion

FORMATS = ("batch", "bodies", "prompts", "rows", "csv")
F = TypeVar("F", bound=Callable[..., Any])

_FORMAT = "The format of the requests. Default: found from the file name and the first line."
_MODEL = "The model for requests without one: prompts, rows, and bodies that name no model."
_TEMPLATE = "The request for each row, with {column} for its fields: a prompt, or @FILE with a prompt or a JSON body."
_ENDPOINT = "The path for requests without a url, for example /v1/responses. Default: found from their content."
_SKIP = "Skip lines that cannot be sent."
_PRICE = "Dollars per million tokens, as INPUT/OUTPUT or INPUT/OUTPUT/CACHED. Default: the published price."


class RequestOptions(NamedTuple):
    """What the user said about a file of requests."""

    format: str | None
    model: str | None
    template: str | None
    endpoint: str | None
    skip_bad_lines: bool

    def reading(self, base_url: str | None, only: "OnlyPath | None", api: str) -> "InputOptions":
        from backstay.llm.formats import Format, InputOptions

        chosen = None if self.format is None else Format(self.format)
        background = only is not None and only.background
        return InputOptions(
            chosen, self.model, _template(self.template), self.endpoint, base_url, only, background, api
        )


def request_options(command: F) -> F:
    """Adds the options, which the command gets as one argument `wanted`."""

    @wraps(command)
    def collecting(*args: Any, **given: Any) -> Any:
        wanted = RequestOptions(**{name: given.pop(name) for name in RequestOptions._fields})
        return command(*args, wanted=wanted, **given)

    options = (
        click.option("--format", type=click.Choice(FORMATS), help=_FORMAT),
        click.option("--model", metavar="NAME", help=_MODEL),
        click.option("--template", metavar="TEXT", help=_TEMPLATE),
        click.option("--endpoint", metavar="PATH", help=_ENDPOINT),
        click.option("--skip-bad-lines", is_flag=True, help=_SKIP),
    )
    for option in reversed(options):
        collecting = option(collecting)
    return collecting  # type: ignore[return-value]


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
    """Names the lines that cannot be sent; without leave to go on without them, that is the end."""
    for bad in surveyed.bad:
        note(str(bad))
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
