"""`backstay submit`: the lines of a file become the items of a job, all of them or none."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from backstay.cli import database_choice, output
from backstay.cli.command import Command, Duration, Name, app_option, db_option, json_option, next_command
from backstay.cli.request_options import RequestOptions, request_options, run_options, tell_bad_lines
from backstay.core.errors import UsageError
from backstay.llm import lines
from backstay.run.options import RunOptions

if TYPE_CHECKING:
    from backstay.client import Client, Options
    from backstay.client.chunks import Encode
    from backstay.handlers.handler import Handler
    from backstay.store.job_views import JobView

CHARACTER_BYTES_MAX = 4  # of UTF-8
UNTOUCHED = "nothing was submitted"
SHARED = {"deadline", "delivery", "fallback", "budget"}
ITEMS_ONLY = {
    "priority",
    "idempotency_key",
    "retry",
    "force",
    "after",
    "after_items",
    "unique",
    "unique_for",
    "item_key",
}
REQUESTS_ONLY = {*RequestOptions._fields, *RunOptions._fields} - SHARED

Check = Callable[[Any], None]


@click.command(
    "submit",
    cls=Command,
    examples=(
        "backstay submit items.jsonl --app shop.work:backstay --handler summarise",
        "generate | backstay submit - --handler summarise --priority 5 --deadline 20m",
        "backstay submit items.jsonl --handler summarise --idempotency-key 2024-05-01",
        "backstay submit --handler summarise --after 12",
        "backstay submit items.jsonl --handler summarise --item-key id",
        "backstay submit items.jsonl --app shop.work:backstay --handler summarise --budget 5",
        "backstay submit requests.jsonl --lane batch --base-url http://127.0.0.1:9000/v1",
    ),
)
@click.argument("file", metavar="FILE", type=click.Path(allow_dash=True), required=False)
@click.option(
    "--handler",
    type=Name(),
    metavar="NAME",
    help="The handler that runs the items. Default: the items are LLM requests.",
)
@app_option
@click.option(
    "--priority", type=click.IntRange(0, 9), default=0, show_default=True, help="The priority; 9 is the highest."
)
@click.option("--idempotency-key", metavar="KEY", help="Submitting the same key and items again creates no second job.")
@click.option("--retry", type=click.Choice(["gateway", "queue", "timed", "none"]), help="How failures are retried.")
@click.option(
    "--after", metavar="JOB", type=click.IntRange(1), multiple=True, help="Start after this job. May be repeated."
)
@click.option(
    "--after-items",
    type=click.Choice(["succeeded", "all"]),
    default="succeeded",
    show_default=True,
    help="Without FILE: which results of the --after jobs become items.",
)
@click.option("--unique", metavar="KEY", help="Create no second job with this KEY. KEY `payload`: with the same items.")
@click.option(
    "--unique-for",
    type=Duration(needs_unit=True),
    metavar="TIME",
    help="How long --unique prevents a second job: 1h, 20m.",
)
@click.option("--item-key", metavar="FIELD", help="Skip items whose FIELD has a value from an earlier submit.")
@click.option("--label", metavar="TEXT", help="A label, to recognise the job in lists.")
@click.option("--force", is_flag=True, help="Submit even if no worker is known to run the handler.")
@request_options
@run_options
@db_option
@json_option
def submit(
    file: str | None,
    handler: str | None,
    wanted: RequestOptions,
    terms: RunOptions,
    db: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Queues every line of FILE (`-`: stdin) as an item of a new job, for workers or ticks to run.

    With --handler each line is a JSON value for that handler. Without it each is an LLM request in the formats and with
    the options of `backstay run`; the same `run` later writes the results. Every line is checked before the first is
    stored. The memory used does not grow with the file. With --after, FILE may be left out: the results of those jobs
    are the items then.
    """
    if file is None and not (handler and given["after"]):
        raise UsageError("FILE is missing", hint="give a file, or --handler and --after")
    if handler is None:
        assert file is not None
        _refuse(ITEMS_ONLY, "items of a --handler")
        _queue_requests(file, wanted, terms, given["label"], db, as_json)
    else:
        _refuse(REQUESTS_ONLY, "LLM requests, without a --handler")
        _queue_items(file, handler, terms, db=db, as_json=as_json, **given)


def _refuse(options: set[str], whose: str) -> None:
    """Refuses an option that has no effect here, instead of ignoring it."""
    ctx = click.get_current_context()
    for option in ctx.command.params:
        if option.name in options and ctx.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{option.opts[0]} is only for {whose}", hint=UNTOUCHED)


def _queue_requests(
    file: str, wanted: RequestOptions, terms: RunOptions, label: str | None, db: str | None, as_json: bool
) -> None:
    from backstay.cli.run import default_out, require_fallbacks
    from backstay.llm.intake import open_source, survey
    from backstay.llm.repeated_requests import show_known
    from backstay.run.submission import Submission, set_ceiling

    terms.check()
    with open_source(file, terms.destination.input_options(wanted.input_options())) as source:
        surveyed = survey(source, terms.weigher())
        tell_bad_lines(surveyed, wanted.skip_bad_lines)
        terms.destination.check_one_key(surveyed.providers)
        terms = terms.fit(surveyed)
        order = terms.order(surveyed.routes, out=default_out(file), label=label or Path(file).name)
        require_fallbacks(order, terms)

        async def queue(client: "Client") -> "tuple[JobView, bool]":
            submission = Submission(order, source, surveyed)
            found = await submission.find(client)
            await submission.announce(client)
            if found is not None:
                await set_ceiling(client, found, order)
            job_id = await submission.send(client, lambda: None)
            return await client.job(job_id).show(), found is None

        view, new = database_choice.with_client(database_choice.open_app(db, must_exist=False), queue)
    there = "" if new else ", which existed already"
    _print_job(view.id, surveyed.requests, order.endpoint.name, there, as_json, reused=view.reused)
    if view.reused and not as_json:
        output.note(show_known(view.reused, view.total))
    if not as_json:
        output.note("to write the results, run `backstay run` with the same file and options")


def _queue_items(
    file: str | None,
    handler: str,
    terms: RunOptions,
    app: str | None,
    force: bool,
    db: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    from backstay import settings
    from backstay.client.chunks import BY_PAYLOAD
    from backstay.handlers.handler import weigh

    app = app or settings.load().app
    made = database_choice.load_app(app, db) if app else database_choice.open_app(db, must_exist=not force)
    found = made.handlers[handler] if app and (handler in made.handlers or not force) else None
    given["fallback"] = terms.fallback if found is None else made.fallback_of(found, terms.fallback)
    options = _options(handler, found, terms, given)
    if terms.budget is not None:
        made.handlers.require_costs(handler, options.fallback)
    check, encode = None if found is None else found.check, partial(weigh, found)
    known, key = bool(app) or force, "key" if options.unique else "idempotency key"
    if file is None:
        sent = database_choice.with_client(made, lambda client: _send(client, handler, None, options, encode, known))
        _print_items_job(0, handler, key, sent, as_json)
        return
    with lines.open_lines(file) as content:
        items = check_lines(content, check, encode)
        content.seek(0)
        if options.unique == BY_PAYLOAD:  # the lines are not held in memory, so their digest is the key
            options = replace(options, unique=f"payload {digest_lines(content)}")
            content.seek(0)
        sent = database_choice.with_client(made, lambda client: _send(client, handler, content, options, encode, known))
    _print_items_job(items, handler, key, sent, as_json)


def _options(handler: str, found: "Handler | None", terms: RunOptions, given: dict[str, Any]) -> "Options":
    """What the job's items are treated like; the handler, if its code is here, fills in what is left out."""
    from backstay.client import Options

    seconds = given.pop("unique_for")
    if (given["unique"] is None) != (seconds is None):
        hint = "for example --unique payload --unique-for 1h"
        raise UsageError("--unique and --unique-for need each other", hint=hint)
    if terms.budget is not None and found is None:
        hint = "give --app MODULE:NAME: your handler declares what a call costs; for gateway and remote, use HTTP"
        raise UsageError("--budget needs your code", hint=hint)
    deadline = terms.deadline or (None if found is None else found.rules.deadline_seconds)
    given |= {"deadline_seconds": deadline, "delivery": terms.delivery, "after": given["after"] or None}
    options = Options(**given, unique_seconds=seconds, budget_micros=terms.budget)
    options.check()
    return options


def _print_items_job(items: int, handler: str, key: str, sent: "tuple[JobView, bool]", as_json: bool) -> None:
    view, new = sent
    there = "" if new else f", which existed already under this {key}"
    if view.known and not as_json:
        output.note(f"{output.count(view.known, 'item')} known already, {view.total:,} new")
    if view.waits_for and not as_json:
        output.note(f"it waits for job {', '.join(view.waits_for)}")
    _print_job(view.id, items - view.known if new else items, handler, there, as_json)


def digest_lines(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    for text in texts(file):
        digest.update(f"{text}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _print_job(job_id: int, items: int, handler: str, there: str, as_json: bool, **more: int) -> None:
    """`there` says that no new job was made."""
    if as_json:
        output.data(output.as_json({"job": job_id, "items": items, "handler": handler, "new": not there, **more}))
    else:
        output.data(f"job {job_id}: {output.count(items, 'item')} for {handler}{there}")
        output.note(f"to watch it: {next_command(f'job watch {job_id}')}")


async def _send(
    client: "Client", handler: str, file: IO[bytes] | None, options: Any, encode: "Encode", known: bool
) -> "tuple[JobView, bool]":
    for name in [] if known else [handler, *([options.fallback] if options.fallback else [])]:
        await _require_registered(client, name)
    before = (await client.store.providers.holds()).now  # the clock that stamps a new job
    items = None if file is None else texts(file)
    view = await (await client.submit(handler, items, options, encode, wake=lambda: None)).show()
    return view, (options.idempotency_key is None and options.unique is None) or view.created_at >= before


async def _require_registered(client: "Client", handler: str) -> None:
    """Without the application's code, the workers say which handlers there are."""
    from backstay.handlers.function import unknown_handler

    known = {name for worker in await client.store.workers.page() for name in worker.handlers}
    if handler not in known:
        error = unknown_handler(handler, sorted(known))
        hint = f"{error.hint}; --app MODULE:NAME checks your code instead, --force submits anyway"
        raise UsageError(f"no worker has run the handler {handler!r} on this database", hint=hint)


def texts(file: IO[bytes]) -> Iterator[str]:
    """The JSON text of every line that has one, as it stands there."""
    return (text for _, text in _number_lines(file))


def _number_lines(file: IO[bytes]) -> Iterator[tuple[int, str]]:
    from backstay.client import BODY_CHARACTERS_MAX

    for number, line in lines.number_lines(file, BODY_CHARACTERS_MAX * CHARACTER_BYTES_MAX):
        try:
            text = "" if line is None else lines.text_of(line)
        except lines.LineRefused as refused:
            raise UsageError(f"line {number} {refused}", hint=UNTOUCHED) from None
        if line is None or len(text) > BODY_CHARACTERS_MAX:
            raise UsageError(f"line {number} is too long: at most {BODY_CHARACTERS_MAX:,} characters are allowed")
        if text:
            yield number, text


def check_lines(file: IO[bytes], check: Check | None, encode: "Encode" = str) -> int:
    """Reads every line as JSON, and as what the handler takes and what it costs; returns how many items there are."""
    items = 0
    for number, text in _number_lines(file):
        try:
            payload = lines.value_of(text)
        except lines.LineRefused as refused:
            raise UsageError(f"line {number} {refused}", hint=UNTOUCHED) from None
        try:
            if check is not None:
                check(payload)
            encode(text)
        except UsageError as error:
            raise UsageError(f"line {number}: {error.message}", hint=UNTOUCHED) from None
        items += 1
    if items == 0:
        raise UsageError("the input has no items to submit", hint="write one JSON value per line")
    return items
