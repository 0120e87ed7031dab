"""What server processes share through Redis, as long as it answers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from limits.aio.storage import RedisStorage
from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError

from backstay.clock import Clock
from backstay.core.errors import UsageError

T = TypeVar("T")

CONNECTIONS_MAX: Final = 32
ANSWER_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 2.0  # after it failed to answer, nobody waits for it again for so long
PREFIX: Final = "backstay"


class Shared:
    """Redis, asked as one asks somebody who may be out: without an answer, everyone goes on by himself."""

    def __init__(self, url: str, clock: Clock) -> None:
        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=CONNECTIONS_MAX,
                timeout=ANSWER_SECONDS,
                socket_timeout=ANSWER_SECONDS,
                socket_connect_timeout=ANSWER_SECONDS,
            )
        except ValueError:  # its own message would repeat the URL, and with it the password
            raise UsageError("the Redis URL is not one", hint="write redis://host:6379/0 or rediss://…") from None
        self._redis: Redis = Redis(connection_pool=pool)
        nowhere = "redis://pool:0"  # the pool has the true address
        self.counters = RedisStorage(
            nowhere,
            implementation="redispy",
            key_prefix=PREFIX,
            connection_pool=pool,  # type: ignore[arg-type]
        )
        self._clock = clock
        self._resumes_at = float("-inf")

    @property
    def answers(self) -> bool:
        """Whether it is worth asking."""
        return self._clock.monotonic() >= self._resumes_at

    async def ask(self, call: Callable[[Redis], Awaitable[T]]) -> T | None:
        """The answer, or None when Redis is not there."""
        if not self.answers:
            return None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await call(self._redis)
        except (RedisError, OSError, TimeoutError):
            self._resumes_at = self._clock.monotonic() + PAUSE_SECONDS
            return None

    async def count(self, name: str, expiry_seconds: int) -> int | None:
        """How often a name was counted by now, in all processes together."""
        return await self.ask(lambda _: self.counters.incr(name, expiry_seconds))

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)
