"""The table of a run: the rows of its input, in their order, each with its answer, error and cost."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from backstay.client import Client
from backstay.core.display import MICROS_PER_DOLLAR
from backstay.core.errors import UsageError
from backstay.core.ids import item_id
from backstay.core.states import ItemState
from backstay.llm.bodies import answer_text, object_of
from backstay.llm.formats import ParsedRequest
from backstay.llm.intake import Digest, FileChanged, FileSurvey, RequestSource
from backstay.llm.lines import LineRefused, unseal
from backstay.llm.row_files import Row, columns_of, open_row_file
from backstay.rows.tables import LINES, TableWriter, check_table, open_table
from backstay.run.collector import PAGE_ITEMS, FileOrder, LinePlace
from backstay.run.result_file import MOVE_AWAY, ended_request
from backstay.run.summary import Summary
from backstay.store.results import ResultRow

STDOUT: Final = "-"
INPUT: Final = "input."  # before the name of a column: the column of the input, even if the run has one of this name
NOT_DONE: Final = "not done yet"
ANSWER, ERROR, COST, MODEL = "answer", "error", "cost", "model"
RESULT_COLUMNS: Final = (ANSWER, ERROR, COST, MODEL)


class TableColumn(NamedTuple):
    """A column of the table: one of the input, or one that the run adds."""

    name: str
    of: str
    added: bool


class TablePlan(NamedTuple):
    """The columns of the table, and its file."""

    path: str
    columns: tuple[TableColumn, ...]
    bare: bool = False  # the one column, without its name

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


def is_table(out: str | None, columns: str | None, text_only: bool) -> bool:
    """Whether the results become a table, by the options or by the name of the file."""
    return columns is not None or text_only or (out is not None and Path(out).suffix.lower() in TABLES)


TABLES: Final = (".csv", ".tsv", ".parquet", ".pq", ".txt")


def plan_table(out: str, columns: str | None, text_only: bool, source: RequestSource, survey: FileSurvey) -> TablePlan:
    """The table that the options ask for. Raises UsageError before anything is sent."""
    if columns is not None and text_only:
        raise UsageError("--columns and --text-only are both given", hint="give one of them")
    assert source.file is not None, "a table is made of the rows of a file"
    known = columns_of(source.file)
    if text_only:
        plan = TablePlan(out, (TableColumn(ANSWER, ANSWER, True),), Path(out).suffix.lower() in LINES or out == STDOUT)
    else:
        mixed = len(survey.models) > 1 or any(route.fallbacks for route in survey.routes)
        chosen = _all_columns(known, mixed) if columns is None else _chosen_columns(columns, known)
        plan = TablePlan(out, tuple(chosen))
    if out != STDOUT:
        _check_place(plan, source.name, survey.requests + survey.bad_count)
    return plan


def _all_columns(known: Sequence[str], mixed: bool) -> Iterator[TableColumn]:
    added = RESULT_COLUMNS if mixed and MODEL not in known else (ANSWER, ERROR, COST)
    for name in added:
        if name in known:
            kept = ",".join(f"old_{name}={INPUT}{name}" if column == name else column for column in known)
            hint = f"rename it, for example: --columns {kept},{','.join(added)}"
            raise UsageError(f"the input has a column {name!r}, which the table needs for the results", hint=hint)
    yield from (TableColumn(name, name, False) for name in known)
    yield from (TableColumn(name, name, True) for name in added)


def _chosen_columns(text: str, known: Sequence[str]) -> list[TableColumn]:
    """Names with commas between them; NEW=OLD renames one."""
    found = [_chosen_column(part.strip(), known) for part in text.split(",")]
    names = [column.name for column in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"--columns has {twice!r} twice", hint="rename one of them: NEW=OLD")
    return found


def _chosen_column(text: str, known: Sequence[str]) -> TableColumn:
    name, _, old = text.partition("=") if text not in known else (text, "", text)
    name, old = name.strip(), (old or name).strip()
    if old in RESULT_COLUMNS:
        return TableColumn(name, old, True)
    column = old if old in known else old.removeprefix(INPUT)
    if not name or column not in known:
        hint = f"there are {', '.join([*known, *RESULT_COLUMNS])}"
        raise UsageError(f"--columns names {old!r}, which is not a column", hint=hint)
    return TableColumn(name if name != old else column, column, False)


def _check_place(plan: TablePlan, source: str, rows: int) -> None:
    """Raises UsageError if the file exists and is not a table of this run: only such a table is replaced."""
    check_table(plan.path, plan.names, plan.bare)
    if not os.path.exists(plan.path) or os.path.getsize(plan.path) == 0:
        return
    if os.path.exists(source) and os.path.samefile(plan.path, source):
        raise UsageError(f"{plan.path} is the input itself", hint="choose another --out")
    try:
        with open_row_file(plan.path) as file:
            same = sum(1 for _ in file.texts()) <= rows if plan.bare else _first_columns(file.rows) == plan.names
            same = same or columns_of(file) == plan.names
    except UsageError:
        same = False
    if not same:
        raise UsageError(f"{plan.path} is there already, and is not a table of this run", hint=MOVE_AWAY)


def _first_columns(rows: Callable[[], Iterator[tuple[int, Row | LineRefused]]]) -> list[str]:
    _, first = next(rows(), (0, {}))
    return [] if isinstance(first, LineRefused) else list(first)


async def write_table(
    client: Client, summary: Summary, plan: TablePlan, source: RequestSource, survey: FileSurvey, dedupe: bool
) -> Summary:
    """Writes every row; the summary says where, and how many have no result yet."""
    errors = "in the column `error`" if summary.errors == os.devnull else summary.errors
    summary = replace(summary, out="stdout" if plan.path == STDOUT else plan.path, errors=errors)
    if plan.path != STDOUT:
        with open_table(plan.path, plan.names, plan.bare) as table:
            missing = await _fill(table, client, summary.job_id, plan, source, survey, dedupe)
        return replace(summary, rows_missing=missing)
    with tempfile.TemporaryDirectory(prefix="backstay-") as folder:
        path = Path(folder) / ("table.txt" if plan.bare else "table.jsonl")
        with open_table(path, plan.names, plan.bare) as table:
            missing = await _fill(table, client, summary.job_id, plan, source, survey, dedupe)
        sys.stdout.flush()
        with path.open("rb") as written:
            shutil.copyfileobj(written, sys.stdout.buffer)
    return replace(summary, rows_missing=missing)


async def _fill(
    table: TableWriter,
    client: Client,
    job_id: int,
    plan: TablePlan,
    source: RequestSource,
    survey: FileSurvey,
    dedupe: bool,
) -> int:
    answers = AnswerPages(client, job_id)
    places = await answers.places(dedupe)
    missing = 0
    entries = _entries(source, survey)
    while page := list(islice(entries, PAGE_ITEMS)):
        good = [entry.parsed for entry in page if isinstance(entry.parsed, ParsedRequest)]
        found = iter(await answers.read(list(islice(places, len(good))), good))
        rows = []
        for entry in page:
            added = next(found) if isinstance(entry.parsed, ParsedRequest) else {ERROR: f"not sent: {entry.parsed}"}
            missing += added.get(ERROR) == NOT_DONE
            rows.append({name: (added if is_added else entry.row).get(of) for name, of, is_added in plan.columns})
        table.write(rows)
    return missing


class _Entry(NamedTuple):
    """A row of the input, and the request that was made of it."""

    row: Row
    parsed: ParsedRequest | LineRefused


def _entries(source: RequestSource, survey: FileSurvey) -> Iterator[_Entry]:
    """Every row, also rows that could not be sent. The file must not have changed since its survey."""
    assert source.file is not None, "a table is made of the rows of a file"
    digest = Digest()
    both = zip(source.entries(), source.file.rows(), strict=False)
    # Lines added since then are not part of the run.
    for (line, parsed), (number, row) in islice(both, survey.requests + survey.bad_count):
        if line != number:
            raise FileChanged(source.name, hint=_KEPT)
        if isinstance(parsed, ParsedRequest) and line in survey.bad_lines:
            parsed = LineRefused("has a custom_id that another has already")
        if isinstance(parsed, ParsedRequest):
            digest.add(parsed)
        yield _Entry({} if isinstance(row, LineRefused) else row, parsed)
    if digest.hexdigest() != survey.digest:
        raise FileChanged(source.name, hint=_KEPT)


_KEPT: Final = "all answers are in the database: give the file as it was, and run the same command again"


class AnswerPages:
    """The results of a job, page by page in the order of its requests."""

    def __init__(self, client: Client, job_id: int) -> None:
        self._client = client
        self._job_id = job_id

    async def places(self, dedupe: bool) -> Iterator[LinePlace]:
        order, store = FileOrder(), self._client.store
        if dedupe:
            async for item, number in store.results.copies(self._job_id):
                order.add(item - item_id(self._job_id, 0), number)
        return order.places((await store.job_views.get(self._job_id, self._client.owner)).total)

    async def read(self, places: Sequence[LinePlace], requests: Sequence[ParsedRequest]) -> list[dict[str, Any]]:
        """The result columns of each request; requests that are not stored yet have no place."""
        items = sorted({item_id(self._job_id, place.position) for place in places})
        results = self._client.store.results
        ended = {row.id: row for row in await results.of_items(items)} if items else {}
        costs = await results.costs_of(list(ended)) if ended else {}
        found = []
        for at, request in enumerate(requests):
            place = places[at] if at < len(places) else None
            row = None if place is None else ended.get(item_id(self._job_id, place.position))
            is_copy = place is not None and place.number is not None
            found.append(_result_columns(row, request, is_copy, costs))
        return found


def _result_columns(
    row: ResultRow | None, request: ParsedRequest, is_copy: bool, costs: dict[int, int]
) -> dict[str, Any]:
    if row is None or not (is_copy or unseal(row.body).custom_id == request.custom_id):
        return {ERROR: NOT_DONE, MODEL: request.model}
    micros = 0 if is_copy else costs.get(row.id)
    reply = (object_of(row.result or "") or {}).get("body")
    model = reply.get("model") if isinstance(reply, dict) else None
    found = {COST: None if micros is None else micros / MICROS_PER_DOLLAR, MODEL: model or request.model}
    if row.state == ItemState.SUCCEEDED:
        return {**found, ANSWER: answer_text(reply)}
    ended = ended_request(row)
    return {**found, ERROR: ": ".join(part for part in (ended.code, ended.message) if part) or "failed"}
