"""Details are read once for each version, shared where there is Redis, and never older than the database."""

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from backstay.core.errors import DatabaseUnreachable
from backstay.core.ids import read_item
from backstay.server import cache
from backstay.server.cache import ReadCoalescer
from tests.server.rig import Rig, rigged
from tests.servers.redis import PrivateRedis

BOTH = {"include": ["payload", "result"]}


class Office:
    """A database with items that have ended, any number of services on it, and a way to tell what is read anew."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder

    def service(self, **settings: Any) -> AbstractAsyncContextManager[Rig]:
        return rigged(self._url, self._folder, **settings)

    def plant(self, word: str) -> None:
        """Writes other results into the database behind everybody's back, under the versions that there are."""
        with sqlite3.connect(self._url.removeprefix("sqlite:///"), timeout=20) as connection:
            connection.execute("UPDATE attempts SET result = ?", (f'"{word}"',))
        connection.close()


@pytest.fixture
def office(sqlite_file_url: str, tmp_path: Path) -> Office:
    return Office(sqlite_file_url, tmp_path / "data")


@pytest.fixture
def redis() -> Iterator[PrivateRedis]:
    with PrivateRedis() as server:
        yield server


async def ended(rig: Rig, count: int = 1, item: Any = "first") -> list[str]:
    """Items whose results say what they were given."""
    job = await rig.submit("echo", [item] * count)
    await rig.work()
    return [f"{job}-{position}" for position in range(count)]


async def result(rig: Rig, item: str) -> Any:
    reply = await rig.ada.get(f"/api/items/{item}", params=BOTH)
    assert reply.status == 200, reply
    return reply.json["result"]


async def test_details_are_read_once_as_long_as_their_item_is_as_it_was(office: Office) -> None:
    async with office.service() as rig:
        [item] = await ended(rig)
        assert await result(rig, item) == "first"
        office.plant("second")
        assert await result(rig, item) == "first"


async def test_a_change_of_an_item_is_seen_at_once(office: Office) -> None:
    async with office.service() as rig:
        job = await rig.submit("fail_as_told", [{"code": "GW_4XX"}])
        await rig.work()
        path = f"/api/items/{job}-0"
        assert (await rig.ada.get(path, params=BOTH)).json["state"] == "failed"
        await rig.ada.post(f"{path}/retry")
        assert (await rig.ada.get(path, params=BOTH)).json["state"] == "queued"


async def test_what_is_not_found_is_not_kept(office: Office) -> None:
    async with office.service() as rig:
        [item] = await ended(rig)
        following = f"{(read_item(item) >> 28) + 1}-0"
        assert (await rig.ada.get(f"/api/items/{following}", params=BOTH)).status == 404
        assert await ended(rig) == [following]
        assert await result(rig, following) == "first"


async def test_no_seconds_means_no_cache(office: Office) -> None:
    async with office.service(cache_seconds=0) as rig:
        [item] = await ended(rig)
        assert await result(rig, item) == "first"
        office.plant("second")
        assert await result(rig, item) == "second"


async def test_memory_is_bounded_and_what_was_asked_for_longest_ago_goes(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "HERE_BYTES_MAX", 60_000)
    monkeypatch.setattr(cache, "DETAIL_BYTES_MAX", 40_000)
    async with office.service() as rig:
        one, two, three = await ended(rig, 3, "x" * 10_000)  # about 20,000 bytes each, with the payload
        [large] = await ended(rig, 1, "x" * 30_000)
        for item in (one, two, one, three, large):
            await result(rig, item)
        office.plant("second")
        assert [await result(rig, item) == "second" for item in (one, three, two, large)] == [False, False, True, True]


async def test_servers_share_what_was_read_until_its_time_is_over(office: Office, redis: PrivateRedis) -> None:
    shared = {"redis_url": redis.url, "cache_seconds": 300}
    async with office.service(**shared) as one, office.service(**shared) as two:
        [item] = await ended(one)
        assert await result(one, item) == "first"
        office.plant("second")
        assert await result(two, item) == "first"
        with Redis.from_url(redis.url) as inside:
            [name] = [name for name in inside.keys("*") if b":detail:" in name]
            assert 290_000 < inside.pttl(name) <= 300_000
            inside.delete(name)
    async with office.service(**shared) as three:
        assert await result(three, item) == "second"


async def test_what_strangers_wrote_or_moved_in_redis_is_not_believed(office: Office, redis: PrivateRedis) -> None:
    shared = {"redis_url": redis.url, "cache_seconds": 300}
    async with office.service(**shared) as one:
        [mine], [other] = await ended(one, 1, "mine"), await ended(one, 1, "another's")
        for item in (mine, other):
            await result(one, item)
    with Redis.from_url(redis.url) as inside:
        [name] = [name for name in inside.keys("*") if f"item:{mine}:".encode() in name]
        [theirs] = [name for name in inside.keys("*") if f"item:{other}:".encode() in name]
        for value in (inside.get(theirs), b"", b"nonsense", b"tag \xff", b"\xff\xfe text", b'tag {"result": "forged"}'):
            inside.set(name, value or b"")
            async with office.service(**shared) as two:
                assert await result(two, mine) == "mine"


async def test_redis_down_means_slower_and_nothing_else(office: Office, redis: PrivateRedis) -> None:
    async with office.service(redis_url=redis.url) as rig:
        [item] = await ended(rig)
        redis.kill()
        assert await result(rig, item) == "first"
        office.plant("second")
        assert await result(rig, item) == "first", "what this server has read it still knows"
        assert (await rig.ada.get("/api/jobs")).status == 200
        assert len(await ended(rig, 3)) == 3


class Table:
    """Rows that are read many at a time, when the test lets them."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.rows = {n: n * n for n in range(1_000)}
        self.began = asyncio.Event()
        self.open = asyncio.Event()
        self.broken = False

    async def read(self, keys: Sequence[int]) -> dict[int, int]:
        self.asked.append(list(keys))
        self.began.set()
        await self.open.wait()
        if self.broken:
            raise DatabaseUnreachable("gone")
        return {key: self.rows[key] for key in keys if key in self.rows}


async def test_many_who_ask_at_once_ask_once_and_those_who_come_later_read_anew() -> None:
    table = Table()
    gathered = ReadCoalescer(table.read)
    first = [asyncio.ensure_future(gathered.find(n % 10)) for n in range(100)]
    await table.began.wait()
    late = asyncio.ensure_future(gathered.find(3))
    await asyncio.sleep(0)
    table.rows[3] = -1  # changed after the first were read, before the late one asked to see
    table.open.set()
    assert [await waiting for waiting in first[:3]] == [0, 1, 4]
    assert await late == -1
    assert [len(keys) for keys in table.asked] == [10, 1]
    assert await gathered.find(5_000) is None


async def test_a_read_is_bounded_and_one_who_goes_away_or_a_failure_stops_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache, "GATHERED_MAX", 4)
    table = Table()
    gathered = ReadCoalescer(table.read)
    waiting = [asyncio.ensure_future(gathered.find(n)) for n in range(10)]
    await table.began.wait()
    waiting[1].cancel()
    table.open.set()
    assert await waiting[0] == 0
    assert await waiting[9] == 81
    assert [len(keys) for keys in table.asked] == [4, 4, 2]
    table.broken = True
    with pytest.raises(DatabaseUnreachable):
        await gathered.find(1)
    table.broken = False
    assert await gathered.find(1) == 1
