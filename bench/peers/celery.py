"""Celery on RabbitMQ, the solo pool with late acknowledgement."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import contextlib
import time
from typing import Any

from celery import Celery
from celery.worker import state

# Tuned, in Celery's favour:
# - 32 messages fetched ahead, the best of 1, 32, 500 and no limit in a trial.
# - No result backend, rate limits, events, remote control, gossip, mingle or heartbeat: none is needed here.
# - The solo pool runs tasks in the worker's own process; late acknowledgement, so that a crash loses nothing.
PREFETCH = 32

_at: dict[str, Any] = {}


def prepare(url: str) -> None:
    app = Celery("bench", broker=url)
    app.conf.update(
        task_acks_late=True,
        task_ignore_result=True,
        task_default_queue="celery-noop",
        worker_prefetch_multiplier=PREFETCH,
        worker_disable_rate_limits=True,
        worker_enable_remote_control=False,
        broker_heartbeat=0,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_transport_options={"confirm_publish": True},
    )
    _at["app"] = app
    _at["noop"] = app.task(name="noop")(_noop)


def _noop(item: int) -> None:
    _at.setdefault("started", time.perf_counter())
    _at["left"] -= 1
    if _at["left"] == 0:
        _at["ended"] = time.perf_counter()
        state.should_stop = 0


def submit(n: int) -> float:
    started = time.perf_counter()
    with _at["app"].producer_pool.acquire(block=True) as producer:
        for item in range(n):
            _at["noop"].apply_async((item,), producer=producer)
    return time.perf_counter() - started


def finish(n: int) -> float:
    _at["left"] = n
    worker = _at["app"].Worker(
        pool_cls="solo",
        concurrency=1,
        loglevel="ERROR",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    with contextlib.suppress(SystemExit):
        worker.start()
    return float(_at["ended"] - _at["started"])
