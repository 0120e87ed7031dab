"""Tables on disk: rows in, and a CSV, TSV, JSON Lines, text or Parquet file out that is there whole or not at all.
The table of a run has the rows of its input, in their order, each with its answer, error and cost.
"""

import csv
import errno
import fcntl
import io
import json
import os
import pickle
import shutil
import stat
import sys
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Protocol

from backstay.client import Client
from backstay.core.display import MICROS_PER_DOLLAR, is_unicode
from backstay.core.errors import BackstayError, UsageError
from backstay.core.ids import item_id
from backstay.core.states import ItemState
from backstay.llm.bodies import object_of
from backstay.llm.chat_format import answer_text
from backstay.llm.formats import ParsedRequest
from backstay.llm.intake import Digest, FileChanged, FileSurvey, RequestSource
from backstay.llm.lines import LineRefused, open_temporary, unseal
from backstay.llm.row_files import Row, columns_of, open_row_file, require_library
from backstay.run.collector import PAGE_ITEMS, FileOrder, LinePlace
from backstay.run.result_file import MOVE_AWAY, ended_request
from backstay.run.summary import Summary
from backstay.store.results import AnswerRow

SUFFIXES: Final = {".csv": ",", ".tsv": "\t", ".jsonl": "", ".ndjson": "", ".parquet": "", ".pq": "", ".txt": ""}
LINES: Final = (".txt", ".jsonl", ".ndjson")  # a value per line, where there is one column
GROUP_ROWS: Final = 2_000  # of a Parquet file that are written together
_ANOTHER: Final = "choose another file, or fix the cause"
_NO_LOCKS: Final = frozenset({errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL})


class TableWriter(Protocol):
    """Takes rows, each with a value for every column; a column that a row lacks is empty."""

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None: ...


@contextmanager
def open_table(path: str | Path, columns: Sequence[str], bare: bool = False) -> Iterator[TableWriter]:
    """A table that takes its place when the block ends without an error; until then an earlier one stays.

    `bare` writes the one column there is without its name: a text, or in JSON Lines a JSON value, per line.
    """
    place = Path(os.path.realpath(path))
    suffix = _require_suffix(path, columns, bare)
    with _replace_file(place, path) as file, _explain_errors(path):
        match suffix:
            case ".csv" | ".tsv":
                with _csv_writer(file, columns, SUFFIXES[suffix], bare) as lines:
                    yield lines
            case ".parquet" | ".pq":
                with ExitStack() as closing:
                    table = _ParquetWriter(file, columns)
                    yield table
                    closing.callback(table.close)
            case ".txt":
                yield _LineWriter(file, columns, _text_line)
            case _:
                yield _LineWriter(file, columns, (lambda row: _json(row[columns[0]])) if bare else _json)


def check_table(path: str | Path, columns: Sequence[str], bare: bool = False) -> None:
    """Raises UsageError, before anything is sent, if the table could not be written."""
    _require_suffix(path, columns, bare)
    with _part_file(Path(os.path.realpath(path)), path) as (part, _):
        part.unlink()


def _require_suffix(path: str | Path, columns: Sequence[str], bare: bool) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(f"{path} is not a table", hint="its name must end in .csv, .tsv, .jsonl, .parquet or .txt")
    if suffix in (".parquet", ".pq"):
        require_library("pyarrow.parquet", "parquet", "Parquet files")
    if (bare or suffix == ".txt") and len(columns) != 1:
        hint = "choose a .csv file, or one column, for example with --text-only"
        raise UsageError(f"{path} has a place for one column, not for {len(columns)}", hint=hint)
    return suffix


@contextmanager
def _replace_file(place: Path, shown: str | Path) -> Iterator[IO[bytes]]:
    with _part_file(place, shown) as (part, file):
        try:
            yield file
            with _explain_errors(shown):
                file.flush()
                os.fsync(file.fileno())
                os.replace(part, place)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise


@contextmanager
def _part_file(place: Path, shown: str | Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """The file that becomes the table, locked, because two runs must not write to it. Lines that a crash left are
    removed."""
    if place.is_dir():
        raise UsageError(f"{shown} is a folder", hint="name a file in it")
    part = place.with_name(f".{place.name}.backstay-part")
    try:
        with suppress(FileNotFoundError):
            os.close(os.open(place, os.O_WRONLY))  # a file that may not be written is not replaced either
        file = os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+b")
    except OSError as error:
        raise UsageError(f"{shown} cannot be written: {error.strerror}", hint=_ANOTHER) from None
    with file:
        _lock(file, shown)
        file.truncate(0)
        with suppress(FileNotFoundError):
            os.fchmod(file.fileno(), stat.S_IMODE(os.stat(place).st_mode))
        yield part, file


def _lock(file: IO[bytes], shown: str | Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"another run is writing to {shown}", hint="wait until it ends") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


@contextmanager
def _explain_errors(shown: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise BackstayError(f"{shown} cannot be written: {why}", hint="an earlier file is as it was") from error


class _LineWriter:
    def __init__(self, file: IO[bytes], columns: Sequence[str], make: Any) -> None:
        self._file = file
        self._columns = columns
        self._make = make

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            line: str = self._make({column: row.get(column) for column in self._columns})
            self._file.write(line.encode("utf-8", "backslashreplace") + b"\n")


def _text_line(row: Mapping[str, Any]) -> str:
    """A row is one line, so a line end inside is a blank."""
    (value,) = row.values()
    return " ".join(_cell(value).splitlines())


class _CsvWriter:
    def __init__(self, text: io.TextIOWrapper, columns: Sequence[str], delimiter: str, bare: bool) -> None:
        self._columns = columns
        self._csv = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        if not bare:
            self._csv.writerow(columns)

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self._csv.writerow([_cell(row.get(column)) for column in self._columns])


@contextmanager
def _csv_writer(file: IO[bytes], columns: Sequence[str], delimiter: str, bare: bool) -> Iterator[_CsvWriter]:
    text = io.TextIOWrapper(file, "utf-8", "backslashreplace", newline="")
    yield _CsvWriter(text, columns, delimiter, bare)
    text.flush()
    text.detach()


def _cell(value: Any) -> str:
    """The text of a value in a CSV file: None is empty, lists and objects are JSON."""
    match value:
        case None:
            return ""
        case str():
            return value
        case bool() | int() | float():
            return json.dumps(value)
        case _:
            return _json(value)


def _json(value: Any) -> str:
    """JSON has no bytes, they are written in Base64; half a surrogate pair has no UTF-8 form and is escaped."""
    text = _ENCODE(value)
    return text if is_unicode(text) else text.encode("utf-8", "backslashreplace").decode()


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_base64).encode


class _ParquetWriter:
    """Keeps the rows in a temporary file until all are there: only then the types of the columns are known."""

    def __init__(self, file: IO[bytes], columns: Sequence[str]) -> None:
        self._arrow = require_library("pyarrow", "parquet", "Parquet files")
        self._parquet = require_library("pyarrow.parquet", "parquet", "Parquet files")
        self._file = file
        self._columns = columns
        self._waiting: list[Mapping[str, Any]] = []
        self._spooled = open_temporary()
        self._types: dict[str, Any] = {column: self._arrow.null() for column in columns}  # None: no type fits

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self._waiting.append(row)
            if len(self._waiting) >= GROUP_ROWS:
                self._spool()

    def _spool(self) -> None:
        group = {column: [row.get(column) for row in self._waiting] for column in self._columns}
        for column, values in group.items():
            self._types[column] = self._joined_type(self._types[column], values)
        pickle.dump(group, self._spooled)
        self._waiting = []

    def _joined_type(self, known: Any, values: Sequence[Any]) -> Any:
        """The type of all values of a column so far; None if there is none."""
        arrow = self._arrow
        try:
            found = arrow.array(values).type
            if known is None or arrow.types.is_null(found) or found == known:
                return known
            schemas = [arrow.schema([("column", each)]) for each in (known, found)]
            return arrow.unify_schemas(schemas, promote_options="permissive").field("column").type
        except (ValueError, TypeError, OverflowError):  # pyarrow's own errors are of these kinds
            return None

    def close(self) -> None:
        self._spool()
        arrow, end = self._arrow, self._spooled.tell()
        # A column with numbers and texts becomes text. So does a column without any value: few programs read the type
        # null.
        texts = {column for column, kind in self._types.items() if kind is None or arrow.types.is_null(kind)}
        schema = arrow.schema(
            [(column, arrow.string() if column in texts else self._types[column]) for column in self._columns]
        )
        self._spooled.seek(0)
        with self._parquet.ParquetWriter(self._file, schema) as writer:
            while self._spooled.tell() < end:
                group: dict[str, list[Any]] = pickle.load(self._spooled)
                for column in texts:
                    group[column] = [None if value is None else _cell(value) for value in group[column]]
                writer.write_table(arrow.table(group, schema=schema))
        self._spooled.close()


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


def plan_table(out: str, columns: str | None, text_only: bool, source: RequestSource, survey: FileSurvey) -> TablePlan:
    """The table that the options ask for. Raises UsageError before anything is sent."""
    if columns is not None and text_only:
        raise UsageError("--columns and --text-only cannot be used together", hint="give one of them")
    assert source.file is not None, "a table is made of the rows of a file"
    known = columns_of(source.file)
    if text_only:
        plan = TablePlan(out, (TableColumn(ANSWER, ANSWER, True),), Path(out).suffix.lower() in LINES or out == STDOUT)
    else:
        mixed = len(survey.models) > 1 or any(route.fallbacks for route in survey.routes)
        chosen = _all_columns(known, mixed) if columns is None else _chosen_columns(columns, known)
        plan = TablePlan(out, tuple(chosen))
    if out != STDOUT:
        check_place(plan.path, plan.names, source.name, survey.requests + survey.bad_count, plan.bare)
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


def check_place(path: str | Path, columns: Sequence[str], source: str | Path, rows: int, bare: bool = False) -> None:
    """Raises UsageError if the file exists and is not a table of these rows: only such a table is replaced."""
    check_table(path, columns, bare)
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return
    if os.path.exists(source) and os.path.samefile(path, source):
        raise UsageError(f"{path} is the input itself", hint="choose another --out")
    try:
        with open_row_file(str(path)) as file:
            same = sum(1 for _ in file.texts()) <= rows if bare else _first_columns(file.rows) == columns
            same = same or columns_of(file) == columns
    except UsageError:
        same = False
    if not same:
        raise UsageError(f"{path} already exists, and is not a table of this run", hint=MOVE_AWAY)


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
            parsed = LineRefused("has the same custom_id as an earlier row")
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
        ended = {row.id: row for row in await self._client.store.results.answers_of(items)} if items else {}
        found = []
        for at, request in enumerate(requests):
            place = places[at] if at < len(places) else None
            row = None if place is None else ended.get(item_id(self._job_id, place.position))
            is_copy = place is not None and place.number is not None
            found.append(_result_columns(row, request, is_copy))
        return found


def _result_columns(row: AnswerRow | None, request: ParsedRequest, is_copy: bool) -> dict[str, Any]:
    if row is None or not (is_copy or unseal(row.body).custom_id == request.custom_id):
        return {ERROR: NOT_DONE, MODEL: request.model}
    micros = 0 if is_copy else row.cost_micros
    reply = (object_of(row.result or "") or {}).get("body")
    model = reply.get("model") if isinstance(reply, dict) else None
    found = {COST: None if micros is None else micros / MICROS_PER_DOLLAR, MODEL: model or request.model}
    if row.state == ItemState.SUCCEEDED:
        return {**found, ANSWER: answer_text(reply)}
    ended = ended_request(row)
    return {**found, ERROR: ": ".join(part for part in (ended.code, ended.message) if part) or "failed"}
