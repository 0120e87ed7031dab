"""PostgreSQL over an asyncpg pool: one short transaction per script, deadlocks tried again."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import asyncpg

from backstay.clock import Clock, Tasks, new_id
from backstay.core.errors import DatabaseRefused, DatabaseUnreachable
from backstay.core.failures import one_line
from backstay.store.databases.database import PostgresUrl, postgres_url
from backstay.store.databases.silence import Silence, Use
from backstay.store.queries import FEW_ROWS_MAX, POSTGRES, Ask, Load, Row, Script, array_values, queries_for

T = TypeVar("T")

TRIES_MAX = 5
CONNECT_SECONDS = 10
SERVER_SECONDS = 3  # to connect to each of several servers: one that is gone must not delay the others for long
COMMAND_SECONDS = 60
RELEASE_SECONDS = 2  # for PostgreSQL to confirm that a statement was cancelled
CLOSE_SECONDS = 3
QUIET_SECONDS = 0.002
LONG_TEXT = 10_000  # characters; a few rows of shorter ones are sent at once over any line
LISTENER_SECONDS = 30.0  # how often a connection that only listens is checked

# Every statement of ours is a few index ranges. In a medium-sized table the planner prefers a full scan with a hash.
# That is cheaper for one statement, but not for hundreds of them per second. The remaining scans look expensive enough
# for JIT compilation, which takes a tenth of a second each, so JIT is off too. Each statement is planned once: planning
# costs as much as a claim, and locks every index of its tables, which many workers then wait for.
PLANS = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}
# TCP keepalives of the server: routers keep the connection, and a host that is gone loses its locks after half a minute
# instead of two hours. PgBouncer does not accept these settings.
KEEPALIVES = {"tcp_keepalives_idle": "15", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
WAKE_CHANNEL = "backstay_wake"
ACCOUNT_HINT = "correct the user and the password in the URL; write special characters as %XX"

_AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
# Errors about the data itself; a retry would not help.
_DATA = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError)
# A restart, a failover, a full disk, a lock held too long, a revoked right: all of these can end, so they are retried.
_UNREACHABLE = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
# Errors of a server that refuses the login; waiting would not help.
_REFUSED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.InterfaceError,
    ValueError,
)


def cannot_reach(error: Exception) -> DatabaseUnreachable:
    """The error of a connection that cannot be made."""
    kind = DatabaseRefused if isinstance(error, _REFUSED) else DatabaseUnreachable
    hint = ACCOUNT_HINT if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError) else None
    return kind(f"cannot reach PostgreSQL: {str(error) or 'it did not answer in time'}", hint=hint)


def _unreachable(error: BaseException) -> DatabaseUnreachable:
    return DatabaseUnreachable(f"unexpected answer from PostgreSQL: {type(error).__name__}: {one_line(str(error))}")


# Errors of one of several servers for which another may stand in: it is gone, starts, stops, or takes no writes.
_TRY_NEXT = (
    OSError,
    TimeoutError,
    asyncpg.CannotConnectNowError,
    asyncpg.TargetServerAttributeNotMatched,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
)


async def connect(url: PostgresUrl, **options: Any) -> "asyncpg.Connection[asyncpg.Record]":
    """A connection to the first server of a URL that takes it."""
    return await _connect_to_one(list(url.dsns), statement_cache_size=url.statement_cache_size, **options)


async def _connect_to_one(servers: list[str], **options: Any) -> "asyncpg.Connection[asyncpg.Record]":
    """The server that takes the connection becomes the first of the list."""
    options.setdefault("timeout", CONNECT_SECONDS if len(servers) == 1 else SERVER_SECONDS)
    *others, last = servers
    for server in others:
        with suppress(*_TRY_NEXT):
            return await _connect_first(servers, server, options)
    return await _connect_first(servers, last, options)


async def _connect_first(
    servers: list[str], server: str, options: dict[str, Any]
) -> "asyncpg.Connection[asyncpg.Record]":
    made: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(server, **options)
    if servers[0] != server:
        servers.remove(server)
        servers.insert(0, server)
    return made


async def _release(pool: "asyncpg.Pool[asyncpg.Record]", connection: Any) -> None:
    """Gives back a connection whose use was interrupted: its statement may not have been cancelled completely yet."""
    with suppress(*_UNREACHABLE):  # then the driver has cut it off
        await pool.release(connection, timeout=RELEASE_SECONDS)


async def _skip_reset(connection: Any) -> None:
    """Scripts leave nothing in a session, so a reset would only add a round trip."""


def _is_much(batch: Sequence[Row]) -> bool:
    """Whether a batch is so large that a slow line may take a while for it. To count bytes costs more than to look."""
    return len(batch) > FEW_ROWS_MAX or any(
        len(value) > LONG_TEXT for row in batch for value in row if type(value) is str
    )


class PostgresDatabase:
    """A PostgreSQL database. Its own clock decides about leases, retries and deadlines, not the clocks of the workers,
    and the given clock follows it."""

    wakes = False

    def __init__(self, url: str, clock: Clock, now_sql: str | None = None) -> None:
        self._url = postgres_url(url)
        self._servers = list(self._url.dsns)  # the one that took the last connection first
        self.clock = clock
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._listener: asyncpg.Connection[asyncpg.Record] | None = None
        self._made: WeakValueDictionary[str, asyncpg.Connection[asyncpg.Record]] = WeakValueDictionary()  # for the pool
        self._heard_at = 0.0
        self._silence = Silence(clock, self._connect, self._drop_idle)
        self._tasks, self._releases = Tasks(), Tasks()
        self._ringing: asyncio.Task[None] | None = None
        self._rang_at = float("-inf")
        self.dialect = POSTGRES if now_sql is None else replace(POSTGRES, now=now_sql)
        self._queries = queries_for(self.dialect)
        self.listens = self._url.listen

    async def open(self) -> None:
        try:
            self._pool = await asyncpg.create_pool(
                self._url.dsns[0],
                min_size=0,  # the driver logs every attempt to restore session state; nothing here needs that
                max_size=self._url.pool_max,
                command_timeout=COMMAND_SECONDS,
                reset=_skip_reset,
                server_settings=PLANS if self._url.prepared_statements else {},
                connect=self._connect_for_pool,
            )
            async with self._pool.acquire():
                self._tasks.spawn(self._silence.watch())
        except (*_UNREACHABLE, ValueError) as error:
            raise cannot_reach(error) from error

    async def close(self) -> None:
        if self._ringing is not None:
            await asyncio.wait([self._ringing], timeout=CLOSE_SECONDS)
        await self._tasks.stop()
        if self._listener is not None:
            listener, self._listener = self._listener, None
            with suppress(*_UNREACHABLE):  # then the driver has cut it off
                await listener.close(timeout=CLOSE_SECONDS)
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                await asyncio.wait_for(pool.close(), timeout=CLOSE_SECONDS)
            except _UNREACHABLE:
                pool.terminate()

    async def _connect_for_pool(self, *_: Any, **options: Any) -> "asyncpg.Connection[asyncpg.Record]":
        connection = await self._connect(**options)
        self._made[connection.get_settings().application_name] = connection
        return connection

    async def _connect(self, **options: Any) -> "asyncpg.Connection[asyncpg.Record]":
        """A connection with its own name, so that PostgreSQL can be asked about it over another connection."""
        named = {"application_name": f"{self._url.application_name} {new_id()[:8]}"}
        keepalives = KEEPALIVES if self._url.prepared_statements else {}
        options["server_settings"] = {**options.get("server_settings", {}), **keepalives, **named}
        made = await _connect_to_one(self._servers, statement_cache_size=self._url.statement_cache_size, **options)
        await self._follow_clock(made)
        return made

    async def _follow_clock(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        """The process has the database's time, too: it reads dates of providers by it, and signs with it."""
        try:
            self.clock.follow(await connection.fetchval(f"SELECT {self.dialect.now}", timeout=CONNECT_SECONDS))
        except BaseException:
            connection.terminate()
            raise

    def _drop_idle(self) -> None:
        used = {use.name for use in self._silence.uses}
        for connection in [made for name, made in self._made.items() if name not in used]:
            connection.terminate()
        if self._listener is not None:
            self._listener.terminate()

    async def _use(self, work: Callable[[Use], Awaitable[T]]) -> T:
        """Does the work with a connection of the pool, which is given up when it goes silent. Driver errors are raised
        as our own errors."""
        pool = self._require_pool()
        try:
            connection = await pool.acquire()
        except _UNREACHABLE as error:
            raise _unreachable(error) from error
        use, whole = self._silence.begin(connection), False
        try:
            async with use.scope:
                done = await work(use)
            whole = True
            return done
        except (*_AGAIN, *_DATA):
            raise
        except asyncpg.ReadOnlySQLTransactionError as error:  # it became a standby; another server takes writes now
            connection.terminate()
            self._drop_idle()
            raise _unreachable(error) from error
        except _UNREACHABLE as error:
            raise _unreachable(error) if use.given_up is None else DatabaseUnreachable(use.given_up) from error
        finally:
            self._silence.uses.discard(use)
            if whole:
                await pool.release(connection)
            else:  # shielded, because the task that used it may be cancelled once more
                await asyncio.shield(self._releases.spawn(_release(pool, connection)))

    async def write(self, make: Callable[[], Script[T]]) -> T:
        return await self._run_in_transaction(make)

    async def single(self, make: Callable[[], Script[T]]) -> T:
        return await self.read(make)

    async def read(self, make: Callable[[], Script[T]]) -> T:
        """Statement by statement, without the round trips of a transaction; each is retried separately."""
        try:
            return await self._use(lambda use: self._drive(use, make(), TRIES_MAX))
        except _AGAIN as error:
            raise _unreachable(error) from error

    async def notify(self) -> None:
        """Wakes idle workers: at once, and then at most every few milliseconds, however many submits there are.

        Only a hint: polling alone is enough. PostgreSQL locks the whole database for every commit that notifies.
        """
        if not self._url.listen or self._ringing is not None:
            return
        wait = self._rang_at + QUIET_SECONDS - self.clock.monotonic()
        if wait > 0:
            self._ringing = self._tasks.spawn(self._ring_later(wait))
            return
        with suppress(DatabaseUnreachable):  # only a hint is lost
            await self._ring()

    async def _ring_later(self, seconds: float) -> None:
        await self.clock.sleep(seconds)
        self._ringing = None
        with suppress(DatabaseUnreachable):  # the workers poll when it is back
            await self._ring()

    async def _ring(self) -> None:
        self._rang_at = self.clock.monotonic()
        await self._use(lambda use: use.connection.execute(f"NOTIFY {WAKE_CHANNEL}"))

    async def listen(self, wake: Callable[[], None]) -> None:
        """Calls `wake` on every hint; call again when the connection was lost."""
        if not self._url.listen:
            return
        if self._listener is not None and not self._listener.is_closed():
            await self._check_listener(self._listener)
            return
        try:
            connection = await self._connect()
            await connection.add_listener(WAKE_CHANNEL, lambda *_: wake())
        except _UNREACHABLE as error:
            raise _unreachable(error) from error
        self._listener, self._heard_at = connection, self.clock.monotonic()

    async def _check_listener(self, listener: "asyncpg.Connection[asyncpg.Record]") -> None:
        """Closes a listener that does not answer: nothing else would show that hints have stopped."""
        if self.clock.monotonic() - self._heard_at < LISTENER_SECONDS:
            return
        try:
            await listener.execute("SELECT 1", timeout=CLOSE_SECONDS)
        except _UNREACHABLE as error:
            listener.terminate()
            raise _unreachable(error) from error
        self._heard_at = self.clock.monotonic()

    def _require_pool(self) -> "asyncpg.Pool[asyncpg.Record]":
        if self._pool is None:
            raise DatabaseUnreachable("the database is not open", hint="open it first: async with Backstay(url)")
        return self._pool

    async def _run_in_transaction(self, make: Callable[[], Script[T]]) -> T:
        left = TRIES_MAX
        while True:
            left -= 1
            try:
                return await self._use(lambda use: self._transact(use, make()))
            except _AGAIN as error:
                if left == 0:
                    raise _unreachable(error) from error

    async def _transact(self, use: Use, script: Script[T]) -> T:
        async with use.connection.transaction():
            return await self._drive(use, script)

    async def _drive(self, use: Use, script: Script[T], tries_max: int = 1) -> T:
        answer: list[Any] | None = None
        while True:
            try:
                asked = script.send(answer)  # type: ignore[arg-type]
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(asked, Load) or (asked.batch is not None and _is_much(asked.batch)):
                use.send_much()
            answer = await self._answer(use.connection, asked, tries_max)

    async def _answer(self, connection: Any, asked: Ask | Load, tries_left: int) -> list[Any]:
        while True:
            tries_left -= 1
            try:
                if isinstance(asked, Load):
                    return await self._load(connection, asked)
                return await self._ask(connection, asked)
            except _AGAIN:
                if tries_left == 0:
                    raise

    async def _ask(self, connection: Any, asked: Ask) -> list[Any]:
        query = self._queries[asked.name]
        values = asked.values
        if asked.batch is not None:
            values = {**values, **array_values(query, asked.batch)}
        rows: list[Any] = await connection.fetch(query.sql, *[values[name] for name in query.names])
        return rows if query.make is None else list(map(query.make, rows))

    async def _load(self, connection: Any, load: Load) -> list[Any]:
        if len(load.rows) > FEW_ROWS_MAX:
            await connection.copy_records_to_table(load.table, records=load.rows, columns=load.columns)
        else:  # one round trip instead of three
            marks = ", ".join(f"${n}" for n in range(1, len(load.columns) + 1))
            insert = f"INSERT INTO {load.table} ({', '.join(load.columns)}) VALUES ({marks})"
            await connection.executemany(insert, load.rows)
        return []
