"""The example of Flask, with Flask's own client."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.integrations.programs import example


@pytest.fixture
def shop(sqlite_file_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    made = example("flask_app", sqlite_file_url, monkeypatch)
    yield made
    made.sync_backstay().close()


def test_a_route_submits_a_job_and_another_shows_its_results(shop: ModuleType) -> None:
    visitor = shop.app.test_client()
    made = visitor.post("/summaries", json=["a text that is far too long", "short"])
    assert made.status_code == 202
    job = made.json["job"]
    assert visitor.get(f"/summaries/{job}").json == {"state": "queued", "texts": []}
    with shop.sync_backstay().working():
        shop.sync_backstay().job(job).wait(timeout_seconds=30)
    assert visitor.get(f"/summaries/{job}").json == {"state": "completed", "texts": ["a text that is far t", "short"]}
    assert visitor.get("/summaries/999").status_code == 404
