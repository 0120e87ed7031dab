"""Templates: a prompt or a whole JSON body with {names}, filled from the columns of a row."""

import re
from collections.abc import Iterable, Mapping

from backstay.core.errors import UsageError
from backstay.llm.lines import LineRefused, quote_json, value_of

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BREAKS = re.compile(r"[\r\n]+")
_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class Template:
    """Text in which {name} stands for a column, and {{ and }} for braces.

    Text that is a JSON object is a body: there the names are inside its strings, and their values are escaped.
    """

    def __init__(self, text: str) -> None:
        self.is_body = _is_object(text)
        # Between the strings of JSON a line break is only space, and a request must stay on one line.
        pieces = _split_body(_BREAKS.sub(" ", text.strip())) if self.is_body else _split(text)
        self._pieces = pieces  # literal text and column names take turns
        self._names = frozenset(pieces[1::2])

    def check_columns(self, columns: Iterable[str]) -> None:
        known = list(columns)
        for name in sorted(self._names.difference(known)):
            hint = f"there are {', '.join(known)}; for braces write {{{{{name}}}}}"
            raise UsageError(f"the template has {{{name}}}, which is not a column of the file", hint=hint)

    def fill(self, row: Mapping[str, str]) -> str:
        filled = list(self._pieces)
        for at in range(1, len(filled), 2):
            value = row.get(filled[at])
            if value is None:
                raise LineRefused(f"has no {filled[at]!r}, which the template names")
            filled[at] = quote_json(value)[1:-1] if self.is_body else value
        return "".join(filled)


def _is_object(text: str) -> bool:
    try:
        return isinstance(value_of(text.strip()), dict)
    except LineRefused:
        return False


def _split(text: str) -> list[str]:
    """Literal text, a name, literal text, a name, … literal text."""
    pieces, end = [""], 0
    for place in _PLACE.finditer(text):
        pieces[-1] += text[end : place.start()]
        end = place.end()
        if len(place[0]) == 1:
            near = text[max(place.start() - 20, 0) : place.end() + 20]
            raise UsageError(f"the template has a lone {place[0]} in {near!r}", hint="to write a brace, double it")
        if place[1] is None:
            pieces[-1] += place[0][0]
        else:
            pieces += [place[1].strip(), ""]
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
