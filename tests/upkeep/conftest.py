"""Dead letters on both kinds of databases, with archives in a folder and in S3."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backstay.artifacts import Artifacts, artifacts_at
from tests.databases import Site
from tests.store.store_rig import Scene
from tests.upkeep.upkeep_rig import Desk


@pytest.fixture
def artifacts(tmp_path: Path) -> Artifacts:
    return artifacts_at(str(tmp_path / "data"))


@pytest.fixture
async def scene(site: Site) -> AsyncIterator[Scene]:
    made = Scene(site)
    await made.store.open()
    yield made
    await made.store.close()


@pytest.fixture
def desk(scene: Scene, artifacts: Artifacts) -> Desk:
    """On each kind of database, with archives in a folder."""
    return Desk(scene, artifacts)


@pytest.fixture
def far_desk(scene: Scene, place: str) -> Desk:
    """As `desk`, with archives in a folder and in S3."""
    return Desk(scene, artifacts_at(place))
