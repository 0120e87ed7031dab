"""Examples as they are run: imported afresh, each with a database of its own."""

import importlib.util
import sys
from types import ModuleType

import pytest

from tests.house.sources import ROOT


def example(name: str, database_url: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module `examples/NAME.py` on a database."""
    monkeypatch.setenv("SHOP_DATABASE", database_url)
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module
