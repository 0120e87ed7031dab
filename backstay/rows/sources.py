"""Rows from anything: lists, iterators, data frames, datasets and files, all read the same way, as often as needed."""

import os
import pickle
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from os import PathLike, fspath
from typing import Any, Final

from backstay.core.display import NotPlain, plain_value
from backstay.core.errors import UsageError
from backstay.llm.lines import LineRefused, open_temporary
from backstay.llm.row_files import TEXT_COLUMN, FileKind, Row, columns_of, names_in, open_row_file

_ESCAPED: Final = (FileKind.JSON_LINES, FileKind.JSON_ARRAY)  # an escape in them may be of no character
TAKEN: Final = "give a list, an iterator, a pandas or Polars frame, a dataset, or the path of a file"


class RowKind(StrEnum):
    """Where rows come from."""

    LIST = "list"
    ITERATOR = "iterator"
    PANDAS = "pandas"
    POLARS = "polars"
    DATASET = "dataset"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class RowSource:
    """Rows with named columns; `rows` reads them from the start each time it is called."""

    name: str
    kind: RowKind
    columns: list[str]
    rows: Callable[[], Iterator[Row]]
    frame: Any = None  # that the rows came in, if it was one


def open_rows(source: Any) -> RowSource:
    """A string is the path of a file; a list of strings has one column, `row`. An iterator is read here, to its end."""
    if isinstance(source, str | PathLike):
        return _of_file(fspath(source))
    match type(source).__module__.partition(".")[0]:
        case "pandas":
            kept = source.copy(deep=False)
            return replace(_of_pandas(kept), frame=_frame_of(kept))
        case "polars":
            kept = source.clone()
            return replace(_of_polars(kept), frame=_frame_of(kept))
        case "datasets":
            return replace(_of_dataset(source), frame=_frame_of(source))
    if isinstance(source, Mapping | bytes) or not isinstance(source, Iterable) or _is_record(source):
        raise UsageError(f"rows cannot be a single {type(source).__name__}", hint=TAKEN)
    if isinstance(source, Iterator):
        return _of_iterator(source)
    kept = [_copy_row(row) for row in source] if isinstance(source, list | tuple) else source
    return _make_source("the rows", RowKind.LIST, lambda: _number_rows(kept))


def _copy_row(row: Any) -> Any:
    """Answers are paired with rows when they are read, so a list that is sorted or changed later must not matter."""
    return copy(row) if isinstance(row, Mapping) or _is_record(row) else row


def _frame_of(source: Any) -> Any:
    """None for a single column, which has no place for answers."""
    return source if hasattr(source, "columns") or hasattr(source, "column_names") else None


def _of_file(path: str) -> RowSource:
    if path == "-":
        raise UsageError("rows cannot be read from stdin here", hint="give the path of a file")

    version = _version_of(path)

    def rows() -> Iterator[Row]:
        if _version_of(path) != version:
            hint = "make the call again with the file as it was: what is answered is not sent again"
            raise UsageError(f"{path} has changed since it was read, so answers may not belong to its rows", hint=hint)
        with open_row_file(path) as file:
            for number, row in file.rows():
                if isinstance(row, LineRefused):
                    raise UsageError(f"{file.unit} {number} of {path} {row}")
                yield _plain_row(number, row.items()) if file.kind in _ESCAPED else row

    with open_row_file(path) as file:
        columns = columns_of(file)
    return RowSource(path, RowKind.FILE, columns, rows)


def _version_of(path: str) -> tuple[int, ...] | None:
    """None for a file that is not there, and for a pipe."""
    with suppress(OSError):
        found = os.stat(path)
        return (found.st_ino, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None
    return None


def _of_iterator(source: Iterator[Any]) -> RowSource:
    """Read once, into a temporary file, so that it can be read again."""
    spooled = open_temporary()
    for row in _number_rows(source):
        pickle.dump(row, spooled)
    end = spooled.tell()

    def rows() -> Iterator[Row]:
        at = 0
        while at < end:
            spooled.seek(at)  # another reader may have moved it
            row: Row = pickle.load(spooled)
            at = spooled.tell()
            yield row

    return _make_source("the rows", RowKind.ITERATOR, rows)


def _of_pandas(source: Any) -> RowSource:
    frame = source.to_frame(_series_name(source)) if hasattr(source, "to_frame") and source.ndim == 1 else source
    columns = [str(name) for name in frame.columns]
    return _of_tuples(RowKind.PANDAS, columns, lambda: frame.itertuples(index=False, name=None))


def _series_name(series: Any) -> str:
    return TEXT_COLUMN if series.name in (None, "") else str(series.name)


def _of_polars(source: Any) -> RowSource:
    if hasattr(source, "collect"):
        raise UsageError("rows cannot be a Polars LazyFrame", hint="give frame.collect()")
    frame = source.to_frame(_series_name(source)) if not hasattr(source, "iter_rows") else source
    return _of_tuples(RowKind.POLARS, list(frame.columns), frame.iter_rows)


def _of_dataset(source: Any) -> RowSource:
    if isinstance(source, Mapping):
        splits = ", ".join(map(str, source))
        raise UsageError(f"rows cannot be all splits of a dataset: {splits}", hint="give one, such as dataset['train']")
    stored = _undecoded(source)
    columns = list(source.column_names or ()) or names_in(_number_rows(stored))
    return RowSource("the dataset", RowKind.DATASET, columns, lambda: _number_rows(stored))


def _undecoded(source: Any) -> Any:
    """Images and the like stay bytes and paths: decoding needs other libraries, and a request takes bytes."""
    for name, feature in (source.features or {}).items():
        if getattr(feature, "decode", False):
            source = source.cast_column(name, replace(feature, decode=False))
    return source


def _of_tuples(kind: RowKind, columns: list[str], tuples: Callable[[], Iterable[tuple[Any, ...]]]) -> RowSource:
    if repeated := next((name for name in columns if columns.count(name) > 1), None):
        raise UsageError(f"the frame has the column {repeated!r} twice")

    def rows() -> Iterator[Row]:
        for number, values in enumerate(tuples(), 1):
            yield _plain_row(number, zip(columns, values, strict=True))

    return RowSource("the frame", kind, columns, rows)


def _make_source(name: str, kind: RowKind, rows: Callable[[], Iterator[Row]]) -> RowSource:
    return RowSource(name, kind, names_in(rows()), rows)


def _number_rows(values: Iterable[Any]) -> Iterator[Row]:
    for number, value in enumerate(values, 1):
        yield _plain_row(number, _pairs(number, value))


def _pairs(number: int, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, str):
        return [(TEXT_COLUMN, value)]
    if isinstance(value, Mapping):
        return [(name if isinstance(name, str) else str(name), each) for name, each in value.items()]
    if is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in fields(value)]
    if _is_record(value):
        return list(value.model_dump().items())
    said = f"row {number} is of the type {type(value).__name__}"
    raise UsageError(said, hint="a row is a text, a dict, a dataclass or a Pydantic model")


def _is_record(value: Any) -> bool:
    """Whether the value is one Pydantic model or dataclass: it may be iterable, but it is one row, not a list of
    rows."""
    if isinstance(value, type):
        return False
    return is_dataclass(value) or callable(getattr(value, "model_dump", None))


def _plain_row(number: int, pairs: Iterable[tuple[str, Any]]) -> Row:
    row: Row = {}
    for column, value in pairs:
        try:
            row[column] = plain_value(value)
        except NotPlain as error:
            raise UsageError(f"row {number} has in the column {column!r} {error}, which cannot be sent") from None
    return row
