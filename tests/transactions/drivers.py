"""Users of other drivers, each with a connection, a transaction and a table of their own, all by the same verbs."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import aiosqlite
import asyncpg
import django
import psycopg
import sqlalchemy
from django.conf import settings as django_settings
from django.db import transaction as django_transaction
from django.db.utils import ConnectionHandler
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from backstay import Backstay, SyncBackstay

ORDERS = "CREATE TABLE IF NOT EXISTS orders (id integer PRIMARY KEY)"


def application(url: str, owner: str | None = None) -> Backstay:
    app = Backstay(url, owner=owner)

    @app.handler()
    async def echo(item: Any) -> Any:
        return item

    return app


class Guest:
    """A user with an async driver."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = application(url)
        self.connection: Any = None

    async def open(self) -> None:
        raise NotImplementedError

    async def begin(self) -> None:
        """A new transaction; some drivers need no word for it."""

    async def execute(self, sql: str) -> None:
        await self.connection.execute(sql)

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        await self.connection.close()

    async def submit(self, items: Any, **options: Any) -> int:
        return (await self.app.submit("echo", items, connection=self.connection, **options)).id

    async def publish(self, topic: str, message: Any) -> Any:
        return await self.app.publish(topic, message, connection=self.connection)

    async def leave(self) -> None:
        await self.close()
        await self.app.close()


class Asyncpg(Guest):
    async def open(self) -> None:
        self.connection = await asyncpg.connect(self.url)

    async def begin(self) -> None:
        self._transaction = self.connection.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()


class AsyncpgPool(Asyncpg):
    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(self.url, min_size=1, max_size=1)
        self.connection = await self._pool.acquire()

    async def close(self) -> None:
        await self._pool.release(self.connection)
        await self._pool.close()


class PsycopgAsync(Guest):
    async def open(self) -> None:
        self.connection = await psycopg.AsyncConnection.connect(self.url, row_factory=psycopg.rows.dict_row)


def dialect_url(url: str, driver: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}+{driver}://{rest}"


class AlchemyAsync(Guest):
    driver = "asyncpg"

    async def open(self) -> None:
        self._engine = create_async_engine(dialect_url(self.url, self.driver))
        self.connection = await self._connect()

    async def _connect(self) -> Any:
        return await self._engine.connect()

    async def execute(self, sql: str) -> None:
        await self.connection.execute(sqlalchemy.text(sql))

    async def close(self) -> None:
        await self.connection.close()
        await self._engine.dispose()


class AlchemyAsyncSqlite(AlchemyAsync):
    driver = "aiosqlite"


class Aiosqlite(Guest):
    async def open(self) -> None:
        self.connection = await aiosqlite.connect(self.url.removeprefix("sqlite:///"), timeout=30)
        self.connection.row_factory = lambda cursor, row: {"a factory": "of the user's"}
        self.connection.text_factory = bytes


class AlchemyAsyncPsycopg(AlchemyAsync):
    driver = "psycopg"


class AlchemyAsyncSession(AlchemyAsync):
    async def _connect(self) -> Any:
        return AsyncSession(self._engine)


class SyncGuest(Guest):
    """A user without asyncio: everything is done in one thread, over the API for such programs."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._thread = ThreadPoolExecutor(1)
        self.face = SyncBackstay(self.app)

    async def here(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def connect(self) -> Any:
        raise NotImplementedError

    async def open(self) -> None:
        self.connection = await self.here(self.connect)

    async def execute(self, sql: str) -> None:
        await self.here(lambda: self.connection.execute(sql))

    async def commit(self) -> None:
        await self.here(lambda: self.connection.commit())

    async def rollback(self) -> None:
        await self.here(lambda: self.connection.rollback())

    async def close(self) -> None:
        await self.here(lambda: self.connection.close())

    async def submit(self, items: Any, **options: Any) -> int:
        job = await self.here(lambda: self.face.submit("echo", items, connection=self.connection, **options))
        found: int = job.id
        return found

    async def publish(self, topic: str, message: Any) -> Any:
        return await self.here(lambda: self.face.publish(topic, message, connection=self.connection))

    async def leave(self) -> None:
        await self.close()
        await self.here(self.face.close)
        self._thread.shutdown()


class Psycopg(SyncGuest):
    def connect(self) -> Any:
        return psycopg.connect(self.url)


class Sqlite(SyncGuest):
    def connect(self) -> Any:
        connection = sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=30)
        connection.row_factory = lambda cursor, row: {"a factory": "of the user's"}
        connection.text_factory = bytes
        return connection


class Alchemy(SyncGuest):
    def connect(self) -> Any:
        driver = "pysqlite" if self.url.startswith("sqlite") else "psycopg"
        self._engine = sqlalchemy.create_engine(dialect_url(self.url, driver))
        return self._engine.connect()

    async def execute(self, sql: str) -> None:
        await self.here(lambda: self.connection.execute(sqlalchemy.text(sql)))

    async def close(self) -> None:
        await super().close()
        await self.here(self._engine.dispose)


class AlchemySession(Alchemy):
    def connect(self) -> Any:
        super().connect().close()
        return Session(self._engine)


class Django(SyncGuest):
    def connect(self) -> Any:
        if not django_settings.configured:
            django_settings.configure(USE_TZ=True)
            django.setup()
        return ConnectionHandler({"default": django_database(self.url)})["default"]

    async def begin(self) -> None:
        def enter() -> None:
            # As `with atomic():` does with django.db.connection.
            self._atomic = AtomicOn(self.connection)
            self._atomic.__enter__()

        await self.here(enter)

    async def execute(self, sql: str) -> None:
        def run() -> None:
            with self.connection.cursor() as cursor:
                cursor.execute(sql)

        await self.here(run)

    async def commit(self) -> None:
        await self.here(lambda: self._atomic.__exit__(None, None, None))

    async def rollback(self) -> None:
        await self.here(lambda: self._atomic.__exit__(ValueError, ValueError(), None))


class AtomicOn(django_transaction.Atomic):  # type: ignore[misc]  # Django has no types
    """Django finds a connection by its alias; here there are many, each of one test."""

    def __init__(self, connection: Any) -> None:
        super().__init__(using=None, savepoint=True, durable=False)
        self._connection = connection

    def __enter__(self) -> None:
        with mock.patch.object(django_transaction, "get_connection", return_value=self._connection):
            super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        with mock.patch.object(django_transaction, "get_connection", return_value=self._connection):
            super().__exit__(*raised)


def django_database(url: str) -> dict[str, Any]:
    if url.startswith("sqlite"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    given = psycopg.conninfo.conninfo_to_dict(url)
    place = {"NAME": given["dbname"], "USER": given["user"], "HOST": given["host"], "PORT": str(given["port"])}
    return {"ENGINE": "django.db.backends.postgresql", **place}


POSTGRES: dict[str, type[Guest]] = {
    "asyncpg": Asyncpg,
    "asyncpg-pool": AsyncpgPool,
    "psycopg-async": PsycopgAsync,
    "psycopg": Psycopg,
    "sqlalchemy": Alchemy,
    "sqlalchemy-session": AlchemySession,
    "sqlalchemy-asyncpg": AlchemyAsync,
    "sqlalchemy-async-psycopg": AlchemyAsyncPsycopg,
    "sqlalchemy-async-session": AlchemyAsyncSession,
    "django": Django,
}
SQLITE: dict[str, type[Guest]] = {
    "sqlite3": Sqlite,
    "sqlalchemy-sqlite": Alchemy,
    "sqlalchemy-session-sqlite": AlchemySession,
    "django-sqlite": Django,
    "aiosqlite": Aiosqlite,
    "sqlalchemy-aiosqlite": AlchemyAsyncSqlite,
}
ALL = {**POSTGRES, **SQLITE}


@asynccontextmanager
async def visiting(name: str, url: str) -> AsyncIterator[Guest]:
    guest = ALL[name](url)
    await guest.open()
    try:
        yield guest
    finally:
        await guest.leave()
