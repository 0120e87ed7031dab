"""The durability settings of the database, as it reports them."""

from typing import NamedTuple

from backstay.store.sqlite import connect
from backstay.store.urls import postgres_url


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
    import asyncpg  # optional, like everything that needs PostgreSQL

    place = postgres_url(url)
    connection = await asyncpg.connect(place.dsn, timeout=10, statement_cache_size=place.statement_cache_size)
    try:
        return [await _promise(connection, name, unsafe) for name, unsafe in _POSTGRES_UNSAFE.items()]
    finally:
        await connection.close()


_POSTGRES_UNSAFE = {"fsync": ("off",), "synchronous_commit": ("off",), "full_page_writes": ("off",)}


async def _promise(connection: "object", name: str, unsafe: tuple[str, ...]) -> Promise:
    value = str(await connection.fetchval("SELECT current_setting($1)", name))  # type: ignore[attr-defined]
    return Promise(name, value, value not in unsafe, f"set {name} = on in postgresql.conf, and reload the server")
