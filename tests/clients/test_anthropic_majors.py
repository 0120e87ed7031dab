"""The newest majors of Anthropic's client, unmodified and strict, at the practice provider and at the service."""

from pathlib import Path
from typing import Any

import pytest

from backstay.app import Backstay
from backstay.llm.endpoint import Endpoint
from backstay.practice import Faults, Practice
from backstay.server.service import ServiceOptions
from backstay.store.keys import Role
from tests.clients import visit
from tests.server.rig import rigged

pytestmark = pytest.mark.slow

VISIT = Path(__file__).with_name("anthropic_visit.py")
KEY = "sk-ant-practice-0123"
INVALID = ["BadRequestError", 400, "invalid_request_error", True]
BATCHES: dict[str, Any] = {
    "stranger": ["AuthenticationError", 401, "authentication_error", True],
    "counts": {"succeeded": 5, "errored": 1, "processing": 0, "canceled": 0, "expired": 0},
    "texts": ["0", "1", "2", "3", "4"],
    "errored": ["errored", "not_found_error"],
    "listed": True,
    "cancelled": INVALID,
    "twice": INVALID,
    "empty": INVALID,
    "deleted": "message_batch_deleted",
    "gone": ["NotFoundError", 404, "not_found_error", True],
}


@pytest.mark.parametrize("major", [1, 2])
async def test_an_unmodified_client_does_all_it_does_with_anthropic(major: int) -> None:
    practice = Practice(Faults(key=KEY, rpm=1_000, batch_seconds=0.05))
    async with practice.serving() as base_url:
        seen = await visit(VISIT, "anthropic", major, "practice", base_url.removesuffix("/v1"), KEY)
    assert seen == {
        **BATCHES,
        "text": True,
        "counted": True,
        "remaining": "999",
        "models": ["claude-practice", "claude-practice-mini"],
        "busy": ["OverloadedError", 529, "overloaded_error", True],
        "limited": ["RateLimitError", 429, "rate_limit_error", True],
        "stream": INVALID,
    }
    assert practice.bill.charged == 7


@pytest.mark.parametrize("major", [1, 2])
async def test_an_unmodified_client_has_its_batches_here(sqlite_file_url: str, tmp_path: Path, major: int) -> None:
    practice = Practice(Faults())
    async with practice.serving() as base_url:
        upstream = Endpoint(base_url, key_env="ANTHROPIC_API_KEY", api="anthropic")
        options = ServiceOptions(upstream=upstream, concurrency=20)
        async with rigged(sqlite_file_url, tmp_path / "data", Backstay(sqlite_file_url), options) as rig:
            key = rig.keys["ada", Role.WRITE]
            assert await visit(VISIT, "anthropic", major, "service", rig.url, key) == BATCHES
    assert practice.bill.charged == 6
