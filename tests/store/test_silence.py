"""A PostgreSQL that no longer answers, on a connection that nobody closes: every call ends, and the next ones work."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from backstay.clock import Clock
from backstay.core.errors import DatabaseUnreachable
from backstay.store.postgres import PostgresDatabase
from backstay.store.store import Store
from tests.messaging.rig import until
from tests.servers.fault_proxy import FaultProxy
from tests.store.scene import chunk, new_job

COMMAND_SECONDS = 1.0
SOON_SECONDS = 10.0


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy.of(postgres_url) as made:
        yield made


@pytest.fixture
async def store(postgres_url: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    monkeypatch.setattr("backstay.store.postgres.COMMAND_SECONDS", COMMAND_SECONDS)
    made = Store(PostgresDatabase(proxy.url(postgres_url), Clock()))
    await made.open()
    yield made
    await made.close()


async def write(store: Store) -> object:
    return await store.open_job(new_job(), chunk(0, 1, True))


async def read(store: Store) -> object:
    return await store.outbox.is_open()


@pytest.mark.parametrize("call", [write, read])
async def test_a_call_into_a_silent_connection_ends_and_the_next_one_gets_another(
    store: Store, proxy: FaultProxy, call
):
    await call(store)
    proxy.forget()
    with pytest.raises(DatabaseUnreachable):
        await asyncio.wait_for(call(store), SOON_SECONDS)
    await asyncio.wait_for(call(store), SOON_SECONDS)


@pytest.mark.parametrize("call", [write, read])
async def test_a_call_into_a_silent_connection_can_be_given_up(store: Store, proxy: FaultProxy, call):
    await call(store)
    proxy.forget()
    calling = asyncio.create_task(call(store))
    await asyncio.sleep(COMMAND_SECONDS / 5)
    calling.cancel()
    done, _ = await asyncio.wait([calling], timeout=SOON_SECONDS)
    assert done
    await asyncio.wait_for(call(store), SOON_SECONDS)


async def test_a_transaction_whose_connection_goes_silent_in_the_middle_ends_too(
    store: Store, proxy: FaultProxy, postgres_url: str
):
    other = await asyncpg.connect(postgres_url)
    asked = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'jobs'::regclass"
    async with other.transaction():
        await other.execute("LOCK TABLE jobs")
        writing = asyncio.create_task(write(store))
        await until(lambda: other.fetchval(asked))
        proxy.forget()
        with pytest.raises(DatabaseUnreachable):
            await asyncio.wait_for(writing, SOON_SECONDS)
    await asyncio.wait_for(write(store), SOON_SECONDS)
    await other.close()
