"""`backstay show`: pages through the prompts and answers of a file of results, or of a table.
`backstay cache …`: the answers of earlier runs that later runs may use.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, Duration, LazyGroup, Name, json_option, place_options
from backstay.cli.output import show_moment
from backstay.core.display import one_line, show_money, visible
from backstay.core.errors import BackstayError, NotFound, UsageError

if TYPE_CHECKING:
    from backstay.client import Client
    from backstay.llm.forecast import Forecast
    from backstay.llm.repeated_requests import UnknownRequests
    from backstay.llm.row_files import NumberedRow, Row
    from backstay.run.options import Destination, Reuse
    from backstay.store.results import ItemRequest


PAGE_ENTRIES = 50
LIST_CHARACTERS = 60


class ShownEntry(NamedTuple):
    """A request with its answer or error."""

    name: str
    fields: Mapping[str, Any]  # what is known of the request: its prompt, or the columns of its row
    answer: str | None
    error: str | None
    item: int | None = None  # the item in the database, if it is known

    def contains(self, text: str) -> bool:
        said = (self.name, self.answer, self.error, *self.fields.values())
        return any(text in str(each).casefold() for each in said if each is not None)


@click.command(
    "show",
    cls=Command,
    examples=(
        "backstay show results.jsonl",
        "backstay show results.jsonl --failed",
        "backstay show answers.csv --find refund --list",
    ),
)
@click.argument("file", metavar="FILE", type=click.Path(allow_dash=True))
@click.option("--find", metavar="TEXT", help="Only entries that contain this text, in any case.")
@click.option("--failed", is_flag=True, help="Only failures; of results.jsonl, those in results.errors.jsonl.")
@click.option("-n", "most", type=click.IntRange(1), metavar="N", help="Show at most this many entries.")
@click.option("--list", "as_list", is_flag=True, help="One line for each entry.")
@place_options
@json_option
def show(
    file: str, find: str | None, failed: bool, most: int | None, as_list: bool, db: str | None, as_json: bool
) -> None:
    """Shows the prompts and answers in FILE: results or failures of a run, or a table that it wrote.

    Result lines have no prompts; these come from the database that the run used, if it is there. A terminal shows a
    page at a time.
    """
    from backstay.llm.row_files import open_row_file

    with ExitStack() as opened:
        rows = opened.enter_context(open_row_file(_failures_of(file) if failed else file)).rows()
        entries: Iterator[ShownEntry] = _with_prompts(map(_entry_of, rows), db, opened)
        if failed:
            entries = (entry for entry in entries if entry.error is not None)
        if find is not None:
            sought = find.casefold()
            entries = (entry for entry in entries if entry.contains(sought))
        first = next(entries, None)
        if first is None:
            output.note("No entries match.")
            return
        _print(islice(_chain(first, entries), most), as_list, as_json)


def _failures_of(file: str) -> str:
    """The file of failures beside a file of results, if a run has written one."""
    from backstay.run.output import errors_path

    beside = errors_path(Path(file))
    return str(beside) if file != "-" and beside.exists() else file


def _chain(first: ShownEntry, others: Iterator[ShownEntry]) -> Iterator[ShownEntry]:
    yield first
    yield from others


def _print(entries: Iterable[ShownEntry], as_list: bool, as_json: bool) -> None:
    if as_json:
        texts = (output.as_json(_fields(entry)) + "\n" for entry in entries)
    elif as_list:
        texts = (f"{_list_line(entry)}\n" for entry in entries)
    else:
        texts = ("\n".join(_lines(entry)) + "\n\n" for entry in entries)
    if sys.stdout.isatty() and not as_json:
        click.echo_via_pager(texts)
        return
    for text in texts:
        sys.stdout.write(text)


def _fields(entry: ShownEntry) -> dict[str, Any]:
    return {"name": entry.name, **entry.fields, "answer": entry.answer, "error": entry.error}


def _list_line(entry: ShownEntry) -> str:
    asked = " ".join(str(value) for value in entry.fields.values() if value is not None)
    said = entry.answer if entry.error is None else f"failed: {entry.error}"
    parts = (entry.name, one_line(asked, LIST_CHARACTERS), one_line(said or "", LIST_CHARACTERS))
    return visible("  ".join(part for part in parts if part))


def _lines(entry: ShownEntry) -> Iterator[str]:
    title = visible(entry.name)
    yield click.style(title, bold=True) if output.fancy(sys.stdout) else title
    for name, value in entry.fields.items():
        if value is not None and value != "":
            yield from _block("> " if name == "prompt" else f"> {visible(name)}: ", value)
    if entry.error is not None:
        yield from _block("  failed: ", entry.error)
    if entry.answer is not None:
        yield from _block("  ", entry.answer)


def _block(before: str, value: Any) -> Iterator[str]:
    """The lines of a text; further lines are indented like the first."""
    text = value if isinstance(value, str) else output.as_json(value)
    for line in text.splitlines() or [""]:
        yield f"{before}{visible(line, keeping=chr(9))}"
        before = before[0] + " " * (len(before) - 1)


def _entry_of(numbered: "NumberedRow") -> ShownEntry:
    from backstay.llm.lines import LineRefused

    number, row = numbered
    if isinstance(row, LineRefused):
        raise UsageError(f"line {number} {row}")
    if "custom_id" in row and "response" in row:
        return _result_entry(row)
    if set(row) == {"row"}:
        return ShownEntry(f"row {number}", {}, str(row["row"]), None)
    fields = {name: value for name, value in row.items() if name not in ("answer", "error")}
    answer, error = (None if row.get(name) in (None, "") else str(row[name]) for name in ("answer", "error"))
    return ShownEntry(f"row {number}", fields, answer, error)


def _result_entry(row: "Row") -> ShownEntry:
    """The entry of a line in the Batch output format."""
    from backstay.core.ids import JOB_IDS_MAX, POSITIONS_MAX, item_id
    from backstay.llm.bodies import dict_in
    from backstay.llm.chat_format import answer_text
    from backstay.run.result_file import HEAD

    response, error = dict_in(row["response"]), dict_in(row.get("error"))
    head = HEAD.match(f'{{"id":"{row.get("id")}","custom_id":'.encode())
    known = head is not None and 0 < int(head[1]) < JOB_IDS_MAX and int(head[2]) < POSITIONS_MAX
    item = item_id(int(head[1]), int(head[2])) if head is not None and known else None
    body, status = response.get("body"), response.get("status_code")
    said = ": ".join(str(error[name]) for name in ("code", "message") if error.get(name)) or None
    if said is None and isinstance(status, int) and status >= 400:
        message = dict_in(dict_in(body).get("error")).get("message")
        said = f"{status}: {message}" if message else str(status)
    answer = answer_text(body) if said is None or error else None
    return ShownEntry(str(row["custom_id"]), {}, answer, said, item)


def _with_prompts(entries: Iterator[ShownEntry], db: str | None, opened: ExitStack) -> Iterator[ShownEntry]:
    """Result lines get their prompts from the database, if it has the run."""
    stored: StoredRequests | None = None
    while page := list(islice(entries, PAGE_ENTRIES)):
        items = [entry.item for entry in page if entry.item is not None]
        if items:
            stored = stored or opened.enter_context(StoredRequests(db))
            prompts = stored.prompts(items)
            page = [entry._replace(fields=prompts.get((entry.item, entry.name), {})) for entry in page]
        yield from page


class StoredRequests:
    """The requests in the database, read page by page; none if there is no such database."""

    def __init__(self, db: str | None) -> None:
        self._db = db
        self._stack = ExitStack()
        self._client: Client | None = None

    def __enter__(self) -> "StoredRequests":
        import asyncio

        from backstay.clock import new_event_loop

        self._runner = self._stack.enter_context(asyncio.Runner(loop_factory=new_event_loop))
        try:
            self._app = database_choice.open_app(self._db)
            self._client = self._runner.run(self._app.open())
            self._stack.callback(lambda: self._runner.run(self._app.close()))
        except BackstayError as error:
            if not isinstance(error, NotFound):
                output.note(f"the prompts are not shown: {error.message}")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def prompts(self, items: list[int]) -> dict[tuple[int | None, str], dict[str, str]]:
        """By item and custom_id: another database may have another job of the same number."""
        from backstay.core.ids import job_of
        from backstay.llm.chat_format import prompt_text
        from backstay.llm.lines import unseal

        client = self._client
        if client is None:
            return {}

        async def read() -> list["ItemRequest"]:
            own = []
            for job_id in {job_of(item) for item in items}:
                try:
                    await client.store.job_views.get(job_id, client.owner)
                    own.append(job_id)
                except NotFound:
                    continue
            return await client.store.results.requests_of([item for item in items if job_of(item) in own])

        found: dict[tuple[int | None, str], dict[str, str]] = {}
        for stored in self._runner.run(read()):
            if stored.body.startswith('{"custom_id":'):  # an LLM request, and no other job's payload
                request = unseal(stored.body)
                found[stored.id, request.custom_id] = {"prompt": prompt_text(request.url, request.body)}
        return found


COMMANDS = {
    "show": (
        "backstay.cli.show:show_answers",
        "Show how many answers are kept, of which models, how old, at what cost.",
    ),
    "clear": ("backstay.cli.show:clear", "Forget answers, so that the same requests are sent again."),
}

cache = LazyGroup(
    "cache",
    lazy=COMMANDS,
    examples=("backstay cache show", "backstay cache clear --older-than 30d"),
    help="Shows or clears the answers of earlier runs that `run --reuse` uses again.",
    no_args_is_help=True,
)


@click.command("show", cls=Command, examples=("backstay cache show", "backstay cache show --json"))
@place_options
@json_option
def show_answers(db: str | None, as_json: bool) -> None:
    """Shows the answers that a run may use again, by model. COST is what all calls for them have cost."""
    app = database_choice.open_app(db)
    sums = database_choice.with_client(app, lambda client: client.store.answers.sums(client.owner))
    if as_json:
        output.data(output.as_json({"models": [each._asdict() for each in sums]}))
        return
    if not sums:
        output.note("no answers are kept")
        return
    rows = []
    for each in sums:
        ages = (show_moment(each.oldest_at), show_moment(each.newest_at))
        rows.append((each.model or "unknown", f"{each.answers:,}", *ages, show_money(each.cost_micros)))
    output.table(("MODEL", "ANSWERS", "OLDEST", "NEWEST", "COST"), rows)
    answers, cost = sum(each.answers for each in sums), sum(each.cost_micros for each in sums)
    output.note(f"{output.count(answers, 'answer')}; the calls for them have cost {show_money(cost)}")


@click.command(
    "clear",
    cls=Command,
    examples=(
        "backstay cache clear --older-than 30d",
        "backstay cache clear --model gpt-4o-mini",
        "backstay cache clear --all",
    ),
)
@click.option("--older-than", type=Duration(needs_unit=True), help="Forget answers that are at least this old: 30d.")
@click.option("--model", type=Name(), metavar="NAME", help="Forget the answers of this model.")
@click.option("--all", "everything", is_flag=True, help="Forget all answers.")
@place_options
@json_option
def clear(older_than: float | None, model: str | None, everything: bool, db: str | None, as_json: bool) -> None:
    """Forgets answers: the same requests are sent and paid again. Jobs and their results stay.

    --older-than and --model can be used together.
    """
    chosen = older_than is not None or model is not None
    if everything == chosen:
        hint = "give --older-than, --model or both, or --all"
        said = "--all cannot be used with --older-than or --model" if chosen else "no answers are chosen"
        raise UsageError(said, hint=hint)

    async def act(client: "Client") -> int:
        age_ms = None if older_than is None else int(older_than * 1000)
        return await client.store.answers.clear(client.owner, age_ms, model)

    cleared = database_choice.with_client(database_choice.open_app(db), act)
    said = f"{output.count(cleared, 'request')} forgotten: sent again next time; results stay"
    output.data(output.as_json({"cleared": cleared}) if as_json else said)


@contextmanager
def unknown_requests(
    destination: "Destination", forecast: "Forecast", reuse: "Reuse", db: str | None
) -> "Iterator[UnknownRequests | None]":
    """None if there is no database, or answers are not used again. No database is created."""
    from backstay.llm.repeated_requests import RequestKeys, UnknownRequests
    from backstay.store.submissions import Search
    from backstay.sync import SyncBackstay

    target = database_choice.choose(db) if reuse.wanted else None
    if target is None or database_choice.missing_file(target.url):
        yield None
        return
    age = reuse.age_seconds
    search = Search(None if age is None else int(age * 1000))
    backstay = SyncBackstay(database_choice.app_on(target))
    try:
        try:
            client = backstay.run(backstay.app.open())
        except BackstayError as error:
            output.note(f"earlier answers are not counted: {error.message}")
            yield None
            return
        yield UnknownRequests(
            forecast,
            lambda api: RequestKeys(client.owner, api, destination.url(api), destination.headers(api)),
            lambda keys: backstay.run(client.store.answers.find(client.owner, keys, search)),
        )
    finally:
        backstay.close()
