"""The time of one claim in a table of millions, over its time in a table of thousands."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

import asyncpg

from backstay.store.queries import POSTGRES, queries_for
from backstay.wiring import migrate

ROWS_FEW = 10_000
CLAIMS = 50

# One item in ten is ready, the others are done: a claim of 500 is always a full one.
FILL = """
INSERT INTO items (id, job_id, handler, state, order_key, fence, created_at, queued_at)
SELECT n, 1, 'noop', CASE WHEN n % 10 = 0 THEN 'queued' ELSE 'succeeded' END, n, 1, 1, 1
FROM generate_series(CAST($1 AS bigint), CAST($2 AS bigint)) AS n
"""
BODIES = """
INSERT INTO requests (item_id, body)
SELECT n, '1' FROM generate_series(CAST($1 AS bigint), CAST($2 AS bigint)) AS n
"""
CLAIM = {"handler": "noop", "n": 500, "worker": "bench", "lease_ms": 90_000, "reconcile_ms": 90_000}

_at: dict[str, Any] = {}


def prepare(url: str) -> None:
    asyncio.run(migrate(url))
    _at["url"] = url


async def fill(connection: Any, low: int, high: int) -> None:
    """Add items in SQL, and let the planner know of them."""
    await connection.execute(FILL, low, high)
    await connection.execute(BODIES, low, high)
    await connection.execute("VACUUM ANALYZE")
    await connection.execute("CHECKPOINT")


async def claim_ms(connection: Any) -> float:
    """The median of many claims, each rolled back so that all find the same table."""
    query = queries_for(POSTGRES)["claim"]
    spent = []
    for _ in range(CLAIMS):
        transaction = connection.transaction()
        await transaction.start()
        started = time.perf_counter()
        rows = await connection.fetch(query.sql, *[CLAIM[name] for name in query.names])
        spent.append(time.perf_counter() - started)
        await transaction.rollback()
        assert len(rows) == CLAIM["n"]
    return statistics.median(spent) * 1000


def claim_scale(n: int) -> dict[str, float]:
    return asyncio.run(_claim_scale(n))


async def _claim_scale(n: int) -> dict[str, float]:
    connection = await asyncpg.connect(_at["url"], command_timeout=1_800)
    await fill(connection, 1, ROWS_FEW)
    few_ms = await claim_ms(connection)
    await fill(connection, ROWS_FEW + 1, n)
    many_ms = await claim_ms(connection)
    await connection.close()
    return {"claim_time_ratio": many_ms / few_ms, "few_ms": few_ms, "many_ms": many_ms}
