"""Tables on disk: rows in, and a CSV, TSV, JSON Lines, text or Parquet file out that is there whole or not at all."""

import csv
import errno
import fcntl
import io
import json
import os
import pickle
import stat
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, Protocol

from backstay.core.errors import BackstayError, UsageError
from backstay.llm.lines import open_temporary, write_json
from backstay.llm.row_files import require_library

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
                yield _LineWriter(file, columns, (lambda row: write_json(row[columns[0]])) if bare else write_json)


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
            line: str = self._make({column: _jsonable(row.get(column)) for column in self._columns})
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
            return write_json(_jsonable(value))


def _jsonable(value: Any) -> Any:
    """JSON has no bytes: they are written in Base64."""
    match value:
        case bytes():
            return b64encode(value).decode()
        case list():
            return [_jsonable(each) for each in value]
        case dict():
            return {name: _jsonable(each) for name, each in value.items()}
        case _:
            return value


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
