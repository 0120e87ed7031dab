"""Dead letters on both kinds of databases, with archives in a folder and in S3."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from backstay.artifacts import Artifacts, artifacts_at
from backstay.clock import new_id
from tests.letters.desk import Desk
from tests.servers.s3 import BUCKET, PrivateS3
from tests.sites import Site
from tests.store.scene import Scene


@pytest.fixture(scope="session")
def s3() -> Iterator[PrivateS3]:
    with PrivateS3().running() as running:
        yield running


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "folder":
        return str(tmp_path / "data")
    for name, value in request.getfixturevalue("s3").environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{new_id()}"


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
