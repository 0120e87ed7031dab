"""`backstay submit`: the lines of a file become the items of a job, all of them or none."""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import click

from backstay.cli import access, output
from backstay.cli.command import Command, Duration, again, app_option, db_option, json_option
from backstay.core.errors import UsageError

if TYPE_CHECKING:
    from backstay.client import Client, Job

BOM = b"\xef\xbb\xbf"

Check = Callable[[Any], None]


@click.command(
    "submit",
    cls=Command,
    examples=(
        "backstay submit items.jsonl --app shop.work:backstay --handler summarise",
        "generate | backstay submit - --handler summarise --priority 5 --deadline 20m",
        "backstay submit items.jsonl --handler summarise --idempotency-key 2024-05-01",
    ),
)
@click.argument("file", metavar="FILE", type=click.Path(allow_dash=True))
@click.option("--handler", required=True, metavar="NAME", help="The handler that does the items.")
@app_option
@click.option("--priority", type=click.IntRange(0, 9), default=0, show_default=True, help="9 goes first.")
@click.option("--deadline", type=Duration(), help="Items not done by then fail: 90s, 20m, 2h.")
@click.option("--idempotency-key", metavar="KEY", help="Submitting the same key and items again makes no second job.")
@click.option("--retry", type=click.Choice(["gateway", "queue", "timed", "none"]), help="How failures are retried.")
@click.option(
    "--delivery",
    type=click.Choice(["at_least_once", "at_most_once"]),
    help="What becomes of an item whose call may have been done, at a provider that cannot be asked.",
)
@click.option("--label", metavar="TEXT", help="A name for people.")
@click.option("--force", is_flag=True, help="Submit although nobody is known to run the handler.")
@db_option
@json_option
def submit(file: str, handler: str, app: str | None, force: bool, db: str | None, as_json: bool, **given: Any) -> None:
    """Queues every line of FILE, a JSON value each, as an item of a new job; `-` reads from stdin.

    Every line is checked before the first is stored. The memory used does not grow with the file.
    """
    from backstay import settings
    from backstay.client import Options

    app = app or settings.load().app
    made = access.load_app(app, db) if app else access.open_app(db, must_exist=not force)
    given["deadline_seconds"] = given.pop("deadline")
    check: Check | None = None
    if app and (handler in made.handlers or not force):
        found = made.handlers[handler]
        check = found.check
        given["deadline_seconds"] = given["deadline_seconds"] or found.rules.deadline_seconds
    options = Options(**given)
    options.check()
    with _opened(file) as lines:
        items = check_lines(lines, check)
        lines.seek(0)
        known = bool(app) or force
        job, new = access.with_client(made, lambda client: _send(client, handler, lines, options, known))
    if as_json:
        output.data(output.as_json({"job": job.id, "items": items, "handler": handler, "new": new}))
    else:
        there = "" if new else ", which was there already under this key"
        output.data(f"job {job.id}: {output.count(items, 'item')} for {handler}{there}")
        output.note(f"to watch it: {again(f'job watch {job.id}')}")


async def _send(client: "Client", handler: str, lines: IO[bytes], options: Any, known: bool) -> "tuple[Job, bool]":
    if not known:
        await _require_registered(client, handler)
    before = (await client.store.holds()).now  # the clock that stamps a new job
    job = await client.submit(handler, texts(lines), options, encode=str, wake=lambda: None)
    return job, options.idempotency_key is None or (await job.show()).created_at >= before


async def _require_registered(client: "Client", handler: str) -> None:
    """Without the application's code, the workers say which handlers there are."""
    from backstay.handlers.registry import unknown_handler

    known = {name for worker in await client.store.views.workers() for name in worker.handlers}
    if handler not in known:
        error = unknown_handler(handler, sorted(known))
        hint = f"{error.hint}; --app MODULE:NAME checks against your code, --force submits all the same"
        raise UsageError(f"no worker has run a handler {handler!r} on this database", hint=hint)


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    """The file, or stdin put into one: it is read twice, to be checked and to be sent."""
    if file == "-":
        with tempfile.TemporaryFile(prefix="backstay-") as spooled:
            shutil.copyfileobj(sys.stdin.buffer, spooled)
            spooled.seek(0)
            yield spooled
        return
    try:
        opened = open(file, "rb")  # noqa: SIM115 - closed below; only the opening may say that there is no such file
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    with opened:
        if not opened.seekable():
            raise UsageError(f"{file} can be read only once", hint=f"pipe it in: backstay submit - < {file}")
        yield opened


def texts(lines: IO[bytes]) -> Iterator[str]:
    """The JSON text of every line that has one, as it stands there."""
    return (text for _, text in _numbered(lines))


def _numbered(lines: IO[bytes]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, start=1):
        if number == 1:
            line = line.removeprefix(BOM)
        try:
            text = line.decode("utf-8").strip(" \t\r\n")
        except UnicodeDecodeError as error:
            raise UsageError(f"line {number} is not UTF-8: {error.reason} at byte {error.start + 1}") from None
        if text:
            yield number, text


def check_lines(lines: IO[bytes], check: Check | None) -> int:
    """Reads every line as JSON, and as what the handler takes; returns how many items there are."""
    from backstay.client import BODY_CHARACTERS_MAX

    items = 0
    for number, text in _numbered(lines):
        if len(text) > BODY_CHARACTERS_MAX:
            raise UsageError(f"line {number} has {len(text):,} characters; at most {BODY_CHARACTERS_MAX:,} are taken")
        try:
            payload = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"line {number} is not JSON: {error}", hint="nothing was submitted") from None
        if check is not None:
            try:
                check(payload)
            except UsageError as error:
                raise UsageError(f"line {number}: {error.message}", hint="nothing was submitted") from None
        items += 1
    if items == 0:
        raise UsageError("there are no items to submit", hint="give one JSON value on every line")
    return items


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")
