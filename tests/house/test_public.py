"""The public face is exactly what it says it is, and every setting is written down."""

import ast
from dataclasses import fields
from pathlib import Path

import pytest

import backstay
from backstay.core.bounds import PROFILES
from backstay.core.limits import Limits
from backstay.settings import Settings

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
