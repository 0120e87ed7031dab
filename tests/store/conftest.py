"""The scene that the store's tests play on."""

from collections.abc import AsyncIterator

import pytest

from tests.databases import Site
from tests.store.store_rig import Scene


@pytest.fixture
async def scene(site: Site) -> AsyncIterator[Scene]:
    made = Scene(site)
    await made.store.open()
    yield made
    await made.store.close()
