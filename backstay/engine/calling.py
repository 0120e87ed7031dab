"""One question to a provider, with its own time limit and inner retries: for calls that may safely be repeated."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from backstay.core.failures import FailureKind, failure_of_exception
from backstay.core.retry import QUEUE, next_delay_ms
from backstay.engine.parts import Parts

T = TypeVar("T")

_AGAIN = (FailureKind.INFRASTRUCTURE, FailureKind.THROTTLED, FailureKind.UNKNOWN)


async def ask_provider(parts: Parts, question: Callable[[], Awaitable[T]]) -> T:
    """Tries a poll, look-up or cancel until it answers, its retries are spent or the claim behind it grows old."""
    limits = parts.limits
    async with asyncio.timeout(limits.lease_seconds * 0.8):
        for tried in range(limits.call_retries_max + 1):
            try:
                async with asyncio.timeout(limits.call_timeout_seconds):
                    return await question()
            except Exception as error:
                failure = failure_of_exception(error, parts.clock.now_ms())
                if failure.kind not in _AGAIN or tried == limits.call_retries_max:
                    raise
                await parts.clock.sleep(next_delay_ms(QUEUE, tried, failure.retry_after_ms, parts.rng) / 1000)
    raise AssertionError("the last try returns or raises")
