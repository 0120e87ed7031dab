"""procrastinate on PostgreSQL, one worker process."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import time

import uvloop
from procrastinate import App, PsycopgConnector

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
