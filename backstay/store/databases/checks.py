"""What `backstay doctor` asks a database: how surely it keeps what it commits, and how many connections it gives."""

from typing import Any, Final, NamedTuple

from backstay.core.errors import DatabaseUnreachable
from backstay.core.failures import one_line
from backstay.store.databases.database import postgres_url
from backstay.store.databases.sqlite import connect


class Promise(NamedTuple):
    """One setting that durability depends on."""

    name: str
    value: str
    durable: bool
    advice: str


_SYNCHRONOUS = {0: "off", 1: "normal", 2: "full", 3: "extra"}


def sqlite_promises(path: str) -> list[Promise]:
    connection = connect(path)
    try:
        journal = str(connection.execute("PRAGMA journal_mode").fetchone()[0])
        level = int(connection.execute("PRAGMA synchronous").fetchone()[0])
    finally:
        connection.close()
    local = "put the database file on a local disk: network folders cannot hold a write-ahead log"
    return [
        Promise("journal_mode", journal, journal == "wal", local),
        Promise("synchronous", _SYNCHRONOUS.get(level, str(level)), level >= 2, "use an SQLite with synchronous=FULL"),
    ]


async def postgres_promises(url: str) -> list[Promise]:
    import asyncpg  # optional, like everything that needs PostgreSQL

    place = postgres_url(url)
    connection = await asyncpg.connect(place.dsn, timeout=10, statement_cache_size=place.statement_cache_size)
    try:
        return [await _promise(connection, name, unsafe) for name, unsafe in _POSTGRES_UNSAFE.items()]
    finally:
        await connection.close()


_POSTGRES_UNSAFE = {"fsync": ("off",), "synchronous_commit": ("off",), "full_page_writes": ("off",)}


async def _promise(connection: "object", name: str, unsafe: tuple[str, ...]) -> Promise:
    value = str(await connection.fetchval("SELECT current_setting($1)", name))  # type: ignore[attr-defined]
    return Promise(name, value, value not in unsafe, f"set {name} = on in postgresql.conf, and reload the server")


CONNECT_SECONDS: Final = 10


class Pooling(NamedTuple):
    connections_max: int  # for everyone but superusers
    connections: int  # that are open now
    pooled: bool  # the server process that answers is not the one of the connection
    by_transaction: bool  # two connections were answered by the same server process


async def postgres_pooling(url: str) -> Pooling:
    import asyncpg  # optional, like everything that needs PostgreSQL

    async def connect() -> Any:
        return await asyncpg.connect(postgres_url(url).dsn, timeout=CONNECT_SECONDS, statement_cache_size=0)

    try:
        first = await connect()
        try:
            second = await connect()
            try:
                return await _pooling(first, second)
            finally:
                await second.close(timeout=CONNECT_SECONDS)
        finally:
            await first.close(timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise DatabaseUnreachable(f"PostgreSQL gave no second connection: {one_line(str(error))}") from error


async def _pooling(first: Any, second: Any) -> Pooling:
    answering = await first.fetchval("SELECT pg_backend_pid()")
    reserved = await first.fetchval("SELECT current_setting('superuser_reserved_connections')")
    most = await first.fetchval("SELECT current_setting('max_connections')")
    is_open = await first.fetchval("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
    also = await second.fetchval("SELECT pg_backend_pid()")
    pooled = answering != first.get_server_pid()
    return Pooling(int(most) - int(reserved), is_open, pooled, pooled and also == answering)
