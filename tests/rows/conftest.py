"""A practice provider, and the options that send rows there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backstay.practice import Practice
from backstay.rows.options import MapOptions
from tests.cli.practice_thread import served, variables
from tests.databases import fresh_database

database_url = fresh_database("sqlite", later="postgres")


class RowSite:
    """A provider with its bill, and the options of a call to it."""

    def __init__(self, practice: Practice, base_url: str, db: str) -> None:
        self.practice = practice
        self.options: MapOptions = {
            "model": "gpt-4o-mini",
            "base_url": base_url,
            "db": db,
            "price": "0.15/0.60",
            "progress": False,
        }

    @property
    def paid(self) -> int:
        """How many calls the provider has charged."""
        return self.practice.bill.charged

    def with_options(self, **more: Any) -> MapOptions:
        return {**self.options, **more}  # type: ignore[typeddict-item]


@pytest.fixture(autouse=True)
def clean_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of its own, with nothing of the user's around it."""
    for name in ("BACKSTAY_APP", "BACKSTAY_DATABASE_URL", *variables()):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-practice")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def site(database_url: str) -> Iterator[RowSite]:
    with served() as (practice, base_url):
        yield RowSite(practice, base_url, database_url)
