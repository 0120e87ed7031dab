"""`backstay run`: a file of requests in, a file of results out; the same command again resumes where it stopped."""

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, again, json_option, place_options
from backstay.cli.request_options import RequestOptions, request_options, tell_bad_lines
from backstay.cli.run_options import RunOptions, run_options
from backstay.core.errors import UsageError

if TYPE_CHECKING:
    from backstay.app import Backstay
    from backstay.llm.formats import InputOptions
    from backstay.llm.intake import FileSurvey, RequestSource
    from backstay.run.submission import Order
    from backstay.run.summary import Summary
    from backstay.run.view import View


@click.command(
    "run",
    cls=Command,
    examples=(
        "backstay run requests.jsonl --out results.jsonl",
        "backstay run requests.jsonl --base-url http://127.0.0.1:9000/v1 --price 0.15/0.60 --budget 5.00",
        "backstay run rows.csv --template 'Translate: {text}' --model gpt-4o-mini --lane batch",
    ),
)
@click.argument("file", metavar="FILE", type=click.Path(allow_dash=True))
@click.option("--out", metavar="FILE", help="The file for results; - for stdout. Default: NAME.results.jsonl.")
@click.option(
    "--errors", metavar="FILE", help="The file for failures. Default: next to the results, with .errors in its name."
)
@click.option("--ordered", is_flag=True, help="Write results in the order of the requests, at the end.")
@click.option("--retry-failed", is_flag=True, help="Retry the requests that failed in an earlier run.")
@click.option("--wait", is_flag=True, help="Keep trying even if the provider refuses the first requests.")
@request_options
@run_options
@click.option("--label", metavar="TEXT", help="A name for people.")
@place_options
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    file: str,
    out: str | None,
    errors: str | None,
    ordered: bool,
    retry_failed: bool,
    wait: bool,
    wanted: RequestOptions,
    terms: RunOptions,
    label: str | None,
    db: str | None,
    as_json: bool,
) -> None:
    """Sends every request of FILE (`-`: stdin) and writes one result per request, even if the process crashes.

    Every line is checked before the first is sent. Ctrl-C stops cleanly; run the same command again to resume.

    \b
    Exit codes: 0 every request succeeded, 3 some failed, 7 the budget is reached, 9 the provider refused the first
    requests, 130 interrupted, 2 wrong usage.
    """
    if as_json and out == "-":
        raise UsageError("--json and --out - would both write to stdout", hint="name a file: --out results.jsonl")
    order = terms.order(
        out=out or default_out(file),
        errors=errors,
        ordered=ordered,
        retry_failed=retry_failed,
        wait=wait,
        label=label or Path(file).name,
    )
    terms.require_key()
    app = database_choice.open_app(db, must_exist=False)
    summary = _run_file(app, file, wanted, wanted.reading(terms.url, terms.only, terms.api), order, as_json)
    ctx.exit(summary.exit_code)


def _run_file(
    app: "Backstay", file: str, wanted: RequestOptions, reading: "InputOptions", order: "Order", as_json: bool
) -> "Summary":
    """Checks every line, then runs them all."""
    from backstay.llm.intake import open_source, survey
    from backstay.run.submission import WeighedRun

    with open_source(file, reading) as source:
        surveyed = survey(source, WeighedRun(order) if order.budget_micros is not None else None)
        tell_bad_lines(surveyed, wanted.skip_bad_lines)
        return database_choice.run(_go(app, order, source, surveyed, as_json))


def default_out(file: str) -> str:
    """requests.jsonl has its results in requests.results.jsonl, here."""
    return "results.jsonl" if file == "-" else f"{Path(file).stem}.results.jsonl"


async def _go(
    app: "Backstay", order: "Order", source: "RequestSource", surveyed: "FileSurvey", as_json: bool
) -> "Summary":
    from backstay.cli.running import Signals
    from backstay.clock import collect_rarely
    from backstay.run.output import is_stream
    from backstay.run.run import Run
    from backstay.run.view import viewing

    collect_rarely()
    run = Run(app, order, source, surveyed, again)

    def show(job_id: int) -> "AbstractContextManager[View]":
        return viewing(job_id, order.label or "", as_json, plain=is_stream(order.out) and sys.stdout.isatty())

    def ask() -> None:
        output.note(
            "backstay: stopping; running calls may finish. Ctrl-C again cuts them off, and you may pay for them twice."
        )
        run.stop()

    Signals(ask, run.hurry)
    try:
        return await run.go(show)
    finally:
        await app.close()
