"""A user's own row and one job in one transaction, again and again: how many a second a user can commit."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

TABLE = "CREATE TABLE orders (id bigint PRIMARY KEY)"
WARM_UP = 50

Commit = Callable[[int], Awaitable[None]]


async def commits_per_second(n: int, commit: Commit) -> dict[str, float]:
    """`commit` writes the order of this number with its job, and commits both."""
    for number in range(WARM_UP):
        await commit(number)
    started = time.perf_counter()
    for number in range(WARM_UP, WARM_UP + n):
        await commit(number)
    return {"commits_per_second": n / (time.perf_counter() - started)}
