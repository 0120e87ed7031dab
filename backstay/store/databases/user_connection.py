"""A user's own connection as a database: the store's scripts run on it, inside the user's transaction.

A driver is recognised by the modules of a connection's classes, so no driver is imported here. Nothing is committed or
rolled back: that is up to the user.
"""

from collections.abc import Callable, Mapping
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

from backstay.clock import Clock
from backstay.core.errors import UsageError
from backstay.store.databases.database import Database
from backstay.store.queries import (
    Ask,
    Load,
    Query,
    Script,
    array_values,
    as_pyformat,
    insert_rows,
    json_rows,
    one,
    queries_for,
)

T = TypeVar("T")
Values = Mapping[str, Any]
Form = Callable[[Query, Values], tuple[str, Any]]  # a statement and its values as a driver takes them

KNOWN: Final = "pass a connection of asyncpg, psycopg 3, sqlite3, aiosqlite, SQLAlchemy or Django"
BEGIN: Final = "begin a transaction first, and commit it after the call"
SYNC_HINT: Final = "use the asyncio class Backstay, or pass a connection that is not async"
IN_TRANSACTION: Final = (2, 3)  # libpq's PQTRANS_INTRANS and PQTRANS_INERROR
LEGACY: Final = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL: the driver itself begins a transaction before it writes
_NAMES: Final = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


class DriverCalls(Protocol):
    """How statements are run with one driver."""

    is_async: bool

    @property
    def dialect(self) -> str: ...
    @property
    def form(self) -> Form: ...
    @property
    def raw(self) -> Any:
        """The driver's own connection, which wrappers share."""
        ...

    async def begin(self) -> None: ...
    def in_transaction(self) -> bool:
        """Whether changes that are written now wait for the user's commit."""
        ...

    async def fetch(self, query: Query, values: Values) -> list[Any]:
        """The rows: in order for a statement that makes records, by name for the others."""
        ...


class UserConnection:
    """A database on a user's connection. After a statement that failed, every further one raises the same error: the
    transaction is the user's to roll back."""

    def __init__(self, calls: DriverCalls, own: Database, clock: Clock) -> None:
        self.dialect = own.dialect
        self.listens = self.wakes = own.listens
        self._queries = queries_for(own.dialect)
        self._calls = calls
        self.clock = clock
        self._rang = False  # workers will be woken
        self._failure: BaseException | None = None

    async def open(self) -> None:
        """The user has opened it."""

    async def close(self) -> None:
        """The user closes it."""

    async def write(self, make: Callable[[], Script[T]]) -> T:
        script, answer = make(), None
        while True:
            try:
                asked = script.send(answer)  # type: ignore[arg-type]
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer = await self._answer(asked)

    async def single(self, make: Callable[[], Script[T]]) -> T:
        return await self.write(make)

    async def read(self, make: Callable[[], Script[T]]) -> T:
        return await self.write(make)

    async def notify(self) -> None:
        """PostgreSQL wakes the workers when the user commits."""
        if self.listens and not self._rang:
            self._rang = True
            await self.write(one("wake_workers"))

    async def listen(self, wake: Callable[[], None]) -> None:
        """Nothing to do: no worker runs on a user's connection."""

    async def _answer(self, asked: Ask | Load) -> list[Any]:
        if self._failure is not None:
            raise self._failure
        if isinstance(asked, Load):
            query, asked = insert_rows(asked, self.dialect), Ask(asked.table, batch=asked.rows)
        else:
            query = self._queries[asked.name]
            self._rang = self._rang or bool(asked.values.get("wake"))
        try:
            rows = await self._calls.fetch(query, self._values(query, asked))
        except BaseException as error:
            self._failure = error
            raise
        return rows if query.make is None else list(map(query.make, rows))

    def _values(self, query: Query, asked: Ask) -> Values:
        if self.dialect.numbered:
            return asked.values if asked.batch is None else {**asked.values, **array_values(query, asked.batch)}
        batch = {} if asked.batch is None else {"batch": json_rows(asked.batch)}
        return {"now": self.clock.now_ms(), **asked.values, **batch}


async def use_connection(
    connection: Any, own: Database, clock: Clock, place: str, checked: "WeakSet[Any]"
) -> UserConnection:
    """A user's connection as a database. First it checks that the connection leads to Backstay's own tables, and that
    changes wait for the user's commit. Nothing is written here."""
    calls = calls_of(connection)
    await calls.begin()
    if calls.dialect != own.dialect.name:
        found, needed = _NAMES[calls.dialect], _NAMES[own.dialect.name]
        raise UsageError(
            f"the connection is to {found}, but Backstay's own database is {needed}",
            hint="both must be the same database: change Backstay's URL, or pass another connection",
        )
    lent = UserConnection(calls, own, clock)
    known = calls.dialect == "postgres" and calls.raw in checked
    if known and calls.in_transaction():
        return lent
    # Some drivers begin the transaction with the first statement, so a statement is run before the check.
    found_place = await lent.read(read_place)
    if not calls.in_transaction():
        raise UsageError("the connection is not in a transaction", hint=BEGIN)
    if found_place != place:
        raise UsageError(
            "the connection does not lead to the tables of Backstay's own database",
            hint="use the database of Backstay's URL; on PostgreSQL, the schema of its tables must be in search_path",
        )
    if calls.dialect == "postgres":
        checked.add(calls.raw)
    else:
        await lent.write(one("lock_writes"))  # before anything is read
        if not calls.raw.in_transaction:  # aiosqlite does not tell of `autocommit`, which Python 3.12 brought
            raise UsageError("the connection is not in a transaction", hint=BEGIN)
    return lent


def read_place() -> Script[str]:
    """Which database this is: the path of its file, or on PostgreSQL its name and that of its tables."""
    rows = yield Ask("place")
    [place] = [row["file"] for row in rows if row["name"] == "main"]
    return str(place)


def refuse_async(connection: Any) -> None:
    """For callers without asyncio."""
    if calls_of(connection).is_async:
        raise UsageError("an async connection cannot be used without asyncio", hint=SYNC_HINT)


def calls_of(connection: Any) -> DriverCalls:
    roots = {base.__module__.partition(".")[0] for base in type(connection).__mro__}
    if "asyncpg" in roots and hasattr(connection, "is_in_transaction"):
        return AsyncpgCalls(connection)
    if "psycopg" in roots and hasattr(connection, "cursor"):
        return PsycopgCalls(connection)
    if "sqlite3" in roots and hasattr(connection, "cursor"):
        return SqliteCalls(connection)
    if "aiosqlite" in roots and hasattr(connection, "cursor"):
        return AiosqliteCalls(connection)
    if "sqlalchemy" in roots and (hasattr(connection, "exec_driver_sql") or hasattr(connection, "get_bind")):
        return SqlAlchemyCalls(connection)
    if "django" in roots and hasattr(connection, "in_atomic_block"):
        return DjangoCalls(connection)
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    raise UsageError(f"{kind} is not a connection that Backstay knows", hint=KNOWN)


def _numbered_form(query: Query, values: Values) -> tuple[str, Any]:
    return query.sql, tuple(values[name] for name in query.names)


def _named_form(query: Query, values: Values) -> tuple[str, Any]:
    return query.sql, {name: values[name] for name in query.names}


def _pyformat_form(query: Query, values: Values) -> tuple[str, Any]:
    return as_pyformat(query), {name: values[name] for name in query.names}


async def _await_if_needed(answer: Any) -> Any:
    """The same call returns a coroutine in the async class of a driver, and the result in the sync class."""
    return await answer if isawaitable(answer) else answer


class AsyncpgCalls:
    dialect, is_async = "postgres", True
    form: Form = staticmethod(_numbered_form)

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def raw(self) -> Any:
        return getattr(self._connection, "_con", self._connection)  # a pool wraps it for each user

    async def begin(self) -> None:
        """The user has done it."""

    def in_transaction(self) -> bool:
        return bool(self._connection.is_in_transaction())

    async def fetch(self, query: Query, values: Values) -> list[Any]:
        sql, given = self.form(query, values)
        rows: list[Any] = await self._connection.fetch(sql, *given)
        return rows


class CursorCalls:
    """A driver with cursors, as PEP 249 describes them."""

    dialect, is_async = "postgres", False
    form: Form = staticmethod(_pyformat_form)

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def raw(self) -> Any:
        return self._connection

    async def begin(self) -> None:
        """The driver does it with the first statement."""

    def _cursor(self) -> Any:
        return self._connection.cursor()

    async def fetch(self, query: Query, values: Values) -> list[Any]:
        cursor = await _await_if_needed(self._cursor())
        try:
            await _await_if_needed(cursor.execute(*self.form(query, values)))
            if cursor.description is None:
                return []
            rows: list[Any] = await _await_if_needed(cursor.fetchall())
            names = [column[0] for column in cursor.description]
        finally:
            await _await_if_needed(cursor.close())
        return rows if query.make is not None else [dict(zip(names, row, strict=True)) for row in rows]


class PsycopgCalls(CursorCalls):
    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.is_async = iscoroutinefunction(connection.execute)

    async def begin(self) -> None:
        if self._connection.info.pipeline_status:  # results would come later
            raise UsageError("a connection in pipeline mode cannot be used", hint="leave the pipeline before the call")

    def in_transaction(self) -> bool:
        """Without autocommit, the first statement begins a transaction."""
        return not self._connection.autocommit or self._connection.info.transaction_status in IN_TRANSACTION

    def _cursor(self) -> Any:
        return self._connection.cursor(row_factory=lambda cursor: tuple)  # the connection may have one of its own


class SqliteCalls(CursorCalls):
    dialect = "sqlite"
    form: Form = staticmethod(_named_form)

    def in_transaction(self) -> bool:
        """Unless told otherwise, the driver begins a transaction before the first INSERT."""
        implicit = getattr(self._connection, "autocommit", LEGACY) == LEGACY
        return bool(self._connection.in_transaction or (implicit and self._connection.isolation_level is not None))

    async def fetch(self, query: Query, values: Values) -> list[Any]:
        given, self._connection.text_factory = self._connection.text_factory, str
        try:
            return await super().fetch(query, values)
        finally:
            self._connection.text_factory = given

    def _cursor(self) -> Any:
        cursor = self._connection.cursor()
        cursor.row_factory = None  # the connection may have one of its own
        return cursor


class AiosqliteCalls(SqliteCalls):
    is_async = True

    def _cursor(self) -> Any:
        return self._open_cursor()

    async def _open_cursor(self) -> Any:
        cursor = await self._connection.cursor()
        cursor.row_factory = None
        return cursor


class DjangoCalls(CursorCalls):
    """`django.db.connection`, or one of `django.db.connections`."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        connection.ensure_connection()
        self.dialect = calls_of(connection.connection).dialect

    @property
    def raw(self) -> Any:
        return self._connection.connection

    def in_transaction(self) -> bool:
        return bool(self._connection.in_atomic_block)


class SqlAlchemyCalls:
    """A Connection, an AsyncConnection, or a session, which has one."""

    def __init__(self, connection: Any) -> None:
        self._given = self._connection = connection
        self._own: DriverCalls | None = None
        self.is_async = iscoroutinefunction(
            connection.exec_driver_sql if hasattr(connection, "exec_driver_sql") else connection.connection
        )

    async def begin(self) -> None:
        if not hasattr(self._given, "exec_driver_sql"):
            self._connection = await _await_if_needed(self._given.connection())
        started = getattr(self._connection, "sync_connection", self._connection)
        if started is None:
            raise UsageError("the connection is not open", hint=BEGIN)
        self._own = calls_of(started.connection.driver_connection)

    @property
    def _driver(self) -> DriverCalls:
        assert self._own is not None
        return self._own

    @property
    def dialect(self) -> str:
        return self._driver.dialect

    @property
    def form(self) -> Form:
        return self._driver.form

    @property
    def raw(self) -> Any:
        return self._driver.raw

    def in_transaction(self) -> bool:
        return self._driver.in_transaction()

    async def fetch(self, query: Query, values: Values) -> list[Any]:
        result = await _await_if_needed(self._connection.exec_driver_sql(*self.form(query, values)))
        if not result.returns_rows:
            return []
        rows: list[Any] = result.mappings().all() if query.make is None else result.all()
        return rows
