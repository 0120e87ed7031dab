"""Backstay itself, measured the way its peers are."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import asyncio
import re
import statistics
import sys
import time
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import uvloop

from backstay import Backstay
from backstay.clock import collect_rarely
from backstay.store.outbox import MESSAGES
from backstay.wiring import migrate
from bench.contestant import held_transaction, settle_down
from bench.idle_worker import PAUSE_SECONDS, WARM_UP, idle_worker, until_told_to_stop
from bench.orders import TABLE, commits_per_second
from bench.probes import NotMeasured

# A peer's clock starts with its first handler; ours starts before the worker does.
CONCURRENCY = 1_000
SMALL_CONCURRENCY = 100

T = TypeVar("T")
_at: dict[str, Any] = {}


def prepare(url: str) -> None:
    collect_rarely()  # as `backstay worker` does
    # One loop from first to last, because the job is submitted in one call and waited for in the next.
    _at["loop"] = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    _at["url"] = url
    _at["app"], _at["noop"] = application(url)
    run(migrate(url))
    run(_at["app"].open())


def application(url: str) -> tuple[Any, Any]:
    app = Backstay(url)

    @app.handler()
    async def noop(item: int) -> int:
        return item

    return app, noop


def app() -> Any:
    return _at["app"]


def noop() -> Any:
    return _at["noop"]


def url() -> str:
    return str(_at["url"])


def run(work: Coroutine[Any, Any, T]) -> T:
    done: T = _at["loop"].run(work)
    return done


def submit(n: int) -> float:
    started = time.perf_counter()
    _at["job"] = run(_at["app"].submit(_at["noop"], range(n)))
    return time.perf_counter() - started


def finish(n: int) -> float:
    started = time.perf_counter()
    run(_work())
    seconds = time.perf_counter() - started
    run(_at["app"].close())
    return seconds


async def _work(concurrency: int = CONCURRENCY) -> None:
    async with _at["app"].working(concurrency=concurrency):
        await _at["job"].wait()


def free(n: int) -> dict[str, float]:
    """A drain at a smaller concurrency."""
    return _drain_small(n, nullcontext())


def held(n: int) -> dict[str, float]:
    """The same while another transaction is held open all along."""
    return _drain_small(n, held_transaction(_at["url"]))


def _drain_small(n: int, around: AbstractContextManager[None]) -> dict[str, float]:
    submit(n)
    settle_down(_at["url"])
    with around:
        started = time.perf_counter()
        run(_work(SMALL_CONCURRENCY))
        seconds = time.perf_counter() - started
    run(_at["app"].close())
    return {"finish_per_second": n / seconds}


def limited(n: int) -> dict[str, float]:
    """The same work for a handler that declares a rate and a cost, neither of which ever stops it."""

    @_at["app"].handler("limited", rate="1000000000/min", cost=0.002)
    async def limited_noop(item: int) -> int:
        return item

    _at["job"] = run(_at["app"].submit("limited", range(n)))
    settle_down(_at["url"])
    return {"finish_per_second": n / finish(n)}


def with_item_events(n: int) -> dict[str, float]:
    """The same work with the setting `item_events`, and a broker's sink that takes every event."""
    run(_switch_item_events_on())
    submit(n)
    settle_down(_at["url"])
    seconds = finish(n)
    told = run(_items_told())
    run(_at["app"].close())
    if told != 2 * n:
        raise NotMeasured(f"the events tell of {told} changes, not {2 * n}")
    return {"finish_per_second": n / seconds}


async def _switch_item_events_on() -> None:
    app = _at["app"]
    await app.close()
    app.settings = app.settings.model_copy(update={"item_events": True})
    await (await app.open()).store.outbox.open_sink(MESSAGES)


async def _items_told() -> int:
    """Of how many changes the events tell: each item is claimed and succeeds."""
    outbox = (await _at["app"].open()).store.outbox
    told = 0
    while messages := await outbox.claim(MESSAGES, 500, 3_600_000):
        told += sum(message.payload.count('{"id":"') for message in messages) - len(messages)
        await outbox.published([message.id for message in messages])
    return told


def memory(n: int) -> dict[str, float]:
    """Items from a generator, submitted and run; the peak of this very process."""
    _at["job"] = run(_at["app"].submit(_at["noop"], (item for item in range(n))))
    finish(n)
    return {"peak_mb": peak_mb()}


def peak_mb() -> float:
    """The most memory that this process has had."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def latency(n: int) -> dict[str, float]:
    with idle_worker("bench.ours", _at["url"]):
        spent = run(_one_by_one(n))
    run(_at["app"].close())
    return {"p50_ms": statistics.median(spent) / 1e6}


async def _one_by_one(n: int) -> list[int]:
    spent = []
    for item in range(n + WARM_UP):
        sent = time.monotonic_ns()
        job = await _at["app"].submit(_at["noop"], [item])
        await job.wait()
        spent.append(time.monotonic_ns() - sent)
        await asyncio.sleep(PAUSE_SECONDS)
    return spent[-n:]


def submit_transaction(n: int) -> dict[str, float]:
    figures = run(_submit_inside(n))
    run(_at["app"].close())
    return figures


async def _submit_inside(n: int) -> dict[str, float]:
    connection = await asyncpg.connect(_at["url"])
    await connection.execute(TABLE)

    async def commit(number: int) -> None:
        async with connection.transaction():
            await connection.execute("INSERT INTO orders VALUES ($1)", number)
            await _at["app"].submit(_at["noop"], [number], connection=connection)

    figures = await commits_per_second(n, commit)
    await connection.close()
    return figures


async def _worker(url: str) -> None:
    app, _ = application(url)
    await app.open()
    async with app.working(concurrency=CONCURRENCY):
        await until_told_to_stop()
    await app.close()


if __name__ == "__main__":
    uvloop.run(_worker(sys.argv[1]))
