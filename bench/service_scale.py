"""What pages and views of a job cost over HTTP at millions of items, over what they cost at thousands."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg

from bench.served import Served, served

ITEMS_FEW = 10_000
LOOKS = 100
POSITION_BITS = 28

# Nine of ten have succeeded, one in a hundred has failed, the rest waits.
JOB = """
INSERT INTO jobs (id, owner, handler, state, priority, ref_seed, total, digest, succeeded, failed, created_at,
                  timeout_at, timeout_ms, sealed)
SELECT CAST($1 AS bigint), 'local', 'noop', 'running', 0, '', n, '', n * 9 / 10, n / 100, 1, 4102444800000, 86400000, 1
FROM (SELECT CAST($2 AS bigint) AS n) AS given
"""
ITEMS = f"""
INSERT INTO items (id, job_id, handler, state, error_code, order_key, fence, created_at, queued_at, finished_at)
SELECT (CAST($1 AS bigint) << {POSITION_BITS}) + n, $1, 'noop',
    CASE WHEN n % 10 <> 0 THEN 'succeeded' WHEN n % 100 = 0 THEN 'failed' ELSE 'queued' END,
    CASE WHEN n % 100 = 0 THEN 'GW_5XX' END, n, 1, 1, 1, CASE WHEN n % 10 <> 0 OR n % 100 = 0 THEN 2 END
FROM generate_series(CAST(0 AS bigint), CAST($2 AS bigint) - 1) AS n
"""

_at: dict[str, Any] = {}


def prepare(url: str) -> None:
    _at["url"] = url


def view_scale(n: int) -> dict[str, float]:
    with both(n) as asked:
        ratios = {name: ratio(asked, partial(api_look, name)) for name in looks(n)}
    return said("view", ratios)


def api_look(name: str, found: Served, items: int) -> object:
    return found.ask("GET", looks(items)[name])


def said(what: str, ratios: dict[str, float]) -> dict[str, float]:
    return {f"{what}_time_ratio": max(ratios.values()), **{f"{name}_ratio": value for name, value in ratios.items()}}


@contextlib.contextmanager
def both(n: int) -> Iterator[list[tuple[int, Served]]]:
    """Two databases, one of few items and one of many, and a service on each."""
    urls = {ITEMS_FEW: asyncio.run(another_database()), n: _at["url"]}
    with contextlib.ExitStack() as stack:
        asked = []
        for items, url in urls.items():
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="serve-"))
            asked.append((items, stack.enter_context(served(url, Path(folder), ("--no-worker",)))))
            asyncio.run(fill(url, items))
        yield asked


async def another_database() -> str:
    url = f"{_at['url']}_few"
    connection = await asyncpg.connect(_at["url"])
    await connection.execute(f'CREATE DATABASE "{url.rpartition("/")[2]}" TEMPLATE template0')
    await connection.close()
    return url


async def fill(url: str, n: int) -> None:
    connection = await asyncpg.connect(url, command_timeout=1_800)
    await connection.execute(JOB, 1, n)
    await connection.execute(ITEMS, 1, n)
    await connection.execute("VACUUM ANALYZE")
    await connection.execute("CHECKPOINT")
    await connection.close()


def looks(n: int) -> dict[str, str]:
    middle = f"position_from={n // 2}"
    return {
        "jobs": "/api/jobs?limit=50",
        "job": "/api/jobs/1",
        "item": f"/api/items/1-{n // 2}",
        "first_page": "/api/jobs/1/items?limit=100",
        "middle_page": f"/api/jobs/1/items?limit=100&{middle}",
        "failed_page": f"/api/jobs/1/items?limit=50&state=failed&{middle}",
        "failed_with_code_page": f"/api/jobs/1/items?limit=50&state=failed&error_code=GW_5XX&{middle}",
        "queued_page": f"/api/jobs/1/items?limit=50&state=queued&{middle}",
    }


def ratio(asked: Sequence[tuple[int, Served]], look: Callable[[Served, int], object]) -> float:
    """The time of a look at many over that at few: of the medians of many looks in turns, after some to warm up."""
    spent: list[list[float]] = [[] for _ in asked]
    for _ in range(LOOKS):
        for (items, found), times in zip(asked, spent, strict=True):
            started = time.perf_counter()
            look(found, items)
            times.append(time.perf_counter() - started)
    few, many = (statistics.median(times[LOOKS // 5 :]) for times in spent)
    return many / few
