"""A fresh database whose clock the test moves, the same on SQLite and on PostgreSQL."""

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from backstay.clock import Clock
from backstay.store.databases.database import Database
from backstay.store.databases.postgres import PostgresDatabase
from backstay.store.databases.sqlite import SQLiteDatabase
from backstay.store.store import Store
from tests.servers.reused_databases import DISCONNECT, EMPTY

START_MS = 1_800_000_000_000
FROZEN_SQL = "(SELECT ms FROM test_clock)"
FLOWING_SQL = f"(CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) + {FROZEN_SQL})"


def fresh_database(*kinds: str, later: str | None = None) -> Any:
    """The fixture `database_url` on these kinds of database. The kind that comes `later` is for `make test-all`: where
    the kind matters little, because the tests of the store run on both, one of them is enough at first."""
    params: list[Any] = list(kinds)
    if later is not None:
        params.append(pytest.param(later, marks=pytest.mark.slow))

    @pytest.fixture(name="database_url", params=params)
    def database_url(request: pytest.FixtureRequest) -> str:
        url: str = request.getfixturevalue("sqlite_file_url" if request.param == "sqlite" else "postgres_url")
        return url

    return database_url


class Ticker(Clock):
    """Stands still until a test moves it."""

    now_sql = FROZEN_SQL

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class Leaping(Clock):
    """Runs like the machine's clock, and leaps ahead when a test says so."""

    now_sql = FLOWING_SQL

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ms

    def monotonic(self) -> float:
        return time.monotonic() + self.ms / 1000


class Site:
    """A migrated database, its clock, and a way to look at its rows behind the store's back."""

    def __init__(self, url: str, clock: Ticker | Leaping) -> None:
        self.url = url
        self.clock = clock
        self._stores: list[Store] = []

    @property
    def is_postgres(self) -> bool:
        return self.url.startswith("postgresql://")

    @property
    def path(self) -> str:
        return self.url.removeprefix("sqlite:///")

    async def empty(self) -> None:
        """Makes a used PostgreSQL database as good as new; an SQLite file is new."""
        if self.is_postgres:
            await self.answers(DISCONNECT, EMPTY, f"INSERT INTO test_clock VALUES ({self.clock.ms})")

    async def advance(self, seconds: float) -> None:
        self.clock.ms += round(seconds * 1000)
        if self.is_postgres:
            await self.rows(f"UPDATE test_clock SET ms = {self.clock.ms}")

    def database(self) -> Database:
        if self.is_postgres:
            return PostgresDatabase(self.url, self.clock, now_sql=self.clock.now_sql)
        return SQLiteDatabase(self.path, self.clock)

    async def lend_store(self) -> Store:
        """An open store that the borrower closes."""
        store = Store(self.database())
        await store.open()
        return store

    async def open_store(self) -> Store:
        """An open store that is closed with the site."""
        store = await self.lend_store()
        self._stores.append(store)
        return store

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return (await self.answers(sql))[0]

    async def answers(self, *questions: str) -> list[list[tuple[Any, ...]]]:
        """The rows of each, over one connection: on PostgreSQL that is what takes time."""
        if self.is_postgres:
            connection = await asyncpg.connect(self.url)
            try:
                return [[tuple(row) for row in await connection.fetch(sql)] for sql in questions]
            finally:
                await connection.close()
        return await asyncio.to_thread(self._sqlite_answers, questions)

    def _sqlite_answers(self, questions: tuple[str, ...]) -> list[list[tuple[Any, ...]]]:
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        try:
            return [connection.execute(sql).fetchall() for sql in questions]
        finally:
            connection.close()

    async def one(self, sql: str) -> Any:
        return (await self.rows(sql))[0][0]

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"
