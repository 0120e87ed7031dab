"""Backstay through PgBouncer in transaction mode, whose clients share a few connections statement by statement."""

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections import Counter
from collections.abc import Iterator

import asyncpg
import pytest

from backstay import Backstay
from tests.servers.fault_proxy import FaultProxy
from tests.servers.pgbouncer import PrivatePgBouncer
from tests.servers.postgres import RunningPostgres
from tests.store.silent_connections import (
    expect_silence,
    look_soon,
    looks,
    opened,
    table_locked,
    wait_for_the_lock,
    write,
)

pytestmark = pytest.mark.slow

WORKERS = 6
ITEMS = 2_000


@pytest.fixture(scope="module")
def pooler(postgres: RunningPostgres) -> Iterator[PrivatePgBouncer]:
    with PrivatePgBouncer(postgres.port, connections=2) as running:
        yield running


async def test_every_item_is_done_once_by_workers_that_share_two_connections(
    pooler: PrivatePgBouncer, postgres_url: str
) -> None:
    done: Counter[int] = Counter()
    apps = [Backstay(pooler.url(postgres_url)) for _ in range(WORKERS)]
    for app in apps:

        @app.handler("count")
        async def count(item: int) -> int:
            done[item] += 1
            return item

    async def work(app: Backstay) -> None:
        async with app, app.working(concurrency=50):
            await (await app.job(job.id)).wait(timeout_seconds=60)

    job = await apps[0].submit("count", range(ITEMS))
    await asyncio.gather(*map(work, apps))
    async with Backstay(postgres_url) as app:
        seen = await app.job(job.id)
        assert [result.value async for result in seen.results()] == list(range(ITEMS))
        assert (await seen.show()).repeats == 0
    assert done == Counter(range(ITEMS))


async def test_one_process_leaves_no_statement_and_no_setting_to_the_next_on_its_connection(
    pooler: PrivatePgBouncer, empty_postgres_url: str
) -> None:
    """In each process asyncpg begins anew with the same names, and PgBouncer keeps what a client leaves behind."""
    url = pooler.url(empty_postgres_url)
    for command in ("migrate", "doctor"):
        ran = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "backstay", command, "--db", url, stdout=PIPE, stderr=STDOUT
        )
        said, _ = await ran.communicate()
        assert ran.returncode == 0, said.decode()
    connection = await asyncpg.connect(url.partition("?")[0], statement_cache_size=0)
    assert await connection.fetchval("SHOW lock_timeout") == "0"
    assert await connection.fetch("SELECT name FROM pg_prepared_statements WHERE name <> ''") == []
    await connection.close()


async def test_a_slow_statement_is_told_from_a_silent_connection_here_as_well(
    pooler: PrivatePgBouncer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_soon(monkeypatch)
    url = pooler.url(postgres_url)
    async with FaultProxy.of(url) as proxy, opened(proxy.url(url)) as store:
        async with table_locked(postgres_url, "jobs") as other:
            writing = asyncio.create_task(write(store))
            await wait_for_the_lock(other, "jobs")
            await looks(proxy, 5)
            assert not writing.done()
        await writing
        proxy.forget()
        await expect_silence(write(store))
        await write(store)
