"""Ten million items in one database: whether the last million takes longer than the first, and what else it costs."""

from __future__ import annotations

import asyncio
import tempfile
import time
from itertools import pairwise
from typing import Any

from backstay.artifacts import artifacts_at
from backstay.upkeep.loop import Pruner, PruneRules
from bench import ours
from bench.contestant import settle_down

JOBS = 10
LOOK_SECONDS = 0.5

prepare = ours.prepare


def ten_million(n: int) -> dict[str, float]:
    """One worker finishes jobs that were submitted before. Then the oldest job is deleted, with an archive."""
    size = n // JOBS
    submits = [ours.run(_submit(size)) for _ in range(JOBS)]
    settle_down(ours.url())
    rates = ours.run(_finish(n, size))
    memory = ours.peak_mb()
    with tempfile.TemporaryDirectory() as folder:
        pruned = ours.run(_prune(size, folder))
    ours.run(ours.app().close())
    return {
        "last_ratio": rates[-1] / rates[0],
        "slowest_ratio": min(rates) / rates[0],
        "finish_first": rates[0],
        "finish_last": rates[-1],
        "submit_first": submits[0],
        "submit_last": submits[-1],
        "prune_per_second": pruned,
        "peak_mb": memory,
    }


async def _submit(size: int) -> float:
    started = time.perf_counter()
    await ours.app().submit(ours.noop(), range(size))
    return size / (time.perf_counter() - started)


async def _finish(n: int, size: int) -> list[float]:
    """Items per second of each part of the items, in the order in which they end."""
    client = await ours.app().open()
    marks, begun = [(0, time.perf_counter())], 0
    async with ours.app().working(concurrency=ours.CONCURRENCY):
        while begun < n:
            await asyncio.sleep(LOOK_SECONDS)
            jobs = await client.store.job_views.page("local", n=JOBS)
            begun = sum(job.done for job in jobs)
            if begun >= marks[-1][0] + size or begun == n:
                marks.append((begun, time.perf_counter()))
    return [(b - a) / (then - when) for (a, when), (b, then) in pairwise(marks) if b - a >= size]


async def _prune(size: int, folder: str) -> float:
    client: Any = await ours.app().open()
    rules = PruneRules(age_ms=None, keep=JOBS - 1, archive=True, quiet_ms=0)
    started = time.perf_counter()
    async for one in Pruner(client.store, artifacts_at(folder), client.clock, rules).run():
        assert not one.skipped, one.skipped
    return size / (time.perf_counter() - started)
