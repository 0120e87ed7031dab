"""Redis, which server processes share rate limits and the cache through."""

from collections.abc import AsyncIterator
from typing import Final

from backstay.cli.doctor.finding import Finding, Setup, fail, ok

ANSWER_SECONDS: Final = 3.0


async def redis(setup: Setup) -> AsyncIterator[Finding]:
    """Whether Redis answers, if one is named."""
    from importlib.util import find_spec

    url = setup.settings.redis_url
    if url is None:
        yield ok("no Redis is set: every server process has its own cache and rate limits")
        return
    if find_spec("redis") is None:
        return  # the extras say so
    from redis.asyncio import Redis
    from redis.exceptions import RedisError

    try:
        async with Redis.from_url(url, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS) as asked:
            await asked.ping()
            version = (await asked.info("server"))["redis_version"]
    except ValueError:  # its own words would repeat the URL
        yield fail("BACKSTAY_REDIS_URL is not a valid Redis URL", "write redis://host:6379/0 or rediss://…")
    except (RedisError, OSError, TimeoutError) as error:
        advice = "start it, or correct BACKSTAY_REDIS_URL; until then every process has its own cache and rate limits"
        yield fail(f"Redis does not answer: {error}", advice)
    else:
        yield ok(f"version {version} answers")
