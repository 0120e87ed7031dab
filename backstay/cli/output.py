"""Printing: data on stdout, all else on stderr; colour and animation only where a person looks at a terminal."""

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

import click

from backstay.core.display import visible

MISSING = "-"


def fancy(stream: TextIO) -> bool:
    """Whether colour and animation are welcome there."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def data(text: str) -> None:
    """Prints a line of the requested data."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """Prints a line beside the data: a hint, or what was done. If stderr is closed, it is lost."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True, color=False)


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def show_moment(at: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def as_json(value: Any) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(", ", ": "))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Aligned columns; the headings are bold on a terminal, and nothing is ever cut off."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    head = _line(columns, widths)
    data(click.style(head, bold=True) if fancy(sys.stdout) else head)
    for row in cells:
        data(_line(row, widths))


def record(pairs: Iterable[tuple[str, Any]]) -> None:
    """Prints one object: a line for each value that is not empty."""
    said = [(name, _cell(value)) for name, value in pairs if value is not None and value != ""]
    width = max((len(name) for name, _ in said), default=0)
    for name, value in said:
        data(f"{name:<{width}}  {value}")


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cell(value: Any) -> str:
    if value is None or value == "":
        return MISSING
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if value >= 10_000 else str(value)
    return visible(" ".join(str(value).split()))  # a name may contain control characters
