"""awa-pg on PostgreSQL: its Rust runtime with a Python handler."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import awa
import uvloop

# Tuned, in awa's favour:
# - Its queue storage engine, filled by COPY, and four partitions of the queue: the first lever its guide names, and the
#   best of 1, 2, 4 and 8 in a trial. One claimer for each, as the guide has it; two were slower.
# - 512 workers, from where its runtime writes outcomes by four flushers; 128 and 1,024 were slower in a trial.
# - No deadline per job, which lets awa take its short path for claims and was half as fast again in a trial.
# - Twenty connections; eight were slower in a trial. uvloop for the Python side.
# - Its clock stops with the last handler, though its last outcomes are written shortly after.
QUEUE = "noop"
PARTITIONS = 4
WORKERS = 512
CONNECTIONS = 20
ENQUEUE_BATCH = 5_000
CLAIM_BATCH = 512
POLL_MS = 50

_at = {"url": ""}


@dataclass
class Noop:
    item: int


def prepare(url: str) -> None:
    _at["url"] = url
    uvloop.run(_install())


async def _install() -> None:
    client = awa.AsyncClient(_at["url"])
    await client.migrate()
    await client.install_queue_storage(schema="awa")
    await client.close()


def submit(n: int) -> float:
    return uvloop.run(_submit(n))


async def _submit(n: int) -> float:
    client = awa.AsyncClient(_at["url"])
    queues = awa.PartitionedQueue(QUEUE, PARTITIONS)
    started = time.perf_counter()
    for first in range(0, n, ENQUEUE_BATCH):
        jobs = [Noop(item) for item in range(first, min(first + ENQUEUE_BATCH, n))]
        routes = [queues.route_by_index(job.item) for job in jobs]
        await client.enqueue_many_copy(jobs, queue=QUEUE, opts=routes)
    seconds = time.perf_counter() - started
    await client.close()
    return seconds


def finish(n: int) -> float:
    return uvloop.run(_finish(n))


async def _finish(n: int) -> float:
    client = awa.AsyncClient(_at["url"], max_connections=CONNECTIONS)
    queues = awa.PartitionedQueue(QUEUE, PARTITIONS)
    done = asyncio.Event()
    started = 0.0
    left = n

    async def noop(job: awa.Job) -> None:
        nonlocal started, left
        started = started or time.perf_counter()
        left -= 1
        if left == 0:
            done.set()

    for queue in queues.physical_queues:
        client.task(Noop, queue=queue)(noop)
    partitions = queues.queue_configs(
        WORKERS // PARTITIONS, claimers=1, claim_batch_size=CLAIM_BATCH, deadline_duration_ms=0
    )
    await client.start(partitions, poll_interval_ms=POLL_MS)
    await done.wait()
    seconds = time.perf_counter() - started
    await client.shutdown(5_000)
    await client.close()
    return seconds
