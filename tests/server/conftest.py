"""A running service for every test that takes one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.databases import fresh_database
from tests.server.receiver import Receiver, receiving
from tests.server.rig import Rig, rigged

database_url = fresh_database("sqlite", later="postgres")


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """Someone outside who is told things."""
    async with receiving() as made:
        yield made


@pytest.fixture
async def rig(database_url: str, tmp_path: Path) -> AsyncIterator[Rig]:
    """On each kind of database; `rig.work()` does what was submitted."""
    async with rigged(database_url, tmp_path / "data") as made:
        yield made


@pytest.fixture
async def sqlite_rig(sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[Rig]:
    """As `rig`, for tests in which the kind of database plays no part."""
    async with rigged(sqlite_file_url, tmp_path / "data") as made:
        yield made
