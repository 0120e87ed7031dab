"""Templates: a prompt or a body with places for the columns of a table."""

import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from backstay.core.errors import UsageError
from backstay.llm.lines import LineRefused, quote_json, value_of

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
