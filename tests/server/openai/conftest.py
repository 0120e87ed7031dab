"""A service with a provider behind it, for every test that takes one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.openai.openai_rig import Desk, opened


@pytest.fixture
async def desk(database_url: str, tmp_path: Path) -> AsyncIterator[Desk]:
    """On each kind of database."""
    async with opened(database_url, tmp_path / "data") as made:
        yield made


@pytest.fixture
async def sqlite_desk(sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[Desk]:
    """As `desk`, for tests in which the kind of database plays no part."""
    async with opened(sqlite_file_url, tmp_path / "data") as made:
        yield made


@pytest.fixture
async def strict_desk(sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[Desk]:
    async with opened(sqlite_file_url, tmp_path / "data", strict_openai=True) as made:
        yield made
