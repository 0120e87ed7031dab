"""Bodies that are held in memory: not a stranger's, not too large a one, and not one that never ends."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backstay.server import bounded
from tests.server.rig import Rig, rigged
from tests.server.senders import MEGABYTE, endless, send

JSON = "application/json"
PATHS = ("/api/webhooks", "/api/dead-letters/replay", "/api/providers/x/hold", "/v1/batches", "/v1/webhook_endpoints")


@pytest.fixture
async def rig(sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(sqlite_file_url, tmp_path / "data") as made:
        yield made


def key_of(rig: Rig) -> dict[str, str]:
    return {"authorization": f"Bearer {rig.ada.key}"}


@pytest.mark.parametrize("path", PATHS)
async def test_a_stranger_is_refused_before_his_body_is_read(rig: Rig, path: str) -> None:
    heard = await send(rig.url, path, b"{", length=MEGABYTE, content_type=JSON)  # of which the rest never comes
    assert heard.status == 401


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_without_an_end_is_cut_off(rig: Rig, path: str) -> None:
    sent = endless(b"[", b" " * MEGABYTE, 100)
    heard = await send(rig.url, path, sent, key_of(rig), content_type=JSON)
    assert heard.status in (413, 0)  # who goes on sending may be cut off before he has read why
    assert heard.sent_bytes < 50 * MEGABYTE


async def test_a_body_that_does_not_come_is_not_waited_for(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "READ_SECONDS", 0.1)
    heard = await send(rig.url, "/api/webhooks", b"{", key_of(rig), length=100, content_type=JSON)
    assert heard.status == 408
