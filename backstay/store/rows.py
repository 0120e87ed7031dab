"""Records that rows of the database become: a statement lists a record's fields, so its rows fit it by position.

`@record` makes a record known by its name, for `{columns Name}` in a statement. The databases store some types as
simpler ones: an enum as its text, a bool as 0 or 1, a list as JSON. The annotation of a field gives its type.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import make_dataclass
from enum import Enum
from functools import cache
from types import NoneType
from typing import Any, Final, TypeVar, get_args

from backstay.core.breaker import Call, load_calls

R = TypeVar("R", bound=type)
T = TypeVar("T")
Make = Callable[[Any], Any]

_RECORDS: Final[dict[str, type]] = {}
_SQL_TYPES: Final = {int: "bigint", bool: "bigint", str: "text", float: "double precision"}


def record(cls: R) -> R:
    """Registers a record (a named tuple or a dataclass) for the statements."""
    if _RECORDS.setdefault(cls.__name__, cls) is not cls:
        raise ValueError(f"there are two records {cls.__name__}")
    return cls


def record_named(name: str) -> type:
    if name not in _RECORDS:
        raise LookupError(f"no record {name}: the module that defines it is not imported, or lacks @record")
    return _RECORDS[name]


def fields_of(cls: type) -> tuple[str, ...]:
    return tuple(cls.__annotations__)


def together(name: str, *parts: tuple[str, type]) -> type:
    """Registers a record that has the fields of several records, each with its prefix."""
    fields = [(prefix + field, kind) for prefix, part in parts for field, kind in part.__annotations__.items()]
    return record(make_dataclass(name, fields))


def types_of(cls: type) -> list[tuple[str, str]]:
    """The name of each field, and the type of its column."""
    return [(name, _SQL_TYPES.get(_plain(kind), "text")) for name, kind in cls.__annotations__.items()]


@cache
def maker_of(cls: Any) -> Make:
    """Builds a record from a row that has its fields in the same order."""
    changed = [(at, change) for at, kind in enumerate(cls.__annotations__.values()) if (change := _change(kind))]
    if changed:

        def make(row: Any) -> Any:
            values = list(row)
            for at, change in changed:  # by position, because both lists are made of the same fields
                if values[at] is not None:
                    values[at] = change(values[at])
            return cls(*values)

        return make
    known: Make | None = getattr(cls, "_make", None)
    return known or (lambda row: cls(*row))


def read_row(cls: type[T], row: Mapping[str, Any]) -> T:
    """Builds a record by name from a row that has more columns than the record has fields."""
    known: Any = cls
    made: T = maker_of(known)([row[name] for name in fields_of(cls)])
    return made


def _plain(kind: Any) -> Any:
    """A type without its None."""
    some = [part for part in get_args(kind) if part is not NoneType]
    return some[0] if NoneType in get_args(kind) else kind


def _change(kind: Any) -> Callable[[Any], Any] | None:
    plain = _plain(kind)
    if plain is bool or (isinstance(plain, type) and issubclass(plain, Enum)):
        found: Callable[[Any], Any] = plain
        return found
    return _CHANGES.get(plain)


def _names(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def _names_with(text: str) -> dict[str, str]:
    """Names with their values; a bare list of names has none."""
    told = json.loads(text)
    return told if isinstance(told, dict) else {}


_CHANGES: Final[Mapping[Any, Callable[[Any], Any]]] = {
    tuple[str, ...]: _names,
    Mapping[str, str]: _names_with,
    tuple[Call, ...]: load_calls,
}
