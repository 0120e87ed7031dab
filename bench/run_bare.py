"""A bare aiohttp loop that sends the same requests, reads the replies and stores nothing."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.command import Spent, spend
from bench.prompts import body
from bench.run_ours import CONCURRENCY, CONCURRENCY_SLOW

# What a person writes who needs no more than this, and tuned in its favour:
# - As many workers as requests at once: a task and a semaphore for every request cost more.
# - Bodies are made as it goes; no file is read, and no reply is parsed.
# - On asyncio's own event loop; `--uvloop` shows what another one gives.

_at = {"base_url": ""}


def prepare(base_url: str) -> None:
    _at["base_url"] = base_url


def rate(n: int) -> dict[str, float]:
    return whole_loop(n, CONCURRENCY).figures(n)


def slow_rate(n: int) -> dict[str, float]:
    return whole_loop(n, CONCURRENCY_SLOW).figures(n)


def quick_rate(n: int) -> dict[str, float]:
    return whole_loop(n, CONCURRENCY, "--uvloop").figures(n)


def whole_loop(n: int, concurrency: int, *options: str) -> Spent:
    command = [sys.executable, "-m", "bench.run_bare", _at["base_url"], str(n), str(concurrency), *options]
    with tempfile.TemporaryDirectory(prefix="bare-") as folder:
        return spend(command, Path(folder), os.environ)


async def loop(base_url: str, n: int, concurrency: int) -> None:
    import aiohttp

    headers = {"Authorization": "Bearer bench", "Content-Type": "application/json"}
    numbers = iter(range(n))
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        url = f"{base_url}/chat/completions"
        done = await asyncio.gather(*(send(session, url, numbers) for _ in range(concurrency)))
    assert sum(done) == n, f"{sum(done)} of {n} done"


async def send(session: object, url: str, numbers: Iterator[int]) -> int:
    """One of the workers: takes the next number until all are taken."""
    done = 0
    for number in numbers:
        async with session.post(url, data=json.dumps(body(number)).encode()) as response:  # type: ignore[attr-defined]
            assert response.status == 200, f"status {response.status}"
            assert await response.read()
            done += 1
    return done


if __name__ == "__main__":
    asked = loop(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    if "--uvloop" in sys.argv:
        import uvloop

        uvloop.run(asked)
    else:
        asyncio.run(asked)
