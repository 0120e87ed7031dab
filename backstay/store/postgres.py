"""PostgreSQL over an asyncpg pool: one short transaction per script, deadlocks tried again."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import asyncpg

from backstay.clock import Clock, Tasks
from backstay.core.errors import DatabaseUnreachable
from backstay.core.failures import one_line
from backstay.store.queries import FEW_ROWS_MAX, POSTGRES, Ask, Load, Script, queries_for
from backstay.store.urls import postgres_url

T = TypeVar("T")

TRIES_MAX = 5
COMMAND_SECONDS = 60
QUIET_SECONDS = 0.002

# Every statement of ours is a few index ranges. In a table of middling size the planner finds it cheaper to read all of
# it and hash, for one statement; for hundreds of them a second it is not. What then must scan seems dear enough to be
# compiled, at a tenth of a second each, so that is off too. PgBouncer takes no such settings.
PLANS = {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off"}
WAKE_CHANNEL = "backstay_wake"

_AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
# What PostgreSQL says of the data it was given; trying again would not help.
_DATA = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError)
# A restart, a failover, a full disk, a lock held too long, a right withdrawn: all of them pass, so all are waited out.
_UNREACHABLE = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


def _lost(error: BaseException) -> DatabaseUnreachable:
    return DatabaseUnreachable(
        f"PostgreSQL does not answer as it should: {type(error).__name__}: {one_line(str(error))}"
    )


async def _nothing_to_reset(connection: Any) -> None:
    """Scripts leave nothing behind in a session, so its reset would only be one more round trip for each."""


class PostgresDatabase:
    """A PostgreSQL database. Its own clock decides leases, retries and deadlines, whatever the workers' clocks say."""

    def __init__(self, url: str, clock: Clock, connections_max: int = 5, now_sql: str | None = None) -> None:
        self._url = postgres_url(url)
        self._clock = clock
        self._connections_max = connections_max
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._listener: asyncpg.Connection[asyncpg.Record] | None = None
        self._tasks = Tasks()
        self._ringing: asyncio.Task[None] | None = None
        self._rang_at = float("-inf")
        self.dialect = POSTGRES if now_sql is None else replace(POSTGRES, now=now_sql)
        self._queries = queries_for(self.dialect)

    async def open(self) -> None:
        try:
            self._pool = await asyncpg.create_pool(
                self._url.dsn,
                min_size=1,
                max_size=self._connections_max,
                command_timeout=COMMAND_SECONDS,
                timeout=10,
                statement_cache_size=self._url.statement_cache_size,
                reset=_nothing_to_reset,
                server_settings=PLANS if self._url.prepared_statements else {},
            )
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError, ValueError) as error:
            raise DatabaseUnreachable(
                f"cannot reach PostgreSQL: {str(error) or 'it did not answer in time'}"
            ) from error

    async def close(self) -> None:
        if self._ringing is not None:
            await self._ringing
        if self._listener is not None:
            await self._listener.close(timeout=5)
            self._listener = None
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                await asyncio.wait_for(pool.close(), timeout=5)
            except (TimeoutError, *_UNREACHABLE):
                pool.terminate()

    async def write(self, make: Callable[[], Script[T]]) -> T:
        return await self._run(make)

    async def single(self, make: Callable[[], Script[T]]) -> T:
        return await self.read(make)

    async def read(self, make: Callable[[], Script[T]]) -> T:
        """Statement by statement, without the round trips of a transaction; each is tried again by itself."""
        try:
            async with self._opened().acquire() as connection:
                return await self._drive(connection, make(), TRIES_MAX)
        except _DATA:
            raise
        except _UNREACHABLE as error:
            raise _lost(error) from error

    async def notify(self) -> None:
        """Tells idle workers to look now: at once, and then at most every few milliseconds, however many submit.

        A hint: polling alone suffices. PostgreSQL takes a lock for the whole database at every commit that notifies.
        """
        if not self._url.listen or self._ringing is not None:
            return
        wait = self._rang_at + QUIET_SECONDS - self._clock.monotonic()
        if wait > 0:
            self._ringing = self._tasks.spawn(self._ring_later(wait))
            return
        with suppress(DatabaseUnreachable):  # only a hint is lost
            await self._ring()

    async def _ring_later(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._ringing = None
        with suppress(DatabaseUnreachable):  # the workers look by themselves when it is back
            await self._ring()

    async def _ring(self) -> None:
        self._rang_at = self._clock.monotonic()
        try:
            async with self._opened().acquire() as connection:
                await connection.execute(f"NOTIFY {WAKE_CHANNEL}")
        except _DATA:
            raise
        except _UNREACHABLE as error:
            raise _lost(error) from error

    async def listen(self, wake: Callable[[], None]) -> None:
        """Calls `wake` on every hint; call again when the connection was lost."""
        if not self._url.listen or (self._listener is not None and not self._listener.is_closed()):
            return
        connection = await asyncpg.connect(self._url.dsn, timeout=10)
        await connection.add_listener(WAKE_CHANNEL, lambda *_: wake())
        self._listener = connection

    def _opened(self) -> "asyncpg.Pool[asyncpg.Record]":
        if self._pool is None:
            raise DatabaseUnreachable("the database is not open", hint="open it first: async with Backstay(url)")
        return self._pool

    async def _run(self, make: Callable[[], Script[T]]) -> T:
        pool = self._opened()
        for left in reversed(range(TRIES_MAX)):
            try:
                async with pool.acquire() as connection, connection.transaction():
                    return await self._drive(connection, make())
            except _AGAIN as error:
                if left == 0:
                    raise _lost(error) from error
            except _DATA:
                raise
            except _UNREACHABLE as error:
                raise _lost(error) from error
        raise AssertionError("unreachable")

    async def _drive(self, connection: Any, script: Script[T], tries_max: int = 1) -> T:
        answer: list[Any] | None = None
        while True:
            try:
                asked = script.send(answer)  # type: ignore[arg-type]
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer = await self._answer(connection, asked, tries_max)

    async def _answer(self, connection: Any, asked: Ask | Load, tries_max: int) -> list[Any]:
        for left in reversed(range(tries_max)):
            try:
                if isinstance(asked, Load):
                    return await self._load(connection, asked)
                return await self._ask(connection, asked)
            except _AGAIN:
                if left == 0:
                    raise
        raise AssertionError("unreachable")

    async def _ask(self, connection: Any, asked: Ask) -> list[Any]:
        query = self._queries[asked.name]
        values = asked.values
        if asked.batch is not None:
            columns = zip(*asked.batch, strict=True) if asked.batch else ([] for _ in query.columns)
            values = {
                **values,
                **{f"batch_{name}": list(column) for name, column in zip(query.columns, columns, strict=True)},
            }
        return await connection.fetch(query.sql, *[values[name] for name in query.names])  # type: ignore[no-any-return]

    async def _load(self, connection: Any, load: Load) -> list[Any]:
        if len(load.rows) > FEW_ROWS_MAX:
            await connection.copy_records_to_table(load.table, records=load.rows, columns=load.columns)
        else:  # one round trip instead of three
            marks = ", ".join(f"${n}" for n in range(1, len(load.columns) + 1))
            insert = f"INSERT INTO {load.table} ({', '.join(load.columns)}) VALUES ({marks})"
            await connection.executemany(insert, load.rows)
        return []
