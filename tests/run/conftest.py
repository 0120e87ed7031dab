"""The file that the tests of results write to."""

from pathlib import Path

import pytest

from tests.databases import fresh_database

database_url = fresh_database("sqlite", later="postgres")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"
