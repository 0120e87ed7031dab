"""A connection that cannot keep the promise is refused by one clear error, and nothing is written."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any
from unittest import mock

import aiosqlite
import asyncpg
import psycopg
import pytest
import sqlalchemy

from backstay import Backstay, SyncBackstay
from backstay.core.errors import UsageError
from tests.transactions.conftest import rows
from tests.transactions.drivers import Django, Guest, application, dialect_url

OUTSIDE = "not in a transaction"
ELSEWHERE = "does not lead to the tables of Backstay's own database"


async def refused(app: Backstay, connection: Any, why: str, items: Any = (1,)) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        await app.submit("echo", list(items), connection=connection)
    assert caught.value.hint
    assert await rows(app.url, "SELECT count(*) FROM jobs") == [(0,)]


@pytest.mark.parametrize(
    "connection", [object(), "postgresql://x", sqlite3, 12], ids=["object", "url", "module", "number"]
)
async def test_what_is_no_known_connection_is_refused(connection: Any, sqlite_file_url: str) -> None:
    async with application(sqlite_file_url) as app:
        await refused(app, connection, "is not a connection that Backstay knows")


async def test_an_asyncpg_connection_outside_a_transaction_is_refused(shop: str) -> None:
    async with application(shop) as app, asyncpg.create_pool(shop, min_size=1) as pool:
        await refused(app, pool, "is not a connection")
        async with pool.acquire() as connection:
            await refused(app, connection, OUTSIDE)
            async with connection.transaction():
                await app.submit("echo", [1], connection=connection)
                await connection.execute("DELETE FROM jobs")
            await refused(app, connection, OUTSIDE)  # although it was checked before


async def test_psycopg_with_autocommit_needs_a_transaction(shop: str) -> None:
    async with (
        application(shop) as app,
        await psycopg.AsyncConnection.connect(shop, autocommit=True) as connection,
    ):
        await refused(app, connection, OUTSIDE)
        async with connection.transaction():
            await app.submit("echo", [1], connection=connection)
        assert await rows(shop, "SELECT count(*) FROM jobs") == [(1,)]


async def test_psycopg_in_pipeline_mode_is_refused(shop: str) -> None:
    """Its results come later than its statements, so a job looked as if it were gone."""
    async with application(shop) as app, await psycopg.AsyncConnection.connect(shop) as connection:
        async with connection.pipeline():
            await connection.execute("SELECT 1")
            await refused(app, connection, "a connection in pipeline mode cannot be used")
        await app.submit("echo", [1], connection=connection)
        await connection.commit()
        assert await rows(shop, "SELECT count(*) FROM jobs") == [(1,)]


async def test_sqlalchemy_with_autocommit_is_refused(shop: str) -> None:
    engine = sqlalchemy.create_engine(dialect_url(shop, "psycopg"), isolation_level="AUTOCOMMIT")
    async with application(shop) as app:
        with engine.connect() as connection:
            await refused(app, connection, OUTSIDE)
        await refused(app, engine, "is not a connection")
    engine.dispose()


async def test_sqlite_that_commits_every_statement_is_refused(sqlite_file_url: str) -> None:
    connection = sqlite3.connect(sqlite_file_url.removeprefix("sqlite:///"), isolation_level=None)
    async with application(sqlite_file_url) as app:
        await refused(app, connection, OUTSIDE)
        connection.execute("BEGIN")
        await app.submit("echo", [1], connection=connection)
        assert connection.in_transaction
        connection.rollback()
        connection.isolation_level = "DEFERRED"  # the driver's default: it begins before the first INSERT
        await app.submit("echo", [1], connection=connection)
        assert connection.in_transaction
        connection.rollback()
        assert await rows(sqlite_file_url, "SELECT count(*) FROM jobs") == [(0,)]
    connection.close()


async def test_aiosqlite_that_commits_every_statement_is_refused(sqlite_file_url: str) -> None:
    path = sqlite_file_url.removeprefix("sqlite:///")
    async with aiosqlite.connect(path, isolation_level=None) as connection, application(sqlite_file_url) as app:
        await refused(app, connection, OUTSIDE)
        # As with `autocommit=True` of Python 3.12: the driver commits, and does not say so.
        with mock.patch.object(aiosqlite.Connection, "isolation_level", ""):
            await refused(app, connection, OUTSIDE)


async def test_django_outside_atomic_is_refused(sqlite_file_url: str) -> None:
    guest: Guest = Django(sqlite_file_url)
    await guest.open()
    with pytest.raises(UsageError, match=OUTSIDE):
        await guest.submit([1])
    await guest.leave()
    assert await rows(sqlite_file_url, "SELECT count(*) FROM jobs") == [(0,)]


@pytest.mark.slow
async def test_a_connection_to_another_database_is_refused(
    shop: str, empty_postgres_url: str, sqlite_file_url: str, tmp_path: Path
) -> None:
    other = await asyncpg.connect(empty_postgres_url)
    file = sqlite3.connect(tmp_path / "other.db")
    async with application(shop) as app, other.transaction():
        await refused(app, other, ELSEWHERE)
        await refused(app, file, "the connection is to SQLite, but Backstay's own database is PostgreSQL")
        assert await other.fetchval("SELECT 1") == 1  # the refusal did not break the user's transaction
    async with application(sqlite_file_url) as app, other.transaction():
        await refused(app, file, ELSEWHERE)
        await refused(app, other, "the connection is to PostgreSQL, but Backstay's own database is SQLite")
    await other.close()
    file.close()


async def test_tables_of_the_same_names_in_another_schema_are_not_ours(shop: str) -> None:
    connection = await asyncpg.connect(shop)
    async with application(shop) as app, connection.transaction():
        await connection.execute(
            "CREATE SCHEMA shop; CREATE TABLE shop.jobs (id integer); SET search_path = shop, public"
        )
        await refused(app, connection, ELSEWHERE)
    await connection.close()


async def test_an_async_connection_cannot_be_used_without_asyncio(shop: str) -> None:
    connection = await asyncpg.connect(shop)
    another = await psycopg.AsyncConnection.connect(shop)

    def submit(connection: Any, items: Any) -> None:
        with SyncBackstay(application(shop)) as backstay:
            backstay.submit("echo", items, connection=connection)

    async def endless() -> Any:
        yield 1

    for given in (connection, another):
        with pytest.raises(UsageError, match="an async connection cannot be used without asyncio"):
            await asyncio.to_thread(submit, given, [1])
    with (
        psycopg.connect(shop) as plain,
        pytest.raises(UsageError, match="an async iterator cannot be used without asyncio"),
    ):
        await asyncio.to_thread(submit, plain, endless())
    await connection.close()
    await another.close()


async def test_an_error_of_the_database_is_the_drivers_own_and_is_not_hidden(shop: str) -> None:
    """The user's code for repeats looks for the driver's errors; a second one would hide the first."""
    connection = await asyncpg.connect(shop)
    async with application(shop) as app:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("ALTER TABLE requests ADD CONSTRAINT one UNIQUE (body)")
        with pytest.raises(asyncpg.UniqueViolationError):
            await app.submit("echo", iter([*range(2_000), 1]), connection=connection)
        await transaction.rollback()
    assert await rows(shop, "SELECT count(*) FROM jobs") == [(0,)]
    await connection.close()
