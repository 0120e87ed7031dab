"""The same SQL as Backstay's in a bare loop: what the database alone allows."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any, Protocol

import asyncpg
import uvloop

from backstay.core.ids import item_id
from backstay.core.models import Attempt, Claimed
from backstay.store.databases.sqlite import connect
from backstay.store.queries import POSTGRES, SQLITE, queries_for
from backstay.store.submissions import CHUNK_ITEMS, ITEM_COLUMNS
from backstay.wiring import migrate

BATCH = 500

_at: dict[str, Any] = {}


class BareLoop(Protocol):
    """Three verbs on one connection, with Backstay's tables and SQL and nothing else around them."""

    def submit(self, n: int) -> None: ...

    def claim(self, n: int) -> list[Any]: ...

    def settle(self, rows: list[Any]) -> None: ...


# What a settlement of a first try that succeeded says of every item alike.
FATE: dict[str, Any] = {
    "was": "submitting",
    "state": "succeeded",
    "attempt_count": 1,
    "round": 0,
    "rescues": 0,
    "repeats": 0,
    "account": None,
    "error_code": None,
    "timed_out": 0,
    "progress": None,
}
LEASE: dict[str, Any] = {"handler": "noop", "n": BATCH, "worker": "bare", "lease_ms": 90_000, "reconcile_ms": 90_000}
JOB: dict[str, Any] = {
    **dict.fromkeys(
        ("retry", "delivery", "label", "deadline_ms", "idempotency_key", "budget_micros", "handler_then", "move_ms")
    ),
    **{"owner": "bare", "handler": "noop", "priority": 0, "ref_seed": "", "job_timeout_ms": 3_600_000},
    **{"digest": "", "sealed": 1},
}


def chunks(n: int) -> Iterator[tuple[list[Any], list[Any]]]:
    """The rows of items and requests, as many at a time as Backstay writes in one transaction."""
    first = item_id(1, 0)
    for low in range(0, n, CHUNK_ITEMS):
        ids = range(first + low, first + min(low + CHUNK_ITEMS, n))
        yield [(id, 1, "noop", "queued", id, 1, 1, None) for id in ids], [(id, "1") for id in ids]


def attempts(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [
        (item.id, item.fence, 1, "succeeded", item.started_at, item.claimed_at, None, None, None, "1", None, None, None)
        for item in map(Claimed._make, rows)
    ]


def batch(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [(row[0], row[4], None, None) for row in rows]


def counted(rows: list[Any]) -> tuple[int, ...]:
    """What a batch of successes adds to the job's counters, in the columns of count_items."""
    return (1, 0, len(rows), *[0] * (len(queries_for(SQLITE)["count_items"].columns) - 3))


class SQLiteLoop:
    def __init__(self, url: str) -> None:
        self.queries = queries_for(SQLITE)
        self.connection = connect(url.removeprefix("sqlite:///"))

    def ask(self, name: str, **values: Any) -> list[Any]:
        return self.connection.execute(self.queries[name].sql, {"now": 2, **values}).fetchall()

    def load(self, table: str, columns: tuple[str, ...], rows: list[Any]) -> None:
        marks = ", ".join("?" * len(columns))
        self.connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)

    def submit(self, n: int) -> None:
        self.ask("create_job", total=n, **JOB)
        for items, requests in chunks(n):
            self.connection.execute("BEGIN IMMEDIATE")
            self.load("items", ITEM_COLUMNS, items)
            self.load("requests", ("item_id", "body"), requests)
            self.connection.execute("COMMIT")

    def claim(self, n: int) -> list[Any]:
        self.connection.execute("BEGIN IMMEDIATE")
        rows = self.ask("claim", **LEASE)
        self.connection.execute("COMMIT")
        return rows

    def settle(self, rows: list[Any]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.ask("settle_items", batch=json.dumps(batch(rows)), **FATE)
        self.load("attempts", Attempt._fields, attempts(rows))
        self.ask("count_items", batch=json.dumps([counted(rows)]))
        self.connection.execute("COMMIT")


class PostgresLoop:
    def __init__(self, url: str) -> None:
        self.queries = queries_for(POSTGRES)
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.connection = self.runner.run(asyncpg.connect(url))

    async def ask(self, name: str, rows: list[Any] | None = None, **values: Any) -> list[Any]:
        query = self.queries[name]
        if rows is not None:
            columns = zip(*rows, strict=True)
            values |= {f"batch_{name}": list(column) for name, column in zip(query.columns, columns, strict=True)}
        found: list[Any] = await self.connection.fetch(query.sql, *[values[name] for name in query.names])
        return found

    def submit(self, n: int) -> None:
        self.runner.run(self._submit(n))

    def claim(self, n: int) -> list[Any]:
        return self.runner.run(self._claim())

    def settle(self, rows: list[Any]) -> None:
        self.runner.run(self._settle(rows))

    async def _submit(self, n: int) -> None:
        await self.ask("create_job", total=n, **JOB)
        for items, requests in chunks(n):
            async with self.connection.transaction():
                await self.connection.copy_records_to_table("items", records=items, columns=ITEM_COLUMNS)
                await self.connection.copy_records_to_table("requests", records=requests, columns=("item_id", "body"))

    async def _claim(self) -> list[Any]:
        async with self.connection.transaction():
            return await self.ask("claim", **LEASE)

    async def _settle(self, rows: list[Any]) -> None:
        async with self.connection.transaction():
            await self.ask("settle_items", batch(rows), **FATE)
            await self.connection.copy_records_to_table("attempts", records=attempts(rows), columns=Attempt._fields)
            await self.ask("count_items", [counted(rows)])


def prepare(url: str) -> None:
    asyncio.run(migrate(url))
    _at["loop"] = SQLiteLoop(url) if url.startswith("sqlite:") else PostgresLoop(url)


def submit(n: int) -> float:
    started = time.perf_counter()
    _at["loop"].submit(n)
    return time.perf_counter() - started


def finish(n: int) -> float:
    loop: BareLoop = _at["loop"]
    finished = 0
    started = time.perf_counter()
    while rows := loop.claim(BATCH):
        loop.settle(rows)
        finished += len(rows)
    seconds = time.perf_counter() - started
    assert finished == n, f"{finished} of {n} finished"
    return seconds
