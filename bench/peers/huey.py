"""huey on SQLite, its file synced at every commit, one worker thread."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from huey import SqliteHuey

# Tuned, in huey's favour:
# - Its write-ahead log (the default), with a sync at each commit, which is the durability that is compared.
# - No results kept, no periodic tasks and no health checks.
# - One worker thread: SQLite has one writer, and threads or processes would only wait for its lock.

_at: dict[str, Any] = {}


def prepare(url: str) -> None:
    path = url.removeprefix("sqlite:///")
    huey = SqliteHuey("noop", filename=path, fsync=True, results=False)
    _at.update(huey=huey, noop=huey.task(name="noop")(_noop), done=threading.Event())
    logging.getLogger("huey").setLevel(logging.ERROR)


def _noop(item: int) -> None:
    _at.setdefault("started", time.perf_counter())
    _at["left"] -= 1
    if _at["left"] == 0:
        _at["done"].set()


def submit(n: int) -> float:
    started = time.perf_counter()
    for item in range(n):
        _at["noop"](item)
    return time.perf_counter() - started


def finish(n: int) -> float:
    _at["left"] = n
    consumer = _at["huey"].create_consumer(workers=1, periodic=False, initial_delay=0.001, check_worker_health=False)
    consumer.start()
    _at["done"].wait()
    seconds = time.perf_counter() - float(_at["started"])
    consumer.stop(graceful=True)
    return seconds
