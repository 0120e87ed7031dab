"""The public face is exactly what it says it is, and every setting is written down."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import backstay
from backstay.app import AppSchedules
from backstay.core.limits import PROFILES, Limits
from backstay.settings import Settings
from backstay.sync import SyncSchedules

ROOT = Path(__file__).parents[2]
SETTINGS = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")


def test_every_public_name_can_be_imported():
    assert [name for name in backstay.__all__ if getattr(backstay, name, None) is None] == []


def test_public_names_are_sorted_and_typed_as_they_are_loaded():
    tree = ast.parse((ROOT / "backstay" / "__init__.py").read_text(encoding="utf-8"))
    typed = {
        alias.name
        for block in tree.body
        if isinstance(block, ast.If)
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed | {"__version__"} == set(backstay.__all__)
    assert len(backstay.__all__) == len(set(backstay.__all__))


INNER = {"Client", "Flaw", "MissedPolicy", "Register", "Worker"}  # texts, and what only Backstay's own parts use


def types_in(hint: Any) -> Iterator[str]:
    if inspect.isclass(hint) and hint.__module__.startswith("backstay"):
        yield hint.__name__
    for part in get_args(hint):
        yield from types_in(part)


def types_of(kind: type) -> Iterator[str]:
    """Those of its fields, and those that its methods and properties return."""
    for hint in get_type_hints(kind).values():
        yield from types_in(hint)
    for name, member in inspect.getmembers(kind):
        called = member.fget if isinstance(member, property) else member
        if inspect.isfunction(called) and not name.startswith("_"):
            yield from types_in(get_type_hints(called).get("return"))


def test_whatever_public_methods_return_is_public():
    kinds = [getattr(backstay, name) for name in backstay.__all__ if inspect.isclass(getattr(backstay, name))]
    found = {name for kind in [*kinds, AppSchedules, SyncSchedules] for name in types_of(kind)}
    assert found - set(backstay.__all__) - INNER == set()


def test_an_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError):
        _ = backstay.no_such_name


def test_every_setting_and_every_bound_is_documented():
    names = [*Settings.model_fields, *(field.name for field in fields(Limits))]
    assert [name for name in names if f"`{name}`" not in SETTINGS] == []


def test_the_documented_bounds_are_those_of_the_balanced_profile():
    assert PROFILES["balanced"] == Limits()
    rows = [line for line in SETTINGS.splitlines() if line.startswith("| `") and "_seconds`" in line]
    for row in rows:
        names, defaults = (cell.strip() for cell in row.split("|")[1:3])
        for name, default in zip(names.split(", "), defaults.split(", "), strict=True):
            if name.strip("`") in Limits.__slots__:
                assert float(default) == getattr(Limits(), name.strip("`")), name
