"""What more processes of one `backstay worker` bring: for calls that only wait, and for items that cost nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from backstay import Backstay, Job
from backstay.wiring import migrate
from bench.contestant import settle_down

CALL_SECONDS = 0.5
CONCURRENCY = 100
PROCESSES = (1, 2, 4, 8)
FREE_CONCURRENCY = 1_000
FREE_PROCESSES = (1, 2)
LOOK_SECONDS = 0.1
# The rate is taken where all processes work: not while they start, nor while the last items end.
FROM, UNTIL = 0.2, 0.9

app = Backstay()


@app.handler()
async def wait(item: int) -> None:
    await asyncio.sleep(CALL_SECONDS)


@app.handler()
async def noop(item: int) -> int:
    return item


def prepare(url: str) -> None:
    os.environ["BACKSTAY_DATABASE_URL"] = url  # for the workers too
    app.settings = app.settings.model_copy(update={"database_url": url})
    asyncio.run(migrate(url))


def waiting(seconds: int) -> dict[str, float]:
    """Calls of half a second: N processes should do N times as much as one."""
    one_process = CONCURRENCY / CALL_SECONDS
    rates = {n: _rate("wait", int(n * one_process * seconds), n, CONCURRENCY) for n in PROCESSES}
    each = {f"with_{n}": rate for n, rate in rates.items()}
    return {"share_of_linear": min(rate / (n * rates[1]) for n, rate in rates.items()), **each}


def free(n: int) -> dict[str, float]:
    """Items that cost nothing, with the database on the same cores: how much of a second process is left to use."""
    rates = {processes: _rate("noop", n, processes, FREE_CONCURRENCY) for processes in FREE_PROCESSES}
    return {"gain": rates[2] / rates[1], **{f"with_{n}": rate for n, rate in rates.items()}}


def _rate(handler: str, n: int, processes: int, concurrency: int) -> float:
    with asyncio.Runner() as runner:
        job = runner.run(app.submit(handler, range(n)))
        settle_down(app.url)
        with _worker(processes, concurrency):
            rate = runner.run(_rate_of(job, n))
        runner.run(app.close())
    return rate


async def _rate_of(job: Job[Any], n: int) -> float:
    marks: list[tuple[int, float]] = []
    while not marks or marks[-1][0] < UNTIL * n:
        await asyncio.sleep(LOOK_SECONDS)
        done = (await job.show()).done
        if done >= FROM * n and (not marks or done > marks[-1][0]):
            marks.append((done, time.perf_counter()))
    (first, begun), (last, ended) = marks[0], marks[-1]
    await job.wait()
    return (last - first) / (ended - begun)


@contextmanager
def _worker(processes: int, concurrency: int) -> Iterator[None]:
    command = [sys.executable, "-m", "backstay", "worker", "--app", "bench.processes:app", "--log-level", "error"]
    worker = subprocess.Popen([*command, "--processes", str(processes), "--concurrency", str(concurrency)])
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(60)
