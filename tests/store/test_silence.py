"""A PostgreSQL that no longer answers, on a connection that nobody closes: every call ends, and the next ones work."""

import asyncio
from collections.abc import AsyncIterator, Callable

import asyncpg
import pytest

from backstay.clock import Clock
from backstay.core.errors import DatabaseUnreachable, UsageError
from backstay.store.databases.postgres import WAKE_CHANNEL, PostgresDatabase
from backstay.store.items import Want
from backstay.store.queries import one
from backstay.store.store import Store
from tests.messaging.rig import until
from tests.servers.fault_proxy import FaultProxy
from tests.store.silent_connections import (
    SOON_SECONDS,
    expect_silence,
    look_soon,
    looks,
    opened,
    table_locked,
    wait_for_the_lock,
    write,
)
from tests.store.store_rig import LEASE_MS, RECONCILE_MS, chunk, new_job

COMMAND_SECONDS = 1.0
BIG_ITEMS, BIG_CHARACTERS = 100, 100_000

Fault = Callable[[FaultProxy], None]


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy.of(postgres_url) as made:
        yield made


@pytest.fixture
async def store(postgres_url: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    """Its statements have a second each."""
    monkeypatch.setattr("backstay.store.databases.postgres.COMMAND_SECONDS", COMMAND_SECONDS)
    async with opened(proxy.url(postgres_url)) as made:
        yield made


@pytest.fixture
async def watched(postgres_url: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    """It asks about its statements after half a second; they have a minute each."""
    look_soon(monkeypatch)
    async with opened(proxy.url(postgres_url)) as made:
        yield made


async def read(store: Store) -> object:
    return await store.outbox.is_open()


async def write_much(store: Store) -> object:
    return await store.submissions.open(new_job(), chunk(0, BIG_ITEMS, True, "x" * BIG_CHARACTERS))


async def read_much(store: Store) -> int:
    taken = await store.items.claim([Want("echo", BIG_ITEMS, RECONCILE_MS)], "w1", LEASE_MS)
    return len(taken.items)


@pytest.mark.slow
@pytest.mark.parametrize("call", [write, read])
async def test_a_call_into_a_silent_connection_ends_and_the_next_one_gets_another(
    store: Store, proxy: FaultProxy, call
):
    await call(store)
    proxy.forget()
    with pytest.raises(DatabaseUnreachable):
        await asyncio.wait_for(call(store), SOON_SECONDS)
    await asyncio.wait_for(call(store), SOON_SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("call", [write, read])
async def test_a_call_into_a_silent_connection_can_be_given_up(postgres_url: str, proxy: FaultProxy, call):
    async with opened(proxy.url(postgres_url)) as store:
        await call(store)
        proxy.forget()
        calling = asyncio.create_task(call(store))
        await until(lambda: proxy.vanished)  # it was sent
        calling.cancel()
        done, _ = await asyncio.wait([calling], timeout=SOON_SECONDS)
        assert done
        await asyncio.wait_for(call(store), SOON_SECONDS)


@pytest.mark.slow
async def test_a_transaction_whose_connection_goes_silent_in_the_middle_ends_too(
    store: Store, proxy: FaultProxy, postgres_url: str
):
    async with table_locked(postgres_url, "jobs") as other:
        writing = asyncio.create_task(write(store))
        await wait_for_the_lock(other, "jobs")
        proxy.forget()
        with pytest.raises(DatabaseUnreachable):
            await asyncio.wait_for(writing, SOON_SECONDS)
    await asyncio.wait_for(write(store), SOON_SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("call", [write, read, write_much])
@pytest.mark.parametrize("fault", [FaultProxy.forget, FaultProxy.stall])
async def test_a_silent_connection_is_noticed_long_before_its_statement_is_too_late(
    watched: Store, proxy: FaultProxy, call, fault: Fault
):
    await asyncio.gather(*(call(watched) for _ in range(3)))
    fault(proxy)
    await expect_silence(call(watched))
    # The others of the pool were forgotten as well, and nobody has to find that out one by one.
    await asyncio.wait_for(asyncio.gather(*(call(watched) for _ in range(3))), SOON_SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [FaultProxy.forget, FaultProxy.stall])
async def test_silence_in_the_middle_of_a_copy_is_noticed_and_its_locks_go(
    watched: Store, proxy: FaultProxy, postgres_url: str, fault: Fault, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("backstay.store.databases.silence.SLOW_BYTES_PER_SECOND", 1 << 30)
    async with table_locked(postgres_url, "requests") as other:
        much = chunk(0, 4 * BIG_ITEMS, True, "x" * BIG_CHARACTERS)  # more than all buffers on its way hold
        writing = asyncio.create_task(watched.submissions.open(new_job(), much))
        await wait_for_the_lock(other, "requests")
        fault(proxy)
    await expect_silence(writing)
    async with opened(postgres_url) as direct:
        await asyncio.wait_for(write_much(direct), SOON_SECONDS)


async def test_a_transaction_left_open_by_silence_is_ended_so_that_nobody_waits_for_its_locks(
    watched: Store, proxy: FaultProxy, postgres_url: str
):
    await write(watched)
    async with table_locked(postgres_url, "requests") as other:
        adding = asyncio.create_task(watched.submissions.open(new_job(idempotency_key="one"), chunk(0, 30, True)))
        await wait_for_the_lock(other, "requests")
        proxy.forget()
    await expect_silence(adding)
    async with opened(postgres_url) as direct:  # waits for the other's row with the same key
        again = direct.submissions.open(new_job(idempotency_key="one"), chunk(0, 30, True))
        assert (await asyncio.wait_for(again, SOON_SECONDS)).new


@pytest.mark.slow
@pytest.mark.parametrize("tells", ["on", "off"])
async def test_a_statement_that_waits_for_a_lock_is_not_given_up(
    watched: Store, proxy: FaultProxy, postgres_url: str, tells: str
):
    """Not even where PostgreSQL does not say what it is doing."""
    name = postgres_url.rpartition("/")[2]
    changing = await asyncpg.connect(postgres_url)
    await changing.execute(f'ALTER DATABASE "{name}" SET track_activities = {tells}')
    await changing.close()
    await write(watched)
    proxy.reset()
    async with table_locked(postgres_url, "jobs") as other:
        writing = asyncio.create_task(write(watched))
        await wait_for_the_lock(other, "jobs")
        await looks(proxy, 5)
        assert not writing.done()
    await asyncio.wait_for(writing, SOON_SECONDS)


@pytest.mark.slow
async def test_much_over_a_slow_line_is_not_given_up(watched: Store, proxy: FaultProxy):
    proxy.delay(0.02)
    await write_much(watched)
    assert await read_much(watched) == BIG_ITEMS


@pytest.mark.slow
async def test_much_that_lies_in_buffers_on_its_way_is_given_time_to_arrive(
    watched: Store, proxy: FaultProxy, postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("backstay.store.databases.silence.ASK_SECONDS", 0.3)
    async with table_locked(postgres_url, "requests") as other:
        writing = asyncio.create_task(write_much(watched))
        await wait_for_the_lock(other, "requests")
        proxy.hold()
    await looks(proxy, 3)
    await proxy.pass_on()
    await asyncio.wait_for(writing, SOON_SECONDS)


@pytest.mark.slow
async def test_when_no_new_connection_comes_about_either_a_call_ends_as_well(
    watched: Store, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("backstay.store.databases.silence.ASK_SECONDS", 0.5)
    await write(watched)
    proxy.black_hole()
    await expect_silence(write(watched), "a new connection fails as well")


async def test_a_listener_that_went_silent_is_replaced(
    watched: Store, proxy: FaultProxy, postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("backstay.store.databases.postgres.LISTENER_SECONDS", 0.1)
    monkeypatch.setattr("backstay.store.databases.postgres.CLOSE_SECONDS", 0.5)
    heard: list[str] = []
    refused: list[str] = []
    await watched.listen(lambda: heard.append("look"))
    proxy.forget()
    other = await asyncpg.connect(postgres_url)

    async def rung() -> bool:
        try:
            await watched.listen(lambda: heard.append("look"))
        except DatabaseUnreachable as error:
            refused.append(str(error))
            return False
        await other.execute(f"NOTIFY {WAKE_CHANNEL}")
        return bool(heard)

    await until(rung)
    assert len(refused) == 1
    await other.close()


@pytest.mark.slow
async def test_a_silent_database_is_closed_without_a_word(postgres_url: str, proxy: FaultProxy):
    store = Store(PostgresDatabase(proxy.url(postgres_url), Clock()))
    await store.open()
    await store.listen(lambda: None)
    await write(store)
    proxy.forget()
    await asyncio.wait_for(store.close(), SOON_SECONDS)


async def test_connections_say_whose_they_are_and_the_server_asks_whether_they_live(postgres_url: str):
    connection = await PostgresDatabase(f"{postgres_url}?application_name=shop", Clock())._connect()
    names = "SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    assert (await connection.fetchval(names)).startswith("shop ")
    assert await connection.fetchval("SHOW tcp_keepalives_idle") == "15"
    await connection.close()


async def test_the_url_says_how_many_connections_a_process_uses(postgres_url: str) -> None:
    database = PostgresDatabase(f"{postgres_url}?pool_max=2&application_name=small", Clock())
    await database.open()
    try:
        await asyncio.gather(*(database.read(one("disowned_jobs", {"n": 1})) for _ in range(20)))
        assert database._pool is not None
        assert (database._pool.get_size(), database._pool.get_max_size()) == (2, 2)
    finally:
        await database.close()


@pytest.mark.parametrize("size", ["0", "101", "two", "", "-5", "²"])
def test_a_pool_of_no_use_is_refused(size: str) -> None:
    with pytest.raises(UsageError, match="pool_max in the database URL must be a whole number from 1 to 100"):
        PostgresDatabase(f"postgresql://ann@db/shop?pool_max={size}", Clock())
