"""A shell for the tests of the commands: a folder, an application, a fresh database."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.practice_thread import variables
from tests.cli.shell import APP, Shell
from tests.databases import fresh_database

database_url = fresh_database("sqlite", later="postgres")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder of its own, with nothing of the user's around it."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "shop.py").write_text(APP)
    monkeypatch.chdir(work)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("BACKSTAY_APP", "BACKSTAY_DEBUG", "NO_COLOR", *variables()):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    importlib.invalidate_caches()
    yield work
    for name in ("shop", "broken"):
        sys.modules.pop(name, None)


@pytest.fixture
def shell(
    folder: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """On both databases."""
    monkeypatch.setenv("BACKSTAY_DATABASE_URL", database_url)
    return Shell(folder, database_url, capsys)


@pytest.fixture
def sqlite_shell(
    folder: Path, sqlite_file_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """For what the kind of database has no part in."""
    monkeypatch.setenv("BACKSTAY_DATABASE_URL", sqlite_file_url)
    return Shell(folder, sqlite_file_url, capsys)
