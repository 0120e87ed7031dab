"""SQLite: one writer thread that commits in groups, one reader thread, both on the standard library's driver."""

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from backstay.clock import Clock
from backstay.core.errors import DatabaseUnreachable
from backstay.store.queries import SQLITE, Ask, Load, Script, json_rows, queries_for

T = TypeVar("T")

BUSY_SECONDS = 30
GROUP_SCRIPTS_MAX = 64
LOAD_ROWS = 100

_Work = tuple[Callable[[], Script[Any]], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


def connect(path: str) -> sqlite3.Connection:
    """A connection that survives power cuts (WAL, synchronous=FULL) and waits for other processes' writes."""
    _make_private(path)
    try:
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -16000")
        connection.execute("PRAGMA temp_store = MEMORY")
    except sqlite3.Error as error:
        where = Path(path).name
        raise DatabaseUnreachable(f"cannot open the SQLite database {where}: {error}") from error
    return connection


def _make_private(path: str) -> None:
    """Only its user can read a new file: it holds prompts and answers. SQLite gives the files beside it its mode.

    An existing file keeps its mode. If the file cannot be created, SQLite reports why.
    """
    if path == ":memory:":  # not a file
        return
    with suppress(OSError):
        os.close(os.open(os.path.realpath(path), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def run_script(connection: sqlite3.Connection, script: Script[T], now_ms: int) -> T:
    """Drives one script to its end inside the caller's transaction."""
    answer: list[Any] | None = None
    while True:
        try:
            asked = script.send(answer)  # type: ignore[arg-type]
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = _load(connection, asked) if isinstance(asked, Load) else _ask(connection, asked, now_ms)


def _ask(connection: sqlite3.Connection, asked: Ask, now_ms: int) -> list[Any]:
    query = queries_for(SQLITE)[asked.name]
    values = {"now": now_ms, **asked.values}
    if asked.batch is not None:
        values["batch"] = json_rows(asked.batch)
    cursor = connection.execute(query.sql, values)
    if query.make is not None:
        return list(map(query.make, cursor.fetchall()))
    cursor.row_factory = sqlite3.Row  # which is read by name, as the rows of PostgreSQL are
    return cursor.fetchall()


def _load(connection: sqlite3.Connection, load: Load) -> list[Any]:
    """Many rows in one statement: between two statements the driver takes Python's lock, and may wait long for it."""
    marks = f"({', '.join('?' * len(load.columns))})"
    insert = f"INSERT INTO {load.table} ({', '.join(load.columns)}) VALUES "
    whole = len(load.rows) - len(load.rows) % LOAD_ROWS
    for start in range(0, whole, LOAD_ROWS):
        rows = load.rows[start : start + LOAD_ROWS]
        connection.execute(insert + ", ".join([marks] * LOAD_ROWS), tuple(chain.from_iterable(rows)))
    connection.executemany(insert + marks, load.rows[whole:])
    return []


class _File:
    """The file as it was opened. SQLite would continue in a file that was removed, and its data would be lost."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)  # the application may change its folder
        self._opened = self._identity()

    def check(self) -> None:
        if self._opened is None or self._identity() != self._opened:
            raise DatabaseUnreachable("the database file was removed or replaced; stop this process")

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino


class _Lane:
    """A thread with a connection of its own; scripts that queue up together share one commit."""

    def __init__(self, path: str, clock: Clock, begin: str) -> None:
        self._connection = connect(path)
        self._file = _File(path)
        self._clock = clock
        self._begin = begin
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="backstay-sqlite", daemon=True)
        self._thread.start()

    async def run(self, make: Callable[[], Script[T]]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put((make, loop, future))
        return await future

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (first := self._queue.get()) is not None:
            group = [first]
            ended = False
            while len(group) < GROUP_SCRIPTS_MAX and not self._queue.empty():
                work = self._queue.get()
                if work is None:
                    ended = True
                    break
                group.append(work)
            self._commit(group)
            if ended:
                break
        self._connection.close()

    def _commit(self, group: list[_Work]) -> None:
        """Runs a group in one transaction, each script in a savepoint, and answers only after the commit."""
        answers: list[tuple[_Work, Any, BaseException | None]] = []
        try:
            self._connection.execute(self._begin)
            for work in group:
                answers.append((work, *self._one(work[0])))
            self._file.check()
            self._connection.execute("COMMIT")
        except (sqlite3.Error, DatabaseUnreachable) as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            refusal = f"SQLite refused: {error}" if isinstance(error, sqlite3.Error) else str(error)
            answers = [(work, None, DatabaseUnreachable(refusal)) for work in group]
        for (_, loop, future), value, failure in answers:
            _answer(loop, future, value, failure)

    def _one(self, make: Callable[[], Script[T]]) -> tuple[T | None, BaseException | None]:
        self._connection.execute("SAVEPOINT script")
        try:
            value = run_script(self._connection, make(), self._clock.now_ms())
        except sqlite3.OperationalError:
            raise  # a full or failing disk: the callers of the group try again
        except Exception as error:  # passed on to the caller, who waits for it
            self._connection.execute("ROLLBACK TO script")
            self._connection.execute("RELEASE script")
            return None, error
        self._connection.execute("RELEASE script")
        return value, None


def _answer(
    loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", value: Any, failure: BaseException | None
) -> None:
    def deliver() -> None:
        if future.cancelled():
            return
        if failure is None:
            future.set_result(value)
        else:
            future.set_exception(failure)

    if not loop.is_closed():
        loop.call_soon_threadsafe(deliver)


class SQLiteDatabase:
    """A database file on this machine."""

    dialect, listens, wakes = SQLITE, False, False

    def __init__(self, path: str, clock: Clock) -> None:
        self.path = path
        self.clock = clock
        self._writer: _Lane | None = None
        self._reader: _Lane | None = None

    async def open(self) -> None:
        self._writer = _Lane(self.path, self.clock, "BEGIN IMMEDIATE")
        self._reader = _Lane(self.path, self.clock, "BEGIN")

    async def close(self) -> None:
        for lane in (self._writer, self._reader):
            if lane is not None:
                lane.close()
        self._writer = self._reader = None

    async def write(self, make: Callable[[], Script[T]]) -> T:
        return await self._lane(self._writer).run(make)

    async def single(self, make: Callable[[], Script[T]]) -> T:
        return await self.write(make)

    async def read(self, make: Callable[[], Script[T]]) -> T:
        return await self._lane(self._reader).run(make)

    def _lane(self, lane: _Lane | None) -> _Lane:
        if lane is None:
            raise DatabaseUnreachable("the database is not open", hint="open it first: async with Backstay(url)")
        return lane

    async def notify(self) -> None:
        """Nothing to do: workers of this process are woken directly, those of other processes poll often."""

    async def listen(self, wake: Callable[[], None]) -> None:
        """Nothing to do: SQLite cannot notify other processes; workers poll."""
