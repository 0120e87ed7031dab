"""The example of FastAPI, on a real server: it submits, shows, and carries the API and the dashboard."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.integrations.programs import example
from tests.server.rig import served


@pytest.fixture
async def visitor(sqlite_file_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[aiohttp.ClientSession]:
    shop = example("fastapi_app", sqlite_file_url, monkeypatch)
    async with served(shop.app) as address, aiohttp.ClientSession(address) as session:
        yield session


async def read(visitor: aiohttp.ClientSession, path: str, status: int = 200) -> str:
    async with visitor.get(path, headers={"accept": "text/html"}) as answer:
        assert answer.status == status, path
        return await answer.text()


async def test_a_route_submits_a_job_and_another_shows_its_results(visitor: aiohttp.ClientSession) -> None:
    async with visitor.post("/summaries", json=["a text that is far too long", "short"]) as answer:
        assert answer.status == 202
        job = (await answer.json())["job"]
    async with asyncio.timeout(30):
        while True:
            async with visitor.get(f"/summaries/{job}") as answer:
                shown = await answer.json()
            if shown["done"] == shown["of"]:
                break
            await asyncio.sleep(0.02)
    assert shown == {"state": "completed", "done": 2, "of": 2, "texts": ["a text that is far t", "short"]}
    assert "no job 999" in await read(visitor, "/summaries/999", 404)

    async with visitor.get(f"/backstay/api/jobs/{job}") as answer:
        assert (await answer.json())["succeeded"] == 2
    assert f'href="/backstay/jobs/{job}"' in await read(visitor, "/backstay/jobs")
    assert "Job" in await read(visitor, "/backstay")  # leads to the home page
