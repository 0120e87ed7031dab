"""pgqueuer on PostgreSQL: a bulk enqueue, a drain by one worker, and the way of one job."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.core.completion import CompletionWatcher
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.idle_worker import PAUSE_SECONDS, WARM_UP, idle_worker, until_told_to_stop
from bench.orders import TABLE, commits_per_second

# Tuned, in pgqueuer's favour:
# - asyncpg on uvloop, as in its own benchmark: its documentation has asyncpg at 1.7 times psycopg.
# - Its table settings for autovacuum are applied, as its tuning guide asks.
# - Enqueue passes lists, which pgqueuer turns into one INSERT; in a trial 1,000 and 5,000 at a time
#   were alike and 20,000 slower.
# - The worker takes 500 a batch, and a pool lets it claim the next batch while it logs the last;
#   in a trial that was a fifth faster than the single connection of its guide.
# - Tables stay logged ("durable", its default): the faster levels lose jobs in a crash, which
#   nobody else here may do.
ENQUEUE_BATCH = 5_000
WORKER_BATCH = 500
ENTRYPOINT = "noop"

_at = {"url": ""}


def prepare(url: str) -> None:
    _at["url"] = url
    uvloop.run(_install())


async def _install() -> None:
    connection = await asyncpg.connect(_at["url"])
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    await queries.optimize_autovacuum()
    await connection.close()


def submit(n: int) -> float:
    return uvloop.run(_submit(n))


async def _submit(n: int) -> float:
    connection = await asyncpg.connect(_at["url"])
    queries = Queries(AsyncpgDriver(connection))
    started = time.perf_counter()
    for first in range(0, n, ENQUEUE_BATCH):
        items = range(first, min(first + ENQUEUE_BATCH, n))
        await queries.enqueue([ENTRYPOINT] * len(items), [b"%d" % item for item in items], [0] * len(items))
    seconds = time.perf_counter() - started
    await connection.close()
    return seconds


def finish(n: int) -> float:
    return uvloop.run(_finish(n))


async def _finish(n: int) -> float:
    pool = await asyncpg.create_pool(_at["url"], min_size=4, max_size=4)
    queue = PgQueuer(AsyncpgPoolDriver(pool))
    started = 0.0
    left = n

    @queue.entrypoint(ENTRYPOINT)
    async def noop(job: Job) -> None:
        nonlocal started, left
        started = started or time.perf_counter()
        left -= 1
        if left == 0:
            queue.shutdown.set()

    # Returns once the last outcomes are flushed.
    await queue.run(batch_size=WORKER_BATCH, dequeue_timeout=timedelta(seconds=1))
    seconds = time.perf_counter() - started
    unfinished = await pool.fetchval("SELECT count(*) FROM pgqueuer")
    logged = await pool.fetchval("SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'")
    await pool.close()
    assert (unfinished, logged) == (0, n), f"{unfinished} unfinished, {logged} logged"
    return seconds


def latency(n: int) -> dict[str, float]:
    with idle_worker("bench.peers.pgqueuer", _at["url"]) as worker:
        sent, seen = uvloop.run(_one_by_one(n))
        taken = worker.stop()
    return {
        "p50_ms": statistics.median(b - a for a, b in zip(sent, seen, strict=True)) / 1e6,
        "to_handler_p50_ms": statistics.median(b - a for a, b in zip(sent, taken[-n:], strict=True)) / 1e6,
    }


async def _one_by_one(n: int) -> tuple[list[int], list[int]]:
    """Nanoseconds before each enqueue, and when its completion was seen."""
    sent, seen = [], []
    connection = await asyncpg.connect(_at["url"])
    listening = await asyncpg.connect(_at["url"])
    queries = Queries(AsyncpgDriver(connection))
    driver = AsyncpgDriver(listening)
    # The watcher waits 50 ms by default to gather notices: without that it looks at once.
    async with CompletionWatcher(driver, queries=Queries(driver), debounce=timedelta(0)) as watcher:
        for _ in range(n + WARM_UP):
            sent.append(time.monotonic_ns())
            (job_id,) = await queries.enqueue(ENTRYPOINT, b"")
            status = await watcher.wait_for(job_id)
            seen.append(time.monotonic_ns())
            assert status == "successful", status
            await asyncio.sleep(PAUSE_SECONDS)
    await connection.close()
    await listening.close()
    return sent[-n:], seen[-n:]


def submit_transaction(n: int) -> dict[str, float]:
    return uvloop.run(_submit_inside(n))


async def _submit_inside(n: int) -> dict[str, float]:
    connection = await asyncpg.connect(_at["url"])
    await connection.execute(TABLE)
    queries = Queries(AsyncpgDriver(connection))

    async def commit(number: int) -> None:
        async with connection.transaction():
            await connection.execute("INSERT INTO orders VALUES ($1)", number)
            await queries.enqueue(ENTRYPOINT, b"%d" % number)

    figures = await commits_per_second(n, commit)
    await connection.close()
    return figures


async def _worker(url: str) -> None:
    """An idle worker in its own process; it tells when each handler began."""
    pool = await asyncpg.create_pool(url, min_size=4, max_size=4)
    queue = PgQueuer(AsyncpgPoolDriver(pool))
    taken: list[int] = []

    @queue.entrypoint(ENTRYPOINT)
    async def noop(job: Job) -> None:
        taken.append(time.monotonic_ns())

    # Outcomes are written when a batch is full or 100 ms have gone: a batch of one writes at once.
    running = asyncio.create_task(queue.run(batch_size=1))
    await until_told_to_stop()
    queue.shutdown.set()
    await running
    await pool.close()
    print(json.dumps(taken))


if __name__ == "__main__":
    uvloop.run(_worker(sys.argv[1]))
