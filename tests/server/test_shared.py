"""Redis as a helper: asked while it answers, left alone while it does not, never needed."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backstay.clock import Clock
from backstay.core.errors import UsageError
from backstay.server.cache import ANSWER_SECONDS, PAUSE_SECONDS, SharedState
from tests.server.rig import rigged
from tests.servers.redis import PrivateRedis


@pytest.fixture
def redis() -> Iterator[PrivateRedis]:
    with PrivateRedis() as server:
        yield server


class Later(Clock):
    """A clock that a test moves on."""

    moved = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.moved


async def test_what_one_process_counts_another_sees(redis: PrivateRedis) -> None:
    one, two = SharedState(redis.url, Clock()), SharedState(redis.url, Clock())
    assert [await one.count("a", 60), await two.count("a", 60), await two.count("b", 60)] == [1, 2, 1]
    assert 50 < (await one.ask(lambda redis: redis.ttl("backstay:a")) or 0) <= 60, "no count is kept for ever"
    await one.close()
    await two.close()


async def test_a_redis_that_is_gone_is_not_waited_for_and_is_found_again(redis: PrivateRedis) -> None:
    clock = Later()
    shared = SharedState(redis.url, clock)
    assert await shared.count("a", 60) == 1
    redis.kill()
    assert await shared.count("a", 60) is None
    redis.restart()
    assert await shared.count("a", 60) is None, "nobody asks again so soon"
    clock.moved = PAUSE_SECONDS
    assert await shared.count("a", 60) == 1
    await shared.close()


async def test_a_redis_that_hangs_costs_one_wait_and_not_one_for_everybody(redis: PrivateRedis) -> None:
    shared = SharedState(redis.url, Clock())
    assert await shared.count("a", 60) == 1
    redis.hang()
    started = time.monotonic()
    found = await asyncio.gather(*(shared.count("a", 60) for _ in range(100)))
    found += [await shared.count("a", 60) for _ in range(100)]
    assert set(found) == {None}
    assert time.monotonic() - started < 10 * ANSWER_SECONDS, "and not a hundred"
    redis.go_on()
    await shared.close()


async def test_a_redis_that_never_was_is_as_one_that_is_gone() -> None:
    shared = SharedState("redis://127.0.0.1:1/0", Clock())
    assert await shared.count("a", 60) is None
    await shared.close()


def test_a_wrong_url_is_said_without_its_password() -> None:
    with pytest.raises(UsageError) as raised:
        SharedState("http://me:hunter2@host", Clock())
    assert "hunter2" not in str(raised.value)


async def test_readiness_tells_of_redis_and_does_not_depend_on_it(
    sqlite_file_url: str, tmp_path: Path, redis: PrivateRedis
) -> None:
    async with rigged(sqlite_file_url, tmp_path / "data", redis_url=redis.url) as rig:
        for expected in ("ok", "does not answer"):
            reply = await rig.holder(None).get("/readyz?verbose=true")
            assert (reply.status, reply.json["checks"]) == (200, {"database": "ok", "redis": expected})
            if expected == "ok":
                redis.kill()
