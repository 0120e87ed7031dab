"""Heads of requests that are too long, or never come to their end, are not waited for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from backstay.server import app as heads
from tests.server.rig import Rig, rigged

HEAD = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
WAIT_SECONDS = 30


@pytest.fixture
async def rig(sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(sqlite_file_url, tmp_path / "data") as made:
        yield made


async def heard(rig: Rig, *pieces: bytes) -> bytes:
    """All that comes back until the connection is closed."""
    place = urlsplit(rig.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    said = b""
    with suppress(ConnectionError):  # cut off while it was still sending
        async with asyncio.timeout(WAIT_SECONDS):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            while chunk := await reader.read(1_000):
                said += chunk
    writer.close()
    return said


BODY = HEAD.replace(b"GET", b"POST") + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"


@pytest.mark.parametrize("begun", [HEAD, BODY], ids=["head", "trailer"])
async def test_a_head_or_trailer_without_an_end_is_cut_off(rig: Rig, begun: bytes) -> None:
    said = await heard(rig, begun + b"X-Long: ", *[b"a" * 100_000] * 100)
    assert said == b"" or said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 405"))


@pytest.mark.parametrize("pieces", [[], [HEAD], [HEAD + b"\r\n", HEAD]], ids=["nothing", "half", "half of a second"])
async def test_a_head_that_does_not_come_is_not_waited_for(
    rig: Rig, pieces: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "HEAD_SECONDS", 0.2)
    said = await heard(rig, *pieces)
    assert said.count(b"HTTP/1.1 200") == max(len(pieces) - 1, 0)


async def test_a_head_of_a_good_length_is_read_whole(rig: Rig) -> None:
    said = await heard(rig, HEAD, b"X-Long: " + b"a" * 30_000, b"\r\nConnection: close\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 200")
