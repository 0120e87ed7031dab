"""Values of rows as plain ones: text, numbers, true and false, nothing, lists, objects and bytes."""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any
from uuid import UUID


class NotPlain(ValueError):
    """A value that cannot be part of a row, as a phrase: "a value of the type socket"."""


def plain_value(value: Any) -> Any:
    """The value as text, number, bool, None, list, dict or bytes. NaN, NaT and NA are nothing: None."""
    if value is None or type(value) in (str, int, bool, bytes):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    match value:
        case Enum():
            return plain_value(value.value)
        case str() | bytes():
            return str(value) if isinstance(value, str) else bytes(value)
        case int():
            return int(value)
        case Mapping():
            return {_name_of(name): plain_value(each) for name, each in value.items()}
        case Set() | Sequence():
            return [plain_value(each) for each in (sorted(value, key=str) if isinstance(value, Set) else value)]
        case _:
            return _foreign_value(value)


def _foreign_value(value: Any) -> Any:
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
        return {field.name: plain_value(getattr(value, field.name)) for field in fields(value)}
    if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):  # a Pydantic model
        return plain_value(dump())
    if callable(listed := getattr(value, "tolist", None)):  # NumPy's arrays and numbers, pandas' columns
        found = listed()
        return plain_value(found) if type(found) is not type(value) else found
    raise NotPlain(f"a value of the type {type(value).__name__}")


def _name_of(name: Any) -> str:
    return name if type(name) is str else str(plain_value(name))
