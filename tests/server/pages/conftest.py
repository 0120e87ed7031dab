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
async def watched_rig(browser: Browser, sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[Rig]:
    """A service that does no work itself, for a browser to look at. Its pages are closed before it ends: an open page
    would ask for news for ever, and so ask the next test's server on that port."""
    async with rigged(sqlite_file_url, tmp_path / "data") as made:
        try:
            yield made
        finally:
            for context in browser.contexts:
                await context.close()
