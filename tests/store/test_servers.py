"""A URL that names several PostgreSQL servers: the one that takes writes is found, whatever the others do."""

import asyncio
import socket
from urllib.parse import urlsplit

import pytest

from backstay import wiring
from backstay.core.errors import DatabaseUnreachable, UsageError
from backstay.store.databases import postgres as postgres_module
from backstay.store.databases.database import postgres_url
from tests.servers.fault_proxy import FaultProxy
from tests.servers.postgres import RunningPostgres, free_port
from tests.store.silent_connections import opened


def several(*urls: str) -> str:
    """One URL out of several that differ in their servers only."""
    first, *others = [urlsplit(url) for url in urls]
    servers = ",".join((first.netloc, *(other.netloc.rpartition("@")[2] for other in others)))
    return first._replace(netloc=servers).geturl()


@pytest.mark.parametrize(
    ("url", "dsns"),
    [
        ("postgresql://a/jobs", ("postgresql://a/jobs",)),
        ("postgresql://a:1/jobs?sslmode=require", ("postgresql://a:1/jobs?sslmode=require",)),
        (
            "postgresql://u:p@a:1,b/jobs?listen=off",
            (
                "postgresql://u:p@a:1/jobs?target_session_attrs=read-write",
                "postgresql://u:p@b/jobs?target_session_attrs=read-write",
            ),
        ),
        (
            "postgresql://[::1]:1,b:2/jobs?target_session_attrs=primary",
            (
                "postgresql://[::1]:1/jobs?target_session_attrs=primary",
                "postgresql://b:2/jobs?target_session_attrs=primary",
            ),
        ),
    ],
)
def test_each_server_of_a_url_has_a_url_of_its_own(url: str, dsns: tuple[str, ...]) -> None:
    assert postgres_url(url).dsns == dsns


@pytest.mark.parametrize("url", ["postgresql://a:1,/jobs", "postgresql://a:0,b/jobs", "postgresql://a:1,b:x/jobs"])
def test_a_server_that_cannot_be_one_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="the database URL is not valid"):
        postgres_url(url)


async def test_a_server_that_does_not_answer_does_not_keep_from_the_next(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "SERVER_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        gone, mute = (
            f"postgresql://postgres@127.0.0.1:{free_port()}",
            f"postgresql://127.0.0.1:{silent.getsockname()[1]}",
        )
        url = several(gone, mute, postgres_url) + urlsplit(postgres_url).path
        async with asyncio.timeout(30):  # the driver itself would wait a minute for the second one
            assert await wiring.schema_version(url) == await wiring.schema_version(postgres_url)
            async with opened(url) as store:
                assert await store.workers.page() == []


async def test_the_server_that_took_the_last_connection_is_asked_first(postgres_url: str) -> None:
    async with (
        FaultProxy.of(postgres_url) as first,
        FaultProxy.of(postgres_url) as second,
        opened(several(first.url(postgres_url), second.url(postgres_url))) as store,
    ):
        await store.workers.page()
        assert (first.connections, second.connections) == (1, 0)
        await first.cut()
        async with asyncio.timeout(30):
            while not second.open:
                try:
                    await store.workers.page()
                except DatabaseUnreachable:
                    await asyncio.sleep(0.01)
        await first.pass_on()
        tried = first.connections
        await asyncio.gather(*(store.workers.page() for _ in range(3)))
        assert first.connections == tried, "nobody goes back while the second one answers"


async def test_a_connection_to_a_server_that_takes_no_writes_any_more_is_given_up(
    postgres: RunningPostgres, postgres_url: str
) -> None:
    """A primary that became a standby keeps its connections if a proxy stands between."""
    name = postgres_url.rpartition("/")[2]
    postgres.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    async with opened(postgres_url) as store:
        with pytest.raises(DatabaseUnreachable, match="read-only"):
            await store.providers.save_endpoint("call@x", "{}")
        postgres.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        await store.providers.save_endpoint("call@x", "{}")
