"""While the database is away every request is told so, in order, and the log is not filled with it."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from backstay.core.errors import DatabaseUnreachable
from tests.server.rig import Rig, rigged


@pytest.fixture
async def rig(sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(sqlite_file_url, tmp_path / "data") as made:
        yield made


async def away(*_: Any, **__: Any) -> NoReturn:
    raise DatabaseUnreachable("gone")


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/api/jobs"), ("POST", "/api/webhooks"), ("POST", "/v1/files"), ("GET", "/v1/batches")]
)
async def test_a_key_that_cannot_be_looked_up_is_a_503_and_no_error_of_the_service(
    rig: Rig, method: str, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rig.service.ring, "find", away)
    with caplog.at_level(logging.ERROR):
        reply = await rig.ada(method, path)
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert reply.headers["x-request-id"]
    assert "error" in reply.json if path.startswith("/v1") else reply.json["code"] == "IO_ERROR"
    assert caplog.records == []


async def test_an_idempotency_key_that_cannot_be_given_back_changes_no_answer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rig.service.store.replies, "give", away)
    with caplog.at_level(logging.ERROR):
        reply = await rig.ada.post("/api/webhooks", json={}, headers={"idempotency-key": "k"})
    assert reply.status == 422
    assert caplog.records == []
