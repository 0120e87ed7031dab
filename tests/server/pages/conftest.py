"""One browser for all tests that need one. It lives in the session's event loop, and so does what it looks at."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from playwright.async_api import Browser

from tests.server.pages.browser import opened
from tests.server.rig import Rig, rigged


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with opened() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def watched_rig(sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[Rig]:
    """A service that does no work itself, for a browser to look at."""
    async with rigged(sqlite_file_url, tmp_path / "data") as made:
        yield made
