"""Artifacts in a folder and in S3: what is promised of one is promised of the other."""

import pytest

from backstay.artifacts import Artifacts, artifacts_at


@pytest.fixture
def artifacts(place: str) -> Artifacts:
    return artifacts_at(place)
