"""Every major of OpenAI's client, sync, async and Azure's, unmodified, with strict validation of what we answer."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from backstay.store.keys import Role
from tests.server.openai.desk import Desk
from tests.server.openai.majors import python_path

pytestmark = pytest.mark.slow

VISIT = Path(__file__).with_name("visit.py")


async def _visit(desk: Desk, major: int, kind: str) -> dict[str, Any]:
    path = await asyncio.to_thread(python_path, major)
    key = desk.rig.keys["ada", Role.WRITE]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(VISIT),
        kind,
        desk.rig.url,
        key,
        env={**os.environ, "PYTHONPATH": path},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        said, wrong = await process.communicate()
    assert process.returncode == 0, wrong.decode()
    seen: dict[str, Any] = json.loads(said)
    return seen


@pytest.mark.parametrize("kind", ["sync", "async", "azure"])
@pytest.mark.parametrize("major", [1, pytest.param(2, marks=pytest.mark.slow), 3])
async def test_an_unmodified_client_does_all_it_does_with_openai(sqlite_desk: Desk, major: int, kind: str) -> None:
    seen = await _visit(sqlite_desk, major, kind)
    assert seen.pop("version").startswith(f"{major}.")
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
