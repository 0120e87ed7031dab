"""Every major of OpenAI's client, sync, async and Azure's, unmodified, with strict validation of what we answer."""

from pathlib import Path

import pytest

from backstay.store.keys import Role
from tests.clients import visit
from tests.server.openai.openai_rig import Desk

pytestmark = pytest.mark.slow

VISIT = Path(__file__).with_name("visit.py")


@pytest.mark.parametrize("kind", ["sync", "async", "azure"])
@pytest.mark.parametrize("major", [1, pytest.param(2, marks=pytest.mark.slow), 3])
async def test_an_unmodified_client_does_all_it_does_with_openai(sqlite_desk: Desk, major: int, kind: str) -> None:
    desk = sqlite_desk
    seen = await visit(VISIT, "openai", major, kind, desk.rig.url, desk.rig.keys["ada", Role.WRITE])
    names = [f"request-{i}" for i in range(5)]
    assert seen == {
        "statuses": ["completed"] * 4,
        "completed": [5] * 4,
        "names": names,
        "same": [True] * 4,
        "lives": 3600,
        "listed": True,
        "files": 8,
        "models": True,
        "conflict": ["ConflictError", 409, None, None, True, False],
        "missing": ["NotFoundError", 404, None, None, True, False],
        "wrong": ["BadRequestError", 400, "invalid_value", "endpoint", True, False],
        "failed": [
            ["invalid_json_line", 2, None],
            ["invalid_url", 3, "url"],
            ["duplicate_custom_id", 4, "custom_id"],
        ],
        "partly": ["completed", "request-1", 400, None],
        "more": [True, False],
        "deleted": True,
    }
