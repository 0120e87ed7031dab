"""Files of rows: CSV, JSON Lines, a JSON array, lines of text and Parquet, each read row by row; others are refused by
their first bytes.

A `Template` is a prompt or a body with places for the columns of a table.
"""

import codecs
import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from importlib import import_module
from pathlib import PurePath
from typing import IO, Any, Final

from backstay.core.display import NotPlain, plain_value
from backstay.core.errors import UsageError
from backstay.llm.lines import (
    BOM,
    BUFFER_BYTES,
    CHUNK_BYTES,
    LINE_BYTES_MAX,
    LineRefused,
    array_as_lines,
    number_lines,
    open_lines,
    open_temporary,
    quote_json,
    text_of,
    value_of,
)

ACCEPTED: Final = "CSV, TSV, JSON Lines, a JSON array, Parquet, and text with a prompt per line"
TEXT_COLUMN: Final = "row"  # of a file of texts: the one column that its lines are
DELIMITERS: Final = ",;\t"
BATCH_ROWS: Final = 500  # of a Parquet file that are in memory at once
HEAD_BYTES: Final = 4_096

_PARQUET: Final = b"PAR1"
_FOREIGN: Final = (
    (b"PK\x03\x04", "an Excel file or a ZIP archive"),
    (b"\xd0\xcf\x11\xe0", "an old Excel or Word file"),
    (b"%PDF-", "a PDF"),
    (b"\x1f\x8b", "compressed with gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"\xfd7zXZ\0", "compressed with xz"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"SQLite format 3\0", "a SQLite database"),
    (b"ARROW1\0\0", "an Arrow file"),
    (b"Obj\x01", "an Avro file"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
)
# The longer marks come first: that of UTF-32 begins with that of UTF-16.
_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_UNDECODED = re.compile("[\ud800-\udfff]")

Row = dict[str, Any]
NumberedRow = tuple[int, Row | LineRefused]
NumberedText = tuple[int, str | LineRefused]


class FileKind(StrEnum):
    """How the rows of a file are written."""

    CSV = "csv"
    JSON_LINES = "jsonl"
    JSON_ARRAY = "json"
    TEXT = "txt"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class RowFile:
    """An open file of rows, in UTF-8 unless it is Parquet."""

    name: str
    kind: FileKind
    opened: IO[bytes]

    @property
    def lines(self) -> IO[bytes]:
        """The file from its start. Several may read it at the same time, each at its own place."""
        return io.BufferedReader(_Reader(self.opened.fileno()), BUFFER_BYTES)

    @property
    def unit(self) -> str:
        """The unit that the numbers of rows count."""
        match self.kind:
            case FileKind.PARQUET:
                return "row"
            case FileKind.JSON_ARRAY:
                return "element"
            case FileKind.CSV | FileKind.JSON_LINES | FileKind.TEXT:
                return "line"

    def rows(self) -> Iterator[NumberedRow]:
        """Every row with its number; of a CSV file, that of the line it starts on."""
        match self.kind:
            case FileKind.CSV:
                return csv_rows(self.lines)
            case FileKind.PARQUET:
                return _parquet_rows(self.lines, self.name)
            case FileKind.TEXT:
                return _map_texts(self.texts(), lambda text: {TEXT_COLUMN: text})
            case FileKind.JSON_LINES | FileKind.JSON_ARRAY:
                return _map_texts(self.texts(), _json_row)

    def texts(self) -> Iterator[NumberedText]:
        """Every line that is not blank; Parquet has none."""
        for number, line in number_lines(self.lines):
            try:
                if line is None:
                    raise LineRefused(f"has more than {LINE_BYTES_MAX:,} bytes")
                if text := text_of(line):
                    yield number, text
            except LineRefused as refused:
                yield number, refused


class _Reader(io.RawIOBase):
    """Reads a file without moving the place where others read."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = os.pread(self._number, len(buffer), self._at)
        buffer[: len(read)] = read
        self._at += len(read)
        return len(read)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: os.fstat(self._number).st_size}[whence]
        self._at = start + offset
        return self._at


@contextmanager
def open_row_file(file: str, kind: FileKind | None = None) -> Iterator[RowFile]:
    """A file of rows, `-` for stdin. Its kind, unless given, shows in its first bytes and its name."""
    name = "stdin" if file == "-" else file
    with ExitStack() as opened:
        lines = opened.enter_context(open_lines(file))
        head = _peek(lines)
        if encoding := next((encoding for mark, encoding in _MARKS if head.startswith(mark)), None):
            lines = opened.enter_context(_transcode(lines, encoding, name))
            head = _peek(lines)
        found = kind or _kind_of(name, head)
        if found is FileKind.JSON_ARRAY:
            lines = opened.enter_context(array_as_lines(lines, name))
        yield RowFile(name, found, lines)


def _peek(lines: IO[bytes]) -> bytes:
    lines.seek(0)
    head = lines.read(HEAD_BYTES)
    lines.seek(0)
    return head


def _kind_of(name: str, head: bytes) -> FileKind:
    if head.startswith(_PARQUET):
        return FileKind.PARQUET
    suffix = PurePath(name).suffix.lower()
    foreign = next((what for magic, what in _FOREIGN if head.startswith(magic)), None)
    if foreign is not None:
        raise UsageError(f"{name} is {foreign}, which Backstay cannot read", hint=f"accepted are {ACCEPTED}")
    if suffix in (".parquet", ".pq"):
        raise UsageError(f"{name} is not a Parquet file", hint=f"accepted are {ACCEPTED}")
    if b"\0" in head[:2]:
        raise UsageError(f"{name} is not text: it has zero bytes", hint=f"accepted are {ACCEPTED}, in UTF-8")
    if suffix in (".csv", ".tsv"):
        return FileKind.CSV
    first = head.removeprefix(BOM).lstrip()[:1]
    if first == b"[" and suffix not in (".jsonl", ".ndjson", ".txt"):
        return FileKind.JSON_ARRAY
    return FileKind.TEXT if suffix == ".txt" and first != b"{" else FileKind.JSON_LINES


@contextmanager
def _transcode(lines: IO[bytes], encoding: str, name: str) -> Iterator[IO[bytes]]:
    """The same text in UTF-8."""
    decoder, read = codecs.getincrementaldecoder(encoding)(), 0
    with open_temporary() as spooled:
        try:
            while chunk := lines.read(CHUNK_BYTES):
                spooled.write(decoder.decode(chunk).encode("utf-8", "surrogateescape"))
                read += len(chunk)
            spooled.write(decoder.decode(b"", final=True).encode())
        except UnicodeError as error:
            where = f"in its bytes {read + 1:,} to {read + CHUNK_BYTES:,}"
            what = error.reason if isinstance(error, UnicodeDecodeError) else str(error)
            said = f"{name} begins as {encoding.upper()} and is not: {what}, {where}"
            raise UsageError(said, hint="save it as UTF-8") from None
        yield spooled


# CSV


def csv_rows(lines: IO[bytes]) -> Iterator[NumberedRow]:
    """The rows below the header. Raises UsageError for a bad header: without it no row can be read."""
    columns: list[str] = []
    for line, found in _csv_records(lines):
        try:
            if isinstance(found, LineRefused):
                raise found
            if not columns:
                columns = _column_names(found)
            elif len(found) != len(columns):
                raise LineRefused(f"has {len(found)} fields where the header has {len(columns)}")
            else:
                yield line, dict(zip(columns, found, strict=True))
        except LineRefused as refused:
            if not columns:
                raise UsageError(f"the header {refused}") from None
            yield line, refused


def columns_of(file: RowFile) -> list[str]:
    """The names of the columns. JSON has them in every row, so all rows are read."""
    match file.kind:
        case FileKind.CSV:
            return _csv_columns(file.lines)
        case FileKind.PARQUET:
            return _parquet_columns(file.lines, file.name)
        case FileKind.TEXT:
            return [TEXT_COLUMN]
        case FileKind.JSON_LINES | FileKind.JSON_ARRAY:
            return names_in(row for _, row in file.rows() if not isinstance(row, LineRefused))


def names_in(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """All names that rows have, in the order in which they appear."""
    found: dict[str, None] = {}
    for row in rows:
        if not row.keys() <= found.keys():
            found |= dict.fromkeys(row)
    return list(found)


def _csv_columns(lines: IO[bytes]) -> list[str]:
    """The names in the header; none in an empty file."""
    for _, found in _csv_records(lines):
        if isinstance(found, LineRefused):
            raise UsageError(f"the header {found}")
        return _column_names(found)
    return []


def _column_names(names: list[str]) -> list[str]:
    columns = [name.strip() for name in names]
    if repeated := next((name for name in columns if columns.count(name) > 1), None):
        raise UsageError(f"the header has the column {repeated!r} twice")
    return columns


def _csv_records(lines: IO[bytes]) -> Iterator[tuple[int, list[str] | LineRefused]]:
    """The records that are not blank. One may span several lines, in quotes."""
    csv.field_size_limit(LINE_BYTES_MAX)
    delimiter = _delimiter(lines)
    lines.seek(0)
    reader = csv.reader(_csv_lines(lines), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader, None)
        except csv.Error as error:
            yield line, LineRefused(f"is not CSV: {error}")
            continue
        if record is None:
            return
        if record:
            undecoded = any(map(_UNDECODED.search, record))
            yield line, LineRefused("is not UTF-8") if undecoded else record


def _delimiter(lines: IO[bytes]) -> str:
    """The delimiter that is most frequent in the header."""
    header = lines.readline(LINE_BYTES_MAX).decode("utf-8", "replace")
    return max(DELIMITERS, key=header.count)


def _csv_lines(lines: IO[bytes]) -> Iterator[str]:
    for number, line in number_lines(lines):
        if line is None:
            raise UsageError(f"line {number} has more than {LINE_BYTES_MAX:,} bytes")
        # Bytes that are not UTF-8 must not end the file: they are passed on in a form that can be recognised, and the
        # error names the row.
        yield (line.removeprefix(BOM) if number == 1 else line).decode("utf-8", "surrogateescape")


# JSON


def _map_texts(texts: Iterator[NumberedText], make: Callable[[str], Row]) -> Iterator[NumberedRow]:
    for number, text in texts:
        try:
            if isinstance(text, LineRefused):
                raise text
            yield number, make(text)
        except LineRefused as refused:
            yield number, refused


def _json_row(text: str) -> Row:
    value = value_of(text)
    if isinstance(value, str):
        return {TEXT_COLUMN: value}
    if not isinstance(value, dict):
        raise LineRefused("is not a JSON object")
    return value


# Parquet


def require_library(module: str, extra: str, what: str) -> Any:
    """Imports an optional library when it is used; raises UsageError if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        library = module.partition(".")[0]
        raise UsageError(
            f"{what} need {library}, which is not installed", hint=f"pip install 'backstay[{extra}]'"
        ) from None


def _parquet_rows(lines: IO[bytes], name: str) -> Iterator[NumberedRow]:
    number = 0
    for batch in _open_parquet(lines, name).iter_batches(BATCH_ROWS):
        for row in batch.to_pylist():
            number += 1
            try:
                yield number, {column: _plain_cell(column, value) for column, value in row.items()}
            except LineRefused as refused:
                yield number, refused


def _plain_cell(column: str, value: Any) -> Any:
    try:
        return plain_value(value)
    except NotPlain as error:
        raise LineRefused(f"has in the column {column!r} {error}") from None


def _parquet_columns(lines: IO[bytes], name: str) -> list[str]:
    columns = list(_open_parquet(lines, name).schema_arrow.names)
    if repeated := next((column for column in columns if columns.count(column) > 1), None):
        raise UsageError(f"{name} has the column {repeated!r} twice")
    return columns


def _open_parquet(lines: IO[bytes], name: str) -> Any:
    parquet = require_library("pyarrow.parquet", "parquet", "Parquet files")
    try:
        # By default whole columns would be read ahead.
        return parquet.ParquetFile(lines, pre_buffer=False, buffer_size=CHUNK_BYTES)
    except (OSError, ValueError) as error:  # pyarrow's own errors are of these kinds
        said = " ".join(str(error).split())
        raise UsageError(f"{name} cannot be read as Parquet: {said}") from None


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BREAKS = re.compile(r"[\r\n]+")
_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")


class Template:
    """Text in which {name} stands for a column. Every other brace is itself: JSON in a prompt stays as it is. In a text
    with {{, doubled braces stand for single ones, so that {{name}} is never a column.

    Text that is a JSON object is a body: there the names are inside its strings, and their values are escaped. A name
    that is not an identifier, as in {first name}, is a place only if there is such a column.
    """

    def __init__(self, text: str) -> None:
        self.is_body = _is_object(text)
        # Between the strings of JSON a line break is only space, and a request must stay on one line.
        pieces = _split_body(_BREAKS.sub(" ", text.strip())) if self.is_body else _split(text)
        self._pieces = pieces  # literal text and places take turns, each place as it is written between its braces
        self.names = frozenset(map(str.strip, pieces[1::2]))

    def check_columns(self, columns: Iterable[str]) -> None:
        known = list(columns)
        for name in sorted(self.names.difference(known)):
            if name.isidentifier():
                near = get_close_matches(name, known, 1)
                meant = f"did you mean {{{near[0]}}}? " if near else ""
                hint = f"{meant}there are {', '.join(known)}; for braces write {{{{{name}}}}}"
                raise UsageError(f"the template has {{{name}}}, which is not a column", hint=hint)

    def columns_used(self, columns: Iterable[str]) -> list[str]:
        """The columns that the template uses."""
        return [name for name in columns if name in self.names]

    def fill_values(self, row: Mapping[str, Any]) -> str:
        """Fills in values of any type: values that are not text are written as JSON."""
        return self.fill({name: _text_of(name, row[name]) for name in self.names if name in row})

    def fill(self, row: Mapping[str, str | None]) -> str:
        filled = list(self._pieces)
        for at in range(1, len(filled), 2):
            name = filled[at].strip()
            value = row.get(name)
            if value is not None:
                filled[at] = quote_json(value)[1:-1] if self.is_body else value
            elif name.isidentifier():
                raise LineRefused(f"has no {name!r}, which the template names")
            else:
                filled[at] = f"{{{filled[at]}}}"
        return "".join(filled)


def _is_object(text: str) -> bool:
    try:
        return isinstance(value_of(text.strip()), dict)
    except LineRefused:
        return False


def _split(text: str) -> list[str]:
    """Literal text, a name, literal text, a name, … literal text."""
    pieces, end, doubled = [""], 0, "{{" in text
    for place in _PLACE.finditer(text):
        pieces[-1] += text[end : place.start()]
        end = place.end()
        if place[1] is None:
            pieces[-1] += place[0][0] if doubled else place[0]
        else:
            pieces += [place[1], ""]
    pieces[-1] += text[end:]
    return pieces


def _split_body(text: str) -> list[str]:
    pieces, end = [""], 0
    for string in _STRING.finditer(text):
        first, *rest = _split(string[0])
        pieces[-1] += text[end : string.start()] + first
        pieces += rest
        end = string.end()
    pieces[-1] += text[end:]
    return pieces


def _text_of(column: str, value: Any) -> str | None:
    """A value of a row as text for a template; None if there is no value."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise LineRefused(f"has bytes in the column {column!r} that are not text") from None
    return json.dumps(value)
