"""dramatiq on RabbitMQ with publisher confirms, one worker process."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import os
import threading
import time
from typing import Any

# Tuned, in dramatiq's favour:
# - Eight threads, its default; 1, 2 and 4 were no faster in a trial.
# - 500 messages fetched ahead, where its default would be two for each thread.
# - The worker runs in this process, without the command's watcher of processes around it.
# - Confirms are on, since a message that the broker may lose is not durable work. They only slow the submit.
WORKER_THREADS = 8
PREFETCH = 500
# Read when dramatiq is imported.
os.environ["dramatiq_queue_prefetch"] = str(PREFETCH)  # noqa: SIM112

import dramatiq  # noqa: E402
from dramatiq.brokers.rabbitmq import RabbitmqBroker  # noqa: E402

_at: dict[str, Any] = {}
_counting = threading.Lock()


def prepare(url: str) -> None:
    broker = RabbitmqBroker(url=url, confirm_delivery=True)
    dramatiq.set_broker(broker)
    _at["noop"] = dramatiq.actor(_noop, actor_name="noop", queue_name="noop")
    _at["broker"] = broker
    _at["done"] = threading.Event()


def _noop(item: int) -> None:
    with _counting:
        _at.setdefault("started", time.perf_counter())
        _at["left"] -= 1
        if _at["left"] == 0:
            _at["done"].set()


def submit(n: int) -> float:
    started = time.perf_counter()
    for item in range(n):
        _at["noop"].send(item)
    return time.perf_counter() - started


def finish(n: int) -> float:
    _at["left"] = n
    worker = dramatiq.Worker(_at["broker"], worker_threads=WORKER_THREADS)
    worker.start()
    _at["done"].wait()
    seconds = time.perf_counter() - float(_at["started"])
    worker.stop()
    _at["broker"].close()
    return seconds
