"""What tests about silent connections to PostgreSQL share."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import asyncpg
import pytest

from backstay.clock import Clock
from backstay.core.errors import DatabaseUnreachable
from backstay.store.databases.postgres import PostgresDatabase
from backstay.store.store import Store
from tests.messaging.rig import until
from tests.servers.fault_proxy import FaultProxy
from tests.store.store_rig import chunk, new_job

SOON_SECONDS = 10.0


def look_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL is asked about statements that take half a second."""
    for name, seconds in (("SLOW", 0.5), ("LOOK", 0.3), ("TICK", 0.1)):
        monkeypatch.setattr(f"backstay.store.databases.silence.{name}_SECONDS", seconds)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = Store(PostgresDatabase(url, Clock()))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def table_locked(url: str, table: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    other = await asyncpg.connect(url)
    async with other.transaction():
        await other.execute(f"LOCK TABLE {table} IN SHARE MODE")  # reading is allowed, as the driver does before a COPY
        yield other
    await other.close()


async def wait_for_the_lock(other: "asyncpg.Connection[asyncpg.Record]", table: str) -> None:
    asked = f"SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '{table}'::regclass"
    await until(lambda: other.fetchval(asked))


async def looks(proxy: FaultProxy, number: int) -> None:
    """Waits until PostgreSQL was asked so many times: each time over a connection of its own."""
    before = proxy.connections
    await until(lambda: proxy.connections >= before + number)


async def write(store: Store) -> object:
    return await store.submissions.open(new_job(), chunk(0, 1, True))


async def expect_silence(call: Awaitable[object], words: str = "was silent for") -> None:
    calling = asyncio.ensure_future(call)
    await asyncio.wait([calling], timeout=SOON_SECONDS)  # unlike `wait_for`, which would help by cancelling it
    assert calling.done()
    with pytest.raises(DatabaseUnreachable, match=words):
        await calling
