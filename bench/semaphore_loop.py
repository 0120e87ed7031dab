"""The loop that a user of an SDK writes: a task for every request, and a semaphore around the call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

CONCURRENCY = 100
WARM_UP = 20


async def rate_of(ask: Callable[[int], Awaitable[Any]], n: int) -> dict[str, float]:
    """Requests per second from the first one on; `ask` gives a completion."""
    permits = asyncio.Semaphore(CONCURRENCY)

    async def one(number: int) -> str:
        async with permits:
            completion = await ask(number)
            return str(completion.choices[0].message.content)

    # The first calls import and build what they need; a peer's start costs it nothing here.
    await asyncio.gather(*map(one, range(WARM_UP)))
    started = time.perf_counter()
    said = await asyncio.gather(*map(one, range(n)))
    seconds = time.perf_counter() - started
    assert all(said), "a completion had no content"
    return {"requests_per_second": n / seconds, "seconds": seconds}
