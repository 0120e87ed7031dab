"""DBOS on PostgreSQL: one no-op workflow per item, dequeued by one process."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dbos import DBOS, DBOSConfig

# Tuned, in DBOS's favour:
# - The queue is polled every 10 ms instead of every second.
# - A hundred workflows at a time, the best of 20, 100 and 500 in a trial.
# - No admin server, no logs, and a pool of 20 connections.
# - Enqueued by eight threads, since it has no bulk enqueue.
POLLING_SECONDS = 0.01
CONCURRENCY = 100
CONNECTIONS = 20
ENQUEUERS = 8

_at: dict[str, Any] = {"counting": threading.Lock(), "done": threading.Event()}


def prepare(url: str) -> None:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url,
        "sys_db_pool_size": CONNECTIONS,
        "log_level": "ERROR",
        "run_admin_server": False,
    }
    DBOS(config=config)
    _at["noop"] = DBOS.workflow(name="noop")(_noop)
    DBOS.launch()
    # Closed until finish() opens it, so that submit() is timed on its own.
    _at["queue"] = DBOS.register_queue("noop", worker_concurrency=0, polling_interval_sec=POLLING_SECONDS)


def _noop(item: int) -> None:
    with _at["counting"]:
        _at.setdefault("started", time.perf_counter())
        _at["left"] -= 1
        if _at["left"] == 0:
            _at["done"].set()


def submit(n: int) -> float:
    started = time.perf_counter()
    with ThreadPoolExecutor(ENQUEUERS) as threads:
        list(threads.map(lambda item: DBOS.enqueue_workflow("noop", _at["noop"], item), range(n)))
    return time.perf_counter() - started


def finish(n: int) -> float:
    _at["left"] = n
    _at["queue"].set_worker_concurrency(CONCURRENCY)
    _at["done"].wait()
    while DBOS.list_workflows(status=["PENDING", "ENQUEUED"], limit=1):
        time.sleep(0.01)
    seconds = time.perf_counter() - float(_at["started"])
    DBOS.destroy()
    return seconds
