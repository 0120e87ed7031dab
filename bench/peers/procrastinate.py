"""procrastinate on PostgreSQL, one worker process."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import time

import psycopg
import uvloop
from procrastinate import App, PsycopgConnector

from bench.orders import TABLE, commits_per_second

# Tuned, in procrastinate's favour:
# - Ten jobs at a time, the best of 1, 10, 30 and 100 in a trial.
# - A pool with more connections than jobs, so that none waits for one.
# - Finished jobs are deleted (delete_jobs), which spares the claim the dead weight and is a little faster.
# - Jobs are deferred in batches, its documented bulk path.
CONCURRENCY = 10
CONNECTIONS = 20
DEFER_BATCH = 1_000

_at = {"url": ""}


def prepare(url: str) -> None:
    _at["url"] = url
    uvloop.run(_install())


def _app() -> App:
    return App(connector=PsycopgConnector(conninfo=_at["url"], min_size=CONNECTIONS, max_size=CONNECTIONS))


async def _install() -> None:
    async with _app().open_async() as app:
        await app.schema_manager.apply_schema_async()


def submit(n: int) -> float:
    return uvloop.run(_submit(n))


async def _submit(n: int) -> float:
    async with _app().open_async() as app:
        noop = app.task(name="noop", queue="noop")(_noop)
        started = time.perf_counter()
        for first in range(0, n, DEFER_BATCH):
            await noop.batch_defer_async(*({"item": item} for item in range(first, min(first + DEFER_BATCH, n))))
        return time.perf_counter() - started


async def _noop(item: int) -> None: ...


def submit_transaction(n: int) -> dict[str, float]:
    return uvloop.run(_submit_inside(n))


async def _submit_inside(n: int) -> dict[str, float]:
    """Its driver is psycopg, so the user's connection is one of psycopg."""
    async with _app().open_async() as app, await psycopg.AsyncConnection.connect(_at["url"]) as connection:
        noop = app.task(name="noop", queue="noop")(_noop)
        await connection.execute(TABLE)
        await connection.commit()

        async def commit(number: int) -> None:
            async with connection.transaction():
                await connection.execute("INSERT INTO orders VALUES (%s)", (number,))
                await noop.configure(connection=connection).defer_async(item=number)

        return await commits_per_second(n, commit)


def finish(n: int) -> float:
    return uvloop.run(_finish(n))


async def _finish(n: int) -> float:
    started = 0.0
    left = n
    async with _app().open_async() as app:

        @app.task(name="noop", queue="noop")
        async def noop(item: int) -> None:
            nonlocal started, left
            started = started or time.perf_counter()
            left -= 1

        # Returns when no job is left to take and every one taken is written down.
        await app.run_worker_async(
            queues=["noop"], concurrency=CONCURRENCY, wait=False, delete_jobs="always", install_signal_handlers=False
        )
        assert left == 0, f"{left} jobs left"
        return time.perf_counter() - started
