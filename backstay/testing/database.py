"""SQLite in memory without threads: one connection, and an await before and after every script."""

import sqlite3
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from backstay.clock import Clock
from backstay.store.databases import schema
from backstay.store.databases.sqlite import connect, run_script
from backstay.store.queries import SQLITE, Script

T = TypeVar("T")


@cache
def _template() -> sqlite3.Connection:
    """A migrated, empty database in memory, made once and copied for each test."""
    made = sqlite3.connect(":memory:", check_same_thread=False)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "template.db")
        schema.create_sqlite(path)
        file = connect(path)
        file.backup(made)
        file.close()
    return made


def _fresh() -> sqlite3.Connection:
    connection = connect(":memory:")
    _template().backup(connection)
    return connection


class InlineSQLite:
    """The store's database for virtual time. Databases made with `on` share its data: another process, same file."""

    dialect, listens, wakes = SQLITE, False, False

    def __init__(self, clock: Clock, on: "InlineSQLite | None" = None) -> None:
        self.clock = clock
        self.connection: sqlite3.Connection = _fresh() if on is None else on.connection

    async def open(self) -> None:
        """It is open from the start."""

    async def close(self) -> None:
        """Its data lives as long as the object."""

    async def single(self, make: Callable[[], Script[T]]) -> T:
        return await self.write(make)

    async def write(self, make: Callable[[], Script[T]]) -> T:
        await self.clock.sleep(0)  # a process that dies here never asked
        value = self.commit(make)
        await self.clock.sleep(0)  # a process that dies here never got the answer
        return value

    async def read(self, make: Callable[[], Script[T]]) -> T:
        return await self.write(make)

    def commit(self, make: Callable[[], Script[T]]) -> T:
        """Runs one script in one transaction, all or nothing."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            value = run_script(self.connection, make(), self.clock.now_ms())
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")
        return value

    async def notify(self) -> None:
        """Nothing to do: workers in virtual time poll."""

    async def listen(self, wake: Callable[[], None]) -> None:
        """Nothing to do: nothing notifies here."""
