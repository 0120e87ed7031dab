"""`backstay run`: a file of requests in, a file of results out; the same command again resumes where it stopped.
`--try` shows the first answers and asks before the rest is sent."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, json_option, next_command, place_options
from backstay.cli.request_options import RequestOptions, request_options, run_options, tell_bad_lines
from backstay.core.display import show_money, visible
from backstay.core.errors import UsageError
from backstay.run.options import RunOptions

if TYPE_CHECKING:
    from backstay.app import Backstay
    from backstay.client import Client
    from backstay.llm.intake import FileSurvey, RequestSource
    from backstay.run.run import TriedRequest
    from backstay.run.submission import AtEnd, Order
    from backstay.run.summary import Summary
    from backstay.run.view import View

TABLES: Final = (".csv", ".tsv", ".parquet", ".pq", ".txt")  # results that have the rows of the input


@click.command(
    "run",
    cls=Command,
    examples=(
        "backstay run requests.jsonl --out results.jsonl",
        "backstay run requests.jsonl --base-url http://127.0.0.1:9000/v1 --price 0.15/0.60 --budget 5.00",
        "backstay run rows.csv --prompt 'Translate: {text}' --model gpt-4o-mini --out answers.csv",
        "backstay run reviews.csv --prompt 'Rate this: {text}' --model gpt-4o-mini --schema review.json",
        "backstay run requests.jsonl --fallback anthropic:claude-sonnet-4-5,groq:llama-3.3-70b-versatile",
    ),
)
@click.argument("file", metavar="FILE", type=click.Path(allow_dash=True))
@click.option(
    "--out",
    metavar="FILE",
    help="The file for results; - for stdout. Default: NAME.results.jsonl. A name that ends in .csv, .tsv or .parquet "
    "gets a table: the rows of FILE with answer, error and cost.",
)
@click.option(
    "--columns",
    metavar="NAMES",
    help="The columns of the table, in this order: those of FILE, and answer, error, cost, model. NEW=OLD renames one.",
)
@click.option(
    "--text-only", is_flag=True, help="Write only the text of the answers, one per line, in the order of FILE."
)
@click.option(
    "--errors", metavar="FILE", help="The file for failures. Default: next to the results, with .errors in its name."
)
@click.option(
    "--reply-as",
    type=click.Choice(["openai"]),
    help="Write the replies of every provider in OpenAI's chat format. Default: the provider's own format.",
)
@click.option("--ordered", is_flag=True, help="Write results in the order of the requests, at the end.")
@click.option(
    "--try",
    "try_first",
    type=click.IntRange(1, 100),
    metavar="N",
    help="Send the first N requests, show the answers and what all would cost, and ask before the rest is sent.",
)
@click.option("--yes", is_flag=True, help="With --try: send the rest without asking.")
@click.option("--retry-failed", is_flag=True, help="Retry the requests that failed in an earlier run.")
@click.option("--wait", is_flag=True, help="Keep trying even if the provider refuses the first requests.")
@request_options
@run_options
@click.option("--label", metavar="TEXT", help="A label, to recognise the job in lists.")
@place_options
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    file: str,
    out: str | None,
    columns: str | None,
    text_only: bool,
    errors: str | None,
    reply_as: str | None,
    ordered: bool,
    try_first: int | None,
    yes: bool,
    retry_failed: bool,
    wait: bool,
    wanted: RequestOptions,
    terms: RunOptions,
    label: str | None,
    db: str | None,
    as_json: bool,
) -> None:
    """Sends every request of FILE (`-`: stdin) and writes one result per request.

    Every line is checked before the first is sent. Ctrl-C stops cleanly; run the same command again to resume.

    \b
    Exit codes: 0 every request succeeded, 3 some failed, 7 the budget is reached, 9 the provider refused the first
    requests, 130 interrupted, 2 wrong usage.
    """
    if as_json and out == "-":
        raise UsageError("--json and --out - would both write to stdout", hint="name a file: --out results.jsonl")
    terms.check()
    if (api := terms.destination.only_provider) is not None:
        terms.destination.require_key(api)
        terms.destination.require_fallback_keys()
    table = TableOptions(out, columns, text_only, file)
    more = {**table.places(errors), "ordered": ordered, "retry_failed": retry_failed}
    more |= {"replies_as_chat": reply_as is not None, "wait": wait, "label": label or Path(file).name}
    more |= {"try_first": try_first, "check": None if terms.schema is None else terms.schema.parse}
    ctx.exit(_run_file(db, file, wanted, terms, more, table, yes, as_json).exit_code)


def _run_file(
    db: str | None,
    file: str,
    wanted: RequestOptions,
    terms: RunOptions,
    more: dict[str, Any],
    table: "TableOptions",
    yes: bool,
    as_json: bool,
) -> "Summary":
    """Checks every line, then runs them all."""
    from backstay.llm.intake import open_source, survey

    with open_source(file, terms.destination.input_options(wanted.input_options())) as source:
        surveyed = survey(source, terms.weigher())
        tell_bad_lines(surveyed, wanted.skip_bad_lines)
        more["at_end"] = table.writer(source, surveyed, terms.dedupe)
        terms.destination.require_keys(surveyed.providers)
        terms = terms.fit(surveyed)
        order = terms.order(surveyed.routes, **more)
        require_fallbacks(order, terms)
        require_enough(order)
        commands = terms.destination.key_commands(order.endpoint.api)

        def send(order: "Order") -> "Summary":
            app = database_choice.open_app(db, must_exist=False)
            database_choice.use_key_commands(app, commands)
            return database_choice.run(_go(app, order, source, surveyed, as_json))

        return send(order) if order.try_first is None else _try_first(order, order.try_first, send, yes, as_json)


def require_enough(order: "Order") -> None:
    first, least = order.try_first, order.batch_requests_min
    if first is not None and first < least:
        few = f"--try {first} is too few: {order.endpoint.api} takes no batch with fewer than {least} requests"
        raise UsageError(few, hint=f"use --try {least}, or --lane call")


def _try_first(order: "Order", first: int, send: "Callable[[Order], Summary]", yes: bool, as_json: bool) -> "Summary":
    """Sends the first requests, and if the user agrees the others, as the same run."""
    sample = Sample(first, order.at_end)
    summary = send(replace(order, at_end=sample))
    if not summary.is_try or not sample.agree(summary, yes, as_json):
        return summary
    return send(replace(order, try_first=None, new=False, retry_failed=False))


class TableOptions(NamedTuple):
    """The options about the file of results."""

    out: str | None
    columns: str | None
    text_only: bool
    file: str

    @property
    def path(self) -> str | None:
        """The path of the table; None: results are written as lines."""
        is_table = self.columns is not None or self.text_only or Path(self.out or "").suffix.lower() in TABLES
        return self.out or default_out(self.file) if is_table else None

    def places(self, errors: str | None) -> dict[str, Any]:
        """Where the results go, as the order has it. A table is made from the database, so no lines are kept for it."""
        if self.path is None:
            return {"out": self.out or default_out(self.file), "errors": errors}
        return {"out": os.devnull, "errors": errors or os.devnull}

    def writer(self, source: "RequestSource", surveyed: "FileSurvey", dedupe: bool) -> "AtEnd | None":
        if (path := self.path) is None:
            return None
        from functools import partial

        from backstay.rows.tables import plan_table, write_table

        plan = plan_table(path, self.columns, self.text_only, source, surveyed)
        return partial(write_table, plan=plan, source=source, survey=surveyed, dedupe=dedupe)


def require_fallbacks(order: "Order", terms: RunOptions) -> None:
    if terms.fallback is not None and not order.has_fallbacks:
        raise UsageError(f"every request goes to {terms.fallback} already", hint="name another --fallback")


def default_out(file: str) -> str:
    """The default: results of requests.jsonl go to requests.results.jsonl in the working folder."""
    return "results.jsonl" if file == "-" else f"{Path(file).stem}.results.jsonl"


async def _go(
    app: "Backstay",
    order: "Order",
    source: "RequestSource",
    surveyed: "FileSurvey",
    as_json: bool,
) -> "Summary":
    from backstay.cli.running import Signals
    from backstay.clock import collect_rarely
    from backstay.run.output import is_stream
    from backstay.run.run import Run
    from backstay.run.view import open_view

    collect_rarely()
    run = Run(app, order, source, surveyed, next_command)

    def show(job_id: int) -> "AbstractContextManager[View]":
        return open_view(
            job_id,
            order.label or "",
            as_json,
            plain=order.out is not None and is_stream(order.out) and sys.stdout.isatty(),
        )

    def ask() -> None:
        output.note(
            "backstay: stopping; running calls may finish. Ctrl-C again cuts them off, and you may pay for them twice."
        )
        run.stop()

    Signals(ask, run.stop_now)
    try:
        return await run.run(show)
    finally:
        await app.close()


SHOWN_CHARACTERS_MAX = 2_000


class Sample:
    """The first requests of a run, read when they have ended."""

    def __init__(self, first: int, then: "AtEnd | None") -> None:
        self._first = first
        self._then = then
        self.tried: Sequence[TriedRequest] = ()

    async def __call__(self, client: "Client", summary: "Summary") -> "Summary":
        from backstay.run.run import read_tried

        self.tried = await read_tried(client, summary.job_id, self._first)
        return summary if self._then is None else await self._then(client, summary)

    def agree(self, summary: "Summary", yes: bool, as_json: bool) -> bool:
        """Shows the answers. Returns whether the rest may be sent: by the option, or by the person at the terminal."""
        rest = self._forecast(summary)
        if as_json:
            tried = [each._asdict() for each in self.tried]
            output.data(
                output.as_json({"event": "tried", "requests": tried, "rest_micros": rest, "left": summary.left})
            )
        else:
            self._show(summary, rest)
        if yes or as_json or not sys.stdin.isatty():
            if not yes:
                output.note(f"To send the other {summary.left:,}, run the same command without --try.")
            return yes
        about = "" if rest is None else f" for about {show_money(rest)}"
        return click.confirm(f"Send the other {summary.left:,}{about}?", default=False, err=True)

    def _forecast(self, summary: "Summary") -> int | None:
        """What the rest costs if it is like these; None: not known. Those that cost nothing, because an earlier run has
        answered them or because they failed, tell nothing about the rest."""
        paid = [each.cost_micros for each in self.tried if each.cost_micros]
        return round(sum(paid) / len(paid) * summary.left) if paid and summary.spent_micros is not None else None

    def _show(self, summary: "Summary", rest: int | None) -> None:
        from backstay.llm.chat_format import prompt_text

        for each in self.tried:
            cost = "" if each.cost_micros is None else f"  {show_money(each.cost_micros)}"
            output.note(f"\n{visible(each.custom_id)}{cost}")
            output.note(_indent("> ", prompt_text(each.url, each.body)))
            output.note(_indent("  ", each.answer if each.error is None else f"failed: {each.error}"))
        if rest is not None and summary.spent_micros is not None:
            whole = show_money(summary.spent_micros + rest)
            output.note(f"\nThese cost {show_money(summary.spent_micros)}; all together about {whole}.")
        elif summary.spent_micros is not None:
            output.note("\nThese cost nothing, so they do not show what the others cost: `backstay plan` estimates it.")


def _indent(before: str, text: str | None) -> str:
    said = text or ""
    cut = said if len(said) <= SHOWN_CHARACTERS_MAX else f"{said[:SHOWN_CHARACTERS_MAX]}…"
    return "\n".join(f"{before}{visible(line)}" for line in cut.splitlines() or [""])
