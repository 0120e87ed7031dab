"""Open connections to PostgreSQL go silent, as behind a router that forgot them: workers notice and use new ones."""

import asyncio
import subprocess
import time
from pathlib import Path

import pytest

from backstay import Job
from tests.servers.fault_proxy import FaultProxy
from tests.stories.stage import Stage, paid_twice, terminate, until

WORKERS = 4
CONCURRENCY = 20
ITEMS = 400
NOTICED_SECONDS = 25.0
GRACE_SECONDS = 30.0  # the default of shutdown_seconds


async def start_workers(stage: Stage, proxy: FaultProxy) -> list[subprocess.Popen[str]]:
    """With the limits that everyone has who changed nothing; only they go through the proxy."""
    there = {"BACKSTAY_DATABASE_URL": proxy.url(stage.url), "STORY_DEFAULT_LIMITS": "1"}
    workers = [stage.worker(CONCURRENCY, **there) for _ in range(WORKERS)]
    for worker in workers:
        await stage.working(worker)
    return workers


async def done(job: Job) -> int:
    return (await job.show()).done


@pytest.mark.slow
async def test_workers_whose_connections_go_silent_notice_it_and_pay_for_nothing_twice(
    postgres_url: str, tmp_path: Path
) -> None:
    async with FaultProxy.of(postgres_url) as proxy, Stage(postgres_url, tmp_path) as stage:
        await stage.manners("unaskable", seconds_min=1.5, seconds_max=2.5)
        workers = await start_workers(stage, proxy)
        job = await stage.submit("unaskable", range(ITEMS))
        await stage.in_flight("unaskable", WORKERS * CONCURRENCY // 2)
        proxy.forget()
        silent_at, before = time.monotonic(), await done(job)

        async def goes_on() -> bool:  # more than what was in flight: new items were claimed
            return await done(job) > before + WORKERS * CONCURRENCY

        await until(goes_on, "work goes on over new connections", NOTICED_SECONDS)
        for worker in workers:
            await stage.said(worker, "silent", NOTICED_SECONDS - (time.monotonic() - silent_at))
        view = await job.wait(timeout_seconds=60)
        assert (view.succeeded, view.repeats) == (ITEMS, 0)
        assert paid_twice(await stage.bill()) == []
        assert {line["event"] for line in stage.spoken("worker") if "silent" in str(line)} == {"trouble"}

        proxy.forget()
        began = time.monotonic()
        for worker in workers:
            terminate(worker)
        assert await asyncio.gather(*map(stage.ended, workers)) == [0] * WORKERS
        assert time.monotonic() - began < GRACE_SECONDS
        assert stage.plain_lines("worker") == []


@pytest.mark.slow
async def test_a_worker_that_reaches_nobody_any_more_still_ends_in_order(postgres_url: str, tmp_path: Path) -> None:
    async with FaultProxy.of(postgres_url) as proxy, Stage(postgres_url, tmp_path) as stage:
        there = {"BACKSTAY_DATABASE_URL": proxy.url(stage.url), "STORY_DEFAULT_LIMITS": "1"}
        worker = stage.worker(CONCURRENCY, **there)
        await stage.working(worker)
        proxy.black_hole()
        began = time.monotonic()
        terminate(worker)
        assert await stage.ended(worker) == 0
        assert time.monotonic() - began < GRACE_SECONDS
