"""What all commands share: help that begins with examples, lazily loaded groups, options and their types."""

import difflib
import shlex
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import click

from backstay.core.display import NextCommand, parts_of
from backstay.core.ids import JOB_IDS_MAX

if TYPE_CHECKING:
    from typing_extensions import override
else:

    def override(method):
        return method


F = TypeVar("F", bound=Callable[..., Any])

DAY_SECONDS = 86_400
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": DAY_SECONDS}


class Command(click.Command):
    """A command whose help shows how it is used before it explains."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_help_text(ctx, formatter)


class LazyGroup(click.Group):
    """A group that knows its commands by name and one line, and loads the module of a command when it is used."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], examples: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy)  # name -> (module:attribute, one line)
        self.examples = tuple(examples)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    @override
    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.lazy:
            return None
        module, _, attribute = self.lazy[name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.lazy and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], self.lazy, n=1)
            meant = f"Did you mean {close[0]!r}?" if close else f"Commands: {', '.join(self.lazy)}."
            raise click.UsageError(f"No such command {args[0]!r}. {meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_help_text(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.lazy.items()])


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class Duration(click.ParamType[float]):
    """Seconds, or a number with a unit: 90, 90s, 20m, 2h, 1d."""

    name = "duration"

    def __init__(self, *, or_none: bool = False, needs_unit: bool = False) -> None:
        """`or_none` also accepts 0. `needs_unit`: for options where a forgotten unit could delete or cost something."""
        self._or_none = or_none
        self._needs_unit = needs_unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = text[len(number) :] or ("" if self._needs_unit else "s")
        try:
            seconds = float(number) * _UNITS[unit]
        except (ValueError, KeyError):
            if self._needs_unit and not unit:
                self.fail(f"{text!r} has no unit; write 30d, 12h, 45m or 90s", param, ctx)
            self.fail(
                f"{text!r} is not a duration; write {'' if self._needs_unit else '90, '}90s, 20m, 2h or 1d", param, ctx
            )
        if not 0 <= seconds <= 366 * DAY_SECONDS or (seconds == 0 and not self._or_none):
            least = "at least 0" if self._or_none else "more than 0"
            self.fail(f"{text!r} is out of range: {least}, at most 366 days", param, ctx)
        return seconds


class Name(click.ParamType[str]):
    """The name of an owner or a handler. An empty one comes from a shell variable that is not set: it must not mean
    all of them."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not (text := str(value)).strip():
            self.fail("the name is empty; write a name, or leave the option out", param, ctx)
        return text


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


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")(command)


def db_option(command: F) -> F:
    text = "The database: sqlite:///file.db or postgresql://user@host/name. Default: the application's database, if"
    text += " --app, BACKSTAY_APP or backstay.toml names an application; else BACKSTAY_DATABASE_URL, `database_url` in"
    text += " backstay.toml, or a file in your home folder (`backstay doctor` shows it)."
    return click.option("--db", metavar="URL", help=text, callback=_remember)(command)


def data_option(command: F) -> F:
    text = "Where Backstay keeps files: a folder, or s3://bucket/prefix."
    return click.option("--data", metavar="PLACE", help=text)(command)


def broker_option(command: F) -> F:
    text = "The URL of RabbitMQ, which tells workers about ready items: amqp://user:password@host:5672/vhost. Put a"
    text += " password into BACKSTAY_BROKER_URL instead: everyone on the machine can read command lines."
    return click.option("--broker", metavar="URL", help=text)(command)


def metrics_options(command: F) -> F:
    port = click.option("--metrics-port", type=click.IntRange(1, 65_535), help="Serve Prometheus metrics on this port.")
    host = click.option(
        "--metrics-host", default="127.0.0.1", show_default=True, help="The address to serve metrics on."
    )
    return port(host(command))


def app_option(command: F) -> F:
    return click.option("--app", metavar="MODULE:NAME", help=_APP_HELP, callback=_remember)(command)


def place_options(command: F) -> F:
    """--db and --app for a command that needs no handlers: --app only names the application whose database is used."""
    option = click.option("--app", metavar="MODULE:NAME", help=_APP_HELP, callback=_remember, expose_value=False)
    return option(db_option(command))


_APP_HELP = "Your Backstay object, for example shop.work:backstay. Default: BACKSTAY_APP or `app` in backstay.toml."
_MEMORY = "backstay.given."


def _remember(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    ctx.meta[f"{_MEMORY}{param.name}"] = value
    return value


def _option_value(name: str) -> str | None:
    context = click.get_current_context(silent=True)
    value: str | None = None if context is None else context.meta.get(f"{_MEMORY}{name}")
    return value


def app_option_value() -> str | None:
    return _option_value("app")


def next_command(command: str) -> str:
    """A command to type next, on the same database as this one."""
    db, app = _option_value("db"), _option_value("app")
    if db is not None:
        person = db.partition("://")[2].rpartition("@")[0]
        secret = ":" in person or "password=" in db
        return f"backstay {command} --db {'…' if secret else shlex.quote(db)}"
    return f"backstay {command}" + (f" --app {shlex.quote(app)}" if app else "")


def on_same_database(text: str) -> str:
    """Adds the database of this command to the commands in a text."""
    return "".join(next_command(part.text) if isinstance(part, NextCommand) else str(part) for part in parts_of(text))


def log_level_option(command: F) -> F:
    levels = click.Choice(["debug", "info", "warning", "error"])
    text = "How much to log to stderr. Default: BACKSTAY_LOG_LEVEL, or info."
    return click.option("--log-level", type=levels, help=text)(command)


JOB = click.IntRange(1, JOB_IDS_MAX - 1)


def job_argument(command: F) -> F:
    return click.argument("job_id", metavar="JOB", type=JOB)(command)
