"""How many connections a PostgreSQL server allows, and whether a connection pooler is in front of it."""

from typing import Any, Final, NamedTuple

from backstay.core.errors import DatabaseUnreachable
from backstay.core.failures import one_line
from backstay.store.urls import postgres_url

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
