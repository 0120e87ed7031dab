"""Every driver on a fresh database, with a table of the user's own in it."""

import sqlite3
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from tests.servers.postgres import RunningPostgres
from tests.transactions.drivers import ALL, ORDERS, POSTGRES, Guest, visiting

TABLES = "jobs, items, requests, attempts, outbox, sinks, webhooks, deliveries, turns, job_links, item_keys"
# One of each kind is enough at first: the others share most of their way with one of them.
FIRST = ("asyncpg", "psycopg", "sqlalchemy-asyncpg", "sqlite3", "django-sqlite")


@pytest.fixture(params=[name if name in FIRST else pytest.param(name, marks=pytest.mark.slow) for name in ALL])
def driver(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def shop_url(postgres: RunningPostgres, postgres_template: str) -> Iterator[str]:
    """One PostgreSQL database for many tests: emptying it is much quicker than copying a new one."""
    url = postgres.create_database(postgres_template)
    yield url
    postgres.drop_database(url)


@pytest.fixture
async def shop(shop_url: str) -> str:
    return await _emptied(shop_url)


@pytest.fixture
async def user_url(driver: str, request: pytest.FixtureRequest) -> str:
    return await _emptied(request.getfixturevalue("shop_url" if driver in POSTGRES else "sqlite_file_url"))


async def _emptied(url: str) -> str:
    await rows(url, ORDERS)
    if not url.startswith("sqlite"):  # a file is new
        await rows(url, f"TRUNCATE orders, {TABLES}")
    return url


@pytest.fixture
async def guest(driver: str, user_url: str) -> AsyncIterator[Guest]:
    async with visiting(driver, user_url) as made:
        yield made


async def rows(url: str, sql: str) -> list[tuple[object, ...]]:
    """What somebody else sees, on a connection of their own."""
    if url.startswith("sqlite"):
        other = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30, isolation_level=None)
        try:
            return other.execute(sql).fetchall()
        finally:
            other.close()
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()
