"""Details are rendered once for each version, shared where there is Redis, and never older than the database."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial

import pytest
from redis.asyncio import Redis

from backstay.clock import Clock
from backstay.core.errors import DatabaseUnreachable, NotFound
from backstay.server import cache
from backstay.server.cache import Details, Gathered
from backstay.server.shared import Shared
from backstay.server.signing import Signer
from tests.servers.redis import PrivateRedis

SIGNER = Signer("k" * 32)


class Kitchen:
    """Makes details, and counts."""

    def __init__(self, text: bytes = b"{}") -> None:
        self.text = text
        self.made = 0

    async def __call__(self) -> bytes:
        self.made += 1
        return self.text


@pytest.fixture
def redis() -> Iterator[PrivateRedis]:
    with PrivateRedis() as server:
        yield server


async def test_a_version_is_made_once_and_another_anew() -> None:
    details, kitchen = Details(SIGNER, None, 300), Kitchen()
    for version in ("failed-1", "failed-1", "queued-1", "queued-1"):
        await details.find("item:1-1", version, kitchen)
    assert kitchen.made == 2


async def test_what_is_not_found_is_not_kept() -> None:
    details, kitchen = Details(SIGNER, None, 300), Kitchen()

    async def missing() -> bytes:
        raise NotFound("no item 1-1")

    with pytest.raises(NotFound):
        await details.find("item:1-1", "v", missing)
    assert await details.find("item:1-1", "v", kitchen) == b"{}"


async def test_no_seconds_means_no_cache() -> None:
    details, kitchen = Details(SIGNER, None, 0), Kitchen()
    for _ in range(2):
        await details.find("item:1-1", "v", kitchen)
    assert kitchen.made == 2


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "HERE_BYTES_MAX", 10_000)
    monkeypatch.setattr(cache, "DETAIL_BYTES_MAX", 4_000)
    details = Details(SIGNER, None, 300)
    for n in range(100):
        await details.find(f"item:1-{n}", "v", Kitchen(b"x" * 3_000))
    assert len(details._here) == 3
    assert details._here_bytes <= 10_000
    large = Kitchen(b"x" * 4_001)
    for _ in range(2):
        await details.find("large", "v", large)
    assert large.made == 2


async def test_servers_share_what_is_made_until_its_time_is_over(redis: PrivateRedis) -> None:
    one, two = Shared(redis.url, Clock()), Shared(redis.url, Clock())
    kitchen = Kitchen(b'{"a": 1}')
    for shared in (one, two):
        assert await Details(SIGNER, shared, 300).find("item:1-1", "v", kitchen) == b'{"a": 1}'
    assert kitchen.made == 1
    [name] = await one.ask(lambda redis: redis.keys("*")) or []
    assert 290_000 < (await one.ask(lambda redis: redis.pttl(name)) or 0) <= 300_000
    await one.close()
    await two.close()


async def write(name: str, value: bytes, redis: Redis) -> None:
    await redis.set(name, value)


async def test_what_strangers_wrote_or_moved_in_redis_is_not_believed(redis: PrivateRedis) -> None:
    shared = Shared(redis.url, Clock())
    await Details(SIGNER, shared, 300).find("item:1-1", "v", Kitchen(b"true"))
    [found] = await shared.ask(lambda redis: redis.keys("*")) or []
    name = bytes(found).decode()  # type: ignore[arg-type]
    theirs = name.replace("1-1", "2-2")
    await shared.ask(lambda redis: redis.copy(name, theirs))
    assert await Details(SIGNER, shared, 300).find("item:2-2", "v", Kitchen(b"own")) == b"own"
    for value in (b"", b"nonsense", b"tag \xff", b"\xff\xfe text"):
        await shared.ask(partial(write, name, value))
        assert await Details(SIGNER, shared, 300).find("item:1-1", "v", Kitchen(b"own")) == b"own"
    assert await Details(Signer("x" * 32), shared, 300).find("item:1-1", "v", Kitchen(b"other")) == b"other"
    await shared.close()


async def test_redis_down_means_slower_and_nothing_else(redis: PrivateRedis) -> None:
    shared = Shared(redis.url, Clock())
    details, kitchen = Details(SIGNER, shared, 300), Kitchen(b"true")
    redis.kill()
    for version in ("v1", "v2", "v2"):
        assert await details.find("item:1-1", version, kitchen) == b"true"
    assert kitchen.made == 2
    await shared.close()


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
    gathered = Gathered(table.read)
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
    gathered = Gathered(table.read)
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
