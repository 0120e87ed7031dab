"""Artifacts in a folder and in S3: what is promised of one is promised of the other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from backstay.artifacts import Artifacts, artifacts_at
from backstay.clock import new_id
from tests.servers.s3 import BUCKET, PrivateS3


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
def artifacts(place: str) -> Artifacts:
    return artifacts_at(place)
