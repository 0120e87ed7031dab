"""What server processes share through Redis, as long as it answers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError

from backstay.clock import Clock
from backstay.core.errors import UsageError

T = TypeVar("T")

CONNECTIONS_MAX: Final = 32
ANSWER_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 2.0  # after it failed to answer, nobody waits for it again for so long
PREFIX: Final = "backstay"


class SharedState:
    """Redis as an optional service: without an answer, every process continues on its own."""

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
            raise UsageError("the Redis URL is not valid", hint="write redis://host:6379/0 or rediss://…") from None
        self._redis: Redis = Redis(connection_pool=pool)
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

        async def count_one_more(redis: Redis) -> int:
            async with redis.pipeline(transaction=True) as both:  # a count that never ended would be kept for ever
                both.incr(f"{PREFIX}:{name}")
                both.expire(f"{PREFIX}:{name}", expiry_seconds)
                counted: int = (await both.execute())[0]
                return counted

        return await self.ask(count_one_more)

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)
