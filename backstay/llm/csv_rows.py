"""CSV files of rows that fill a template."""

import csv
import re
from collections.abc import Iterator
from typing import IO

from backstay.core.errors import UsageError
from backstay.llm.formats import IDS, InputOptions, ParsedRequest, Rows
from backstay.llm.lines import BOM, LINE_BYTES_MAX, LineRefused, number_lines

DELIMITERS = ",;\t"
_UNDECODED = re.compile("[\ud800-\udfff]")


def entries(lines: IO[bytes], reading: InputOptions) -> Iterator[tuple[int, ParsedRequest | LineRefused]]:
    """Every row below the header with the number of the line it starts on."""
    csv.field_size_limit(LINE_BYTES_MAX)
    rows = Rows(reading)
    columns: list[str] = []
    for line, found in _records(lines):
        try:
            if isinstance(found, LineRefused):
                raise found
            if not columns:
                columns = _checked_header(found, reading, rows)
            elif len(found) != len(columns):
                raise LineRefused(f"has {len(found)} fields where the header has {len(columns)}")
            else:
                yield line, rows.fill(line, dict(zip(columns, found, strict=True)))
        except LineRefused as refused:
            if not columns:
                raise UsageError(f"the header {refused}") from None
            yield line, refused


def _checked_header(names: list[str], reading: InputOptions, rows: Rows) -> list[str]:
    columns = [name.strip() for name in names]
    if repeated := next((name for name in columns if columns.count(name) > 1), None):
        raise UsageError(f"the header has the column {repeated!r} twice")
    if reading.template is None and "prompt" not in columns:
        hint = f"columns: {', '.join(columns)}; {' or '.join(IDS)} can hold the id"
        raise UsageError("a CSV file needs --template, or a column named prompt", hint=hint)
    rows.check_columns(columns)
    return columns


def _records(lines: IO[bytes]) -> Iterator[tuple[int, list[str] | LineRefused]]:
    """The records that are not blank. One may span several lines, in quotes."""
    lines.seek(0)
    delimiter = _delimiter(lines)
    lines.seek(0)
    reader = csv.reader(_texts(lines), delimiter=delimiter, strict=True)
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


def _texts(lines: IO[bytes]) -> Iterator[str]:
    for number, line in number_lines(lines):
        if line is None:
            raise UsageError(f"line {number} has more than {LINE_BYTES_MAX:,} bytes")
        # Bytes that are not UTF-8 must not end the file: they are passed on in a form that can be recognised, and the
        # error names the row.
        yield (line.removeprefix(BOM) if number == 1 else line).decode("utf-8", "surrogateescape")
