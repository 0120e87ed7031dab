"""What pruning costs a worker beside it: items per second of the worker, while old jobs are deleted and before that."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from typing import Any

from backstay.upkeep.loop import Pruner, PruneRules
from bench import ours
from bench.contestant import settle_down
from bench.probes import NotMeasured

OLD_JOBS = 10
ROUND_ITEMS = 100_000
ROUNDS = 3

prepare = ours.prepare


def beside(n: int) -> dict[str, float]:
    """The pruner and the worker share one process and one pool of connections, as in `backstay worker`."""
    ours.run(_finish(*(n // OLD_JOBS for _ in range(OLD_JOBS))))
    settle_down(ours.url())
    figures = ours.run(_measure(min(ROUND_ITEMS, n)))
    ours.run(ours.app().close())
    return figures


async def _measure(round_items: int) -> dict[str, float]:
    alone = [await _finish(round_items) for _ in range(ROUNDS)]
    client = await ours.app().open()
    rules = PruneRules(age_ms=None, keep=ROUNDS, archive=False, quiet_ms=0)
    deleting = asyncio.create_task(_prune(Pruner(client.store, None, client.clock, rules)))
    beside = [await _finish(round_items) for _ in range(ROUNDS)]
    ended = deleting.done()
    deleting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await deleting
    if ended:
        raise NotMeasured("all old jobs were deleted before the worker had done its rounds: take more items")
    before, during = statistics.median(alone), statistics.median(beside)
    return {"rate_ratio": during / before, "alone_per_second": before, "beside_per_second": during}


async def _prune(pruner: Pruner) -> None:
    async for one in pruner.run():
        if one.skipped:
            raise NotMeasured(f"job {one.job_id} was not deleted: {one.skipped}")


async def _finish(*sizes: int) -> float:
    """Items per second of jobs that were submitted before."""
    jobs: list[Any] = [await ours.app().submit(ours.noop(), range(size)) for size in sizes]
    started = time.perf_counter()
    async with ours.app().working(concurrency=ours.CONCURRENCY):
        for job in jobs:
            await job.wait()
    return sum(sizes) / (time.perf_counter() - started)
