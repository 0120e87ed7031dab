"""The log on an item's page: its beginning, as it was said, and a page without it when it cannot be read."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backstay.artifacts import artifacts_at
from backstay.core.ids import read_item
from backstay.observe.logs import place_of
from backstay.server.pages.item import LOG_BYTES_SHOWN
from tests.server.pages.reader import reader
from tests.server.test_logs import talked
from tests.servers.s3 import PrivateS3


async def test_the_beginning_of_a_long_log_is_shown(sqlite_file_url: str, tmp_path: Path) -> None:
    async def more() -> AsyncIterator[bytes]:
        yield b"x" * LOG_BYTES_SHOWN

    async with talked(sqlite_file_url, tmp_path / "data", [{"say": '{"a": 1}'}]) as (rig, job):
        found, path = await reader(rig), f"/items/{job}-0"
        short = await found.held(path)
        await rig.service.artifacts.put(f"{place_of(read_item(f'{job}-0'))}/zzz", more())
        long = await found.held(path)
    assert 'said {"a": 1}' in short.text
    assert "This is the beginning" not in short.text
    assert "xxx This is the beginning. The whole log" in long.text


async def test_an_item_is_shown_while_the_place_for_files_does_not_answer(
    sqlite_file_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    async with talked(sqlite_file_url, tmp_path / "data", [{"say": "far away"}]) as (rig, job):
        for name, value in PrivateS3().environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{unused_tcp_port}")
        monkeypatch.setattr(rig.service, "artifacts", artifacts_at("s3://some-bucket/prefix"))
        page = await (await reader(rig)).held(f"/items/{job}-0")
    assert "Call 1: succeeded" in page.text
    assert "the file storage does not answer" in page.text
