"""Rigs: the real engine on both databases, or on SQLite where the database plays no part."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.databases import Site
from tests.engine.rig import Rig

MakeRig = Callable[..., Any]


@pytest.fixture
def make_rig(leaping_site: Site) -> MakeRig:
    async def make(**limits: Any) -> Rig:
        return Rig(leaping_site, await leaping_site.open_store(), **limits)

    return make


@pytest.fixture
def make_sqlite_rig(sqlite_site: Site) -> MakeRig:
    async def make(**limits: Any) -> Rig:
        return Rig(sqlite_site, await sqlite_site.open_store(), **limits)

    return make
