"""Migrations (Alembic, one history for both databases), and the checks of a database for `doctor`."""

import asyncio
import sqlite3
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from backstay.core.errors import DatabaseUnreachable, SchemaBehind, SchemaNewer, UsageError
from backstay.core.failures import one_line
from backstay.store.databases.database import postgres_url
from backstay.store.databases.sqlite import BUSY_SECONDS, connect

if TYPE_CHECKING:
    from sqlalchemy import Connection


# Every revision that this code knows, oldest first, by the names of their files. A test compares it with Alembic's
# list.
_VERSIONS = files("backstay.store").joinpath("migrations", "versions")
KNOWN = tuple(sorted(file.name[1:5] for file in _VERSIONS.iterdir() if file.name.startswith("v")))
HEAD = KNOWN[-1]
ANSWER_SECONDS = 10.0
SQLITE_SCHEMA = "head.sqlite.sql"

# Any constant works; two processes must not migrate at the same time.
ADVISORY_LOCK = 0x6261636B


def check(version: str | None) -> None:
    """Raises unless the database has exactly the schema of this code."""
    if version is not None and version not in KNOWN:
        raise SchemaNewer(f"the database has schema {version}, this Backstay knows up to {HEAD}")
    if version != HEAD:
        raise SchemaBehind(
            f"the database has {'no schema' if version is None else f'schema {version}'}, {HEAD} is needed"
        )


def sqlite_version(path: str) -> str | None:
    try:
        connection = connect(path)
    except DatabaseUnreachable as error:
        if type(error.__cause__) is sqlite3.DatabaseError:
            raise _no_database(path) from error
        raise
    try:
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])
    except (sqlite3.OperationalError, TypeError):
        return None
    except sqlite3.DatabaseError as error:
        raise _no_database(path) from error
    finally:
        connection.close()


def _no_database(path: str) -> UsageError:
    return UsageError(
        f"{Path(path).name} is a file but not an SQLite database", hint="choose another file; this one was not changed"
    )


async def postgres_version(url: str) -> str | None:
    import asyncpg  # optional, like everything that needs PostgreSQL

    from backstay.store.databases.postgres import cannot_reach
    from backstay.store.databases.postgres import connect as connect_postgres

    try:
        connection = await connect_postgres(postgres_url(url), command_timeout=ANSWER_SECONDS)
        try:
            version = await connection.fetchval("SELECT version_num FROM alembic_version")
        except asyncpg.UndefinedTableError:
            version = None
        finally:
            await connection.close(timeout=ANSWER_SECONDS)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError, ValueError) as error:
        raise cannot_reach(error) from error
    return str(version) if version is not None else None


async def migrate_sqlite(path: str) -> None:
    version = await asyncio.to_thread(sqlite_version, path)
    if version is None and await asyncio.to_thread(create_sqlite, path):
        return
    if version is None or version in KNOWN[:-1]:
        await asyncio.to_thread(upgrade_sqlite, path)
    else:
        check(version)


def create_sqlite(path: str) -> bool:
    """Creates the newest tables in an empty database by one script: loading Alembic takes most of a second. A test
    compares the script with the history."""
    script = files("backstay.store").joinpath("migrations", SQLITE_SCHEMA).read_text(encoding="utf-8")
    connection = connect(path)
    try:
        connection.execute("BEGIN IMMEDIATE")
        empty = bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,))
        if empty:
            for statement in script.split(";\n"):
                connection.execute(statement)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise DatabaseUnreachable(f"cannot create the tables in {Path(path).name}: {error}") from error
    finally:
        connection.close()
    return empty


def sqlite_script(path: str) -> str:
    """The script that turns an empty SQLite database into one like this."""
    connection = connect(path)
    # SQLite's own tables cannot be created by hand.
    own = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY rowid"
    made = [sql for (sql,) in connection.execute(own)]
    connection.close()
    return "".join(f"{sql};\n" for sql in (*made, f"INSERT INTO alembic_version VALUES ('{HEAD}')"))


def upgrade_sqlite(path: str) -> None:
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import NullPool

    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool, connect_args={"timeout": BUSY_SECONDS})

    # The driver would start its transaction late and not for DDL; a migration must be all or nothing.
    @event.listens_for(engine, "connect")
    def manual(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        _upgrade(connection)
        connection.exec_driver_sql("COMMIT")
    engine.dispose()


async def migrate_postgres(url: str) -> None:
    import asyncpg
    from sqlalchemy import text
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    from backstay.store.databases.postgres import connect as connect_postgres

    version = await postgres_version(url)
    if version is not None and version not in KNOWN:
        check(version)
    place = postgres_url(url)
    # SQLAlchemy names its prepared statements, whatever the driver's setting; without a name nothing stays on the
    # connection.
    unnamed = {"prepared_statement_cache_size": 0, "prepared_statement_name_func": str}
    # The driver reads the URL itself: SQLAlchemy would pass on what it does not know, such as sslmode.
    engine = create_async_engine(
        "postgresql+asyncpg://",
        poolclass=NullPool,
        async_creator=lambda: connect_postgres(place),
        connect_args={} if place.prepared_statements else unnamed,
    )
    try:
        async with engine.connect() as connection:
            await connection.execute(text("SET LOCAL lock_timeout = '10s'"))
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})"))
            await connection.run_sync(_upgrade)
            await connection.commit()
    except (DBAPIError, OSError, asyncpg.PostgresError) as error:
        raise DatabaseUnreachable(
            f"the migration was interrupted and nothing was changed: {type(error).__name__}"
        ) from error
    finally:
        await engine.dispose()


def _upgrade(connection: "Connection") -> None:
    from alembic import command
    from alembic.config import Config

    with as_file(files("backstay.store").joinpath("migrations")) as folder:
        config = Config()
        config.set_main_option("script_location", str(folder))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


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
    from backstay.store.databases.postgres import connect as connect_postgres  # optional, as its driver is

    connection = await connect_postgres(postgres_url(url))
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
    connections: int  # open now
    pooled: bool  # the server process that answers is not the one of the connection
    by_transaction: bool  # two connections were answered by the same server process


async def postgres_pooling(url: str) -> Pooling:
    import asyncpg  # optional, like everything that needs PostgreSQL

    from backstay.store.databases.postgres import connect as connect_postgres

    place = postgres_url(url)._replace(prepared_statements=False)
    try:
        first = await connect_postgres(place)
        try:
            second = await connect_postgres(place)
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
