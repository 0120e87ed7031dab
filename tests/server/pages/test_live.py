"""The stream behind a page says when to look again, to those who may see it and as long as they may."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from backstay.server.pages import layout
from backstay.store.keys import Role
from tests.server.pages.reader import Reader, reader
from tests.server.rig import Rig


@asynccontextmanager
async def watching(found: Reader, path: str) -> AsyncIterator[aiohttp.StreamReader]:
    cookie = "; ".join(f"{name}={value}" for name, value in found.cookies.items())
    async with found.rig.holder(None).opened("GET", path, headers={"cookie": cookie}) as answer:
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert await _event(answer.content) == "hello"
        yield answer.content


async def looked(rig: Rig, times: int) -> None:
    """Returns when the service has looked that often again for those who watch."""
    until = rig.service.lookout._looks + times
    async with asyncio.timeout(10):
        while rig.service.lookout._looks < until:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)


async def _event(stream: aiohttp.StreamReader) -> str | None:
    """The name of the next event; None when the stream has ended."""
    async with asyncio.timeout(15):
        async for line in stream:
            if line.startswith(b"event: "):
                return line[7:].strip().decode()
    return None


async def test_a_change_is_told_once_it_is_there(rig: Rig) -> None:
    job = await rig.submit("echo", [{"n": 1}, {"n": 2}])
    async with watching(await reader(rig), f"/live?job={job}") as stream:
        assert await _event(stream) == "changed"
        await rig.work()
        assert await _event(stream) == "changed"
    async with asyncio.timeout(10):
        while len(rig.service.lookout):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)


async def test_what_ended_between_page_and_stream_is_told(sqlite_rig: Rig) -> None:
    job, found = await sqlite_rig.submit("echo"), await reader(sqlite_rig)
    assert "queued" in (await found.held(f"/jobs/{job}")).text
    await sqlite_rig.work()
    async with watching(found, f"/live?job={job}") as stream:
        assert await _event(stream) == "changed"
        assert "completed" in (await found.held(f"/jobs/{job}?part=live")).text


async def test_what_is_anothers_never_changes(sqlite_rig: Rig) -> None:
    job = await sqlite_rig.submit("echo")
    bob = await reader(sqlite_rig, "bob")
    async with watching(bob, f"/live?job={job}") as stream:
        assert await _event(stream) == "changed", "as of one that never was"
        await sqlite_rig.work()
        await looked(sqlite_rig, 2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await _event(stream)


async def test_the_stream_of_a_revoked_key_ends(sqlite_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "KEY_SECONDS", 0.1)
    found = await reader(sqlite_rig, "ada", Role.READ)
    async with watching(found, "/live") as stream:
        await sqlite_rig.service.store.keys.revoke(sqlite_rig.keys["ada", Role.READ].split("_")[1], "ada")
        assert await _event(stream) is None


async def test_a_stranger_and_nonsense_are_refused(sqlite_rig: Rig) -> None:
    assert (await Reader(sqlite_rig).get("/live?job=1")).status == 303
    assert (await (await reader(sqlite_rig)).get("/live?job=x")).status == 404
