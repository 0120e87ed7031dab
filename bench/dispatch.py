"""Backstay over RabbitMQ: its worker with a broker, and its relay alone, on PostgreSQL."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import asyncio
import time
from typing import Any

from backstay.core.ids import item_id
from backstay.messaging.broker_session import broker_here, dispatching, topology_of
from backstay.messaging.connection import connect_once
from backstay.messaging.outbox_relay import relaying_work
from backstay.messaging.queues import depth_of
from backstay.store.outbox import WORK
from bench import ours
from bench.ours import CONCURRENCY, run
from bench.probes import NotMeasured

__all__ = ["finish", "prepare", "publish", "submit"]

SHARE_MIN = 0.8  # of the items, claimed because a message named them; the database has a turn every second
ITEMS = 50  # in each message, as in those of a bulk submit

FILL = """
INSERT INTO outbox (owner, aggregate_type, aggregate_id, message_type, payload, created_at, due_at, sink)
SELECT 'bench', 'items', CAST(n AS text), 'work.ready',
  '{"handler": "noop", "priority": 0, "first": ' || ($1 + n * $2) || ', "count": ' || $2 || '}', $4, $4, 'work'
FROM generate_series(CAST(0 AS bigint), CAST($3 AS bigint) - 1) AS n
"""

_at = ours._at


def prepare(urls: str) -> None:
    database, broker = urls.split()
    ours.prepare(database)
    app = _at["app"]
    app.settings = app.settings.model_copy(update={"broker_url": broker})
    run(_relay())  # from now on there are exchanges, and hints are written


def submit(n: int) -> float:
    """Until the messages are with the broker, as those of its peers are."""
    return ours.submit(n) + run(_relay())


def finish(n: int) -> float:
    named = _count_named()
    seconds = run(_work())
    run(_at["app"].close())
    if sum(named) < SHARE_MIN * n:
        raise NotMeasured(f"only {sum(named)} of {n} items were claimed by message")
    return seconds


def _count_named() -> list[int]:
    """How many items each claim by message has won from now on."""
    store = run(_at["app"].open()).store
    claim_named, won = store.items.claim_named, []

    async def counted(*arguments: Any) -> Any:
        taken = await claim_named(*arguments)
        won.append(len(taken.items))
        return taken

    store.items.claim_named = counted
    return won


async def _work() -> float:
    """The clock starts when the consumer is there, before the worker."""
    app = _at["app"]
    client = await app.open()
    async with (
        broker_here(app, client) as broker,
        dispatching(app, client, broker, CONCURRENCY) as hints,
    ):
        assert hints is not None
        while not hints.alive:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
        started = time.perf_counter()
        async with app.working(concurrency=CONCURRENCY, hints=hints):
            await _at["job"].wait()
        return time.perf_counter() - started


def publish(n: int) -> dict[str, float]:
    run(_fill(n))
    seconds = run(_relay())
    there = run(_depth())
    run(_at["app"].close())
    if there != n:
        raise NotMeasured(f"{there} messages are in the queue, not {n}")
    return {"publish_per_second": n / seconds}


async def _depth() -> int:
    """How many messages the broker has: a row that only left the outbox does not count."""
    app = _at["app"]
    queue = topology_of(app.settings).work_queue("noop")
    async with connect_once(app.settings.broker_url) as connection:
        found = await depth_of(connection, queue.name)
    return 0 if found is None else found.messages


async def _relay() -> float:
    """The relay of `backstay relay`, from its start until all that is in the outbox has left and is marked."""
    app = _at["app"]
    client = await app.open()
    async with broker_here(app, client) as broker:
        assert broker is not None
        while not broker.publishing:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
        started = time.perf_counter()
        async with relaying_work(app, client, broker):
            while (await client.store.outbox.lag(WORK)).rows:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)
        return time.perf_counter() - started


async def _fill(n: int) -> None:
    import asyncpg

    connection = await asyncpg.connect(_at["url"])
    now = time.time_ns() // 1_000_000 - 1_000  # written just now: old hints are dropped, not published
    await connection.execute(FILL, item_id(1, 0), ITEMS, n, now)
    await connection.execute("VACUUM ANALYZE")
    await connection.execute("CHECKPOINT")
    await connection.close()
