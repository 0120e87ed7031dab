"""Hints between processes on PostgreSQL: prompt, and few."""

import asyncio

import asyncpg

from backstay.clock import Clock
from backstay.store.databases.postgres import WAKE_CHANNEL, PostgresDatabase


async def test_the_first_hint_goes_out_at_once_and_a_flood_of_them_as_a_few(postgres_url: str) -> None:
    heard: list[str] = []
    ear = await asyncpg.connect(postgres_url)
    await ear.add_listener(WAKE_CHANNEL, lambda *_: heard.append("look"))
    database = PostgresDatabase(postgres_url, Clock())
    await database.open()
    for _ in range(200):
        await database.notify()
    last = asyncio.get_running_loop().time()
    await database.close()
    while asyncio.get_running_loop().time() < last + 5 and len(heard) < 2:
        await ear.fetchval("SELECT 1")
    assert 2 <= len(heard) <= 20  # the first, and one for all that came after it
    await ear.close()


async def test_with_listen_off_nobody_is_rung(postgres_url: str) -> None:
    heard: list[str] = []
    ear = await asyncpg.connect(postgres_url)
    await ear.add_listener(WAKE_CHANNEL, lambda *_: heard.append("look"))
    database = PostgresDatabase(f"{postgres_url}?listen=off", Clock())
    await database.open()
    await database.notify()
    await database.close()
    await ear.execute(f"NOTIFY {WAKE_CHANNEL}")
    assert heard == ["look"]
    await ear.close()
