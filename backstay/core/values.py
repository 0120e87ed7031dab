"""Turns the values of rows into plain ones: text, numbers, bools, None, lists, dicts and bytes."""

import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Final
from uuid import UUID

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
LEVELS_MAX: Final = 128  # as in a line of JSON; a value that contains itself has more


class NotPlain(ValueError):
    """A value that cannot be part of a row. The message is a noun phrase: "a value of the type socket"."""


def is_unicode(text: str) -> bool:
    """Whether a text can be written in UTF-8. Texts that Python made of other bytes, with `surrogateescape`, cannot."""
    return text.isascii() or _SURROGATE.search(text) is None


def plain_value(value: Any, levels: int = LEVELS_MAX) -> Any:
    """The value as text, number, bool, None, list, dict or bytes. NaN, NaT and NA become None."""
    if type(value) is str:
        if not is_unicode(value):
            raise NotPlain("a text that is not Unicode")
        return value
    if value is None or type(value) in (int, bool, bytes):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if levels < 0:
        raise NotPlain(f"a value that is nested more than {LEVELS_MAX} levels deep")
    match value:
        case Enum():
            return plain_value(value.value, levels - 1)
        case str() | bytes():
            return plain_value(str(value)) if isinstance(value, str) else bytes(value)
        case int():
            return int(value)
        case Mapping():
            return {_name_of(name): plain_value(each, levels - 1) for name, each in value.items()}
        case Set() | Sequence():
            each_in = sorted(value, key=str) if isinstance(value, Set) else value
            return [plain_value(each, levels - 1) for each in each_in]
        case _:
            return _foreign_value(value, levels - 1)


def _foreign_value(value: Any, levels: int) -> Any:
    if type(value).__name__ in ("NaTType", "NAType"):  # pandas' own words for nothing
        return None
    if isinstance(value, Decimal):
        return None if value.is_nan() else str(value)
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID | Fraction) or hasattr(value, "__fspath__"):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_value(getattr(value, field.name), levels) for field in fields(value)}
    if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):  # a Pydantic model
        return plain_value(dump(), levels)
    if callable(listed := getattr(value, "tolist", None)):  # NumPy's arrays and numbers, pandas' columns
        found = listed()
        return plain_value(found, levels) if type(found) is not type(value) else found
    raise NotPlain(f"a value of the type {type(value).__name__}")


def _name_of(name: Any) -> str:
    return str(plain_value(name))
