"""While the database is away every request is told so, in order, and the log is not filled with it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import aiohttp
import pytest

from backstay import wiring
from backstay.core.errors import DatabaseUnreachable
from tests.server.openai.openai_rig import requests
from tests.server.rig import Rig, rigged
from tests.servers.postgres import PrivatePostgres

JOB = {"handler": "echo", "items": [{"n": 1}]}
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"


def asked() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Requests that all would be answered well."""
    yield "GET", "/api/jobs", {}
    yield "POST", "/api/jobs", {"json": JOB}
    yield "POST", "/api/jobs", {"json": JOB, "headers": {"idempotency-key": "k"}}
    yield "GET", "/v1/batches", {}
    form = aiohttp.FormData({"purpose": "batch"})
    form.add_field("file", requests(3), filename="requests.jsonl")
    yield "POST", "/v1/files", {"data": form}


def rows(server: PrivatePostgres, url: str) -> dict[str, str]:
    """How many rows each table has."""
    name = url.rpartition("/")[2]
    return {
        table: server.execute(f"SELECT count(*) FROM {table}", name)
        for table in server.execute(TABLES, name).splitlines()
    }


@pytest.mark.slow
async def test_while_the_database_is_away_every_request_is_a_503_and_nothing_is_done(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether or not the service knows the key from before."""
    data = tmp_path / "data"
    with PrivatePostgres() as server:
        url = server.create_database()
        await wiring.migrate(url)
        async with rigged(url, data) as rig:
            assert (await rig.ada.get("/api/jobs")).status == 200
            before = rows(server, url), sorted(data.rglob("*"))
            await asyncio.to_thread(server.kill9)
            caplog.clear()
            for visitor in (rig.ada, rig.bob):
                for method, path, given in asked():
                    reply = await visitor(method, path, **given)
                    assert (reply.status, reply.headers.get("retry-after")) == (503, "1"), (path, reply)
                    assert reply.headers["x-request-id"]
                    assert "error" in reply.json if path.startswith("/v1") else reply.json["code"] == "IO_ERROR"
            assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
            await asyncio.to_thread(server.restart)
            assert (rows(server, url), sorted(data.rglob("*"))) == before
            for method, path, given in asked():
                assert (await rig.ada(method, path, **given)).status in (200, 201), path


@pytest.fixture
async def rig(sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(sqlite_file_url, tmp_path / "data") as made:
        yield made


async def away(*_: Any, **__: Any) -> NoReturn:
    raise DatabaseUnreachable("gone")


async def test_an_idempotency_key_that_cannot_be_given_back_changes_no_answer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rig.service.store.replies, "give", away)
    with caplog.at_level(logging.ERROR):
        reply = await rig.ada.post("/api/webhooks", json={}, headers={"idempotency-key": "k"})
    assert reply.status == 422
    assert caplog.records == []
