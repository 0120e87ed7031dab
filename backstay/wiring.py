"""The composition root: turns URLs and settings into a store, an engine and listeners. The only place that chooses
backends."""

from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from backstay.clock import Clock, Tasks, new_incarnation, new_random, own_namespace
from backstay.core.errors import DatabaseUnreachable, UsageError
from backstay.core.events import Trouble
from backstay.core.failures import NAMED
from backstay.core.limits import Limits
from backstay.engine.engine import Engine
from backstay.engine.hints import Hints
from backstay.engine.parts import Parts
from backstay.engine.worker import Worker
from backstay.handlers.function import Registry
from backstay.observe.bus import Bus
from backstay.settings import Settings
from backstay.store.databases import schema
from backstay.store.databases.database import Database, is_postgres
from backstay.store.databases.schema import Promise, postgres_promises, sqlite_promises
from backstay.store.databases.sqlite import SQLiteDatabase
from backstay.store.outbox import ItemEventsDatabase
from backstay.store.store import Store

TRACING_EXTRA = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
IDLE_SECONDS_SQLITE = 0.1  # SQLite cannot notify other processes, so poll often
IDLE_SECONDS_POSTGRES = 2.0


def sqlite_path(url: str) -> str:
    """sqlite:///relative.db, sqlite:////absolute.db; a name without a scheme may be a typing error."""
    if url.startswith("sqlite:///"):
        path = url.removeprefix("sqlite:///")
    elif "://" not in url:
        # Anything that looks like a user name or a password is not repeated.
        example = "jobs.db" if "@" in url or ":" in url or not url else url
        raise UsageError("the database URL has no scheme", hint=f"write sqlite:///{example} or postgresql://…")
    else:
        raise UsageError(
            f"{_scheme(url)} is not a database that Backstay supports", hint="use sqlite:///file.db or postgresql://…"
        )
    if path in ("", ":memory:"):
        raise UsageError("the database URL has no file name", hint="for example sqlite:///backstay.db")
    folder = Path(path).parent
    if not folder.is_dir():
        raise UsageError(f"the folder {str(folder)!r} for the database does not exist", hint="create it first")
    return path


def _scheme(url: str) -> str:
    """A URL without possible secrets."""
    return f"{urlsplit(url).scheme}://…"


def database(url: str, clock: Clock) -> Database:
    if is_postgres(url):
        require_asyncpg()
        from backstay.store.databases.postgres import PostgresDatabase

        return PostgresDatabase(url, clock)
    return SQLiteDatabase(sqlite_path(url), clock)


def require_asyncpg() -> None:
    """PostgreSQL is an extra: without its driver the error says how to install it."""
    if find_spec("asyncpg") is None:
        raise UsageError("PostgreSQL needs asyncpg", hint="pip install 'backstay[postgres]'")


async def migrate(url: str) -> None:
    """Brings a database to this code's schema."""
    if is_postgres(url):
        require_asyncpg()
        await schema.migrate_postgres(url)
    else:
        await schema.migrate_sqlite(sqlite_path(url))


async def schema_version(url: str) -> str | None:
    if is_postgres(url):
        require_asyncpg()
        return await schema.postgres_version(url)
    return schema.sqlite_version(sqlite_path(url))


async def durability(url: str) -> list[Promise]:
    """The durability settings of the database."""
    return await postgres_promises(url) if is_postgres(url) else sqlite_promises(sqlite_path(url))


async def open_store(url: str, clock: Clock | None = None, *, item_events: bool = False) -> Store:
    """An open store on a database of the right schema; an SQLite file is created and migrated if needed. With
    `item_events` it writes an event for every change of an item's state."""
    if is_postgres(url):
        schema.check(await schema_version(url))
    else:
        await schema.migrate_sqlite(sqlite_path(url))
    opened = database(url, clock or Clock())
    store = Store(ItemEventsDatabase(opened) if item_events else opened)
    await store.open()
    return store


async def open_another(url: str) -> Store:
    """Another store on a database that this process has open. It creates and migrates nothing: if the file is gone, it
    was deleted meanwhile, and a new empty one would look as if there were no work."""
    if is_postgres(url):
        return await open_store(url)
    _require_file(sqlite_path(url))
    store = Store(database(url, Clock()))
    await store.open()
    return store


def _require_file(path: str) -> None:
    if not Path(path).exists():
        raise DatabaseUnreachable("the database file was removed; stop this process")


def start_tracing(settings: Settings, bus: Bus) -> None:
    """From now on events of the bus are traced, if the settings say so. Otherwise no tracing package is imported."""
    if not settings.otel or bus.tracing is not None:
        return
    try:
        missing = [module for module in TRACING_EXTRA if find_spec(module) is None]
    except ModuleNotFoundError:
        missing = list(TRACING_EXTRA)
    if missing:
        raise UsageError("tracing needs packages that are not installed", hint="pip install 'backstay[otel]'")
    from backstay.observe.tracing import Tracing, provider_here

    provider = provider_here(lambda said: bus.emit(Trouble("tracing", said)))
    bus.tracing = Tracing(provider, Clock(), settings.otel_items_share, settings.otel_tell_providers)


def parts(store: Store, registry: Registry, limits: Limits, bus: Bus, settings: Settings) -> Parts:
    registry.check_fallbacks()
    policies = {**NAMED, "gateway": settings.gateway_policy()}
    tasks, name = Tasks(), new_incarnation()
    return Parts(
        store, registry, limits, store.clock, new_random(), tasks, bus, name, own_namespace(), policies, settings.owner
    )


def engine(url: str, made: Parts, concurrency: int, hints: Hints | None = None) -> Engine:
    return Engine(made, concurrency, open_store=lambda: open_another(url), hints=hints)


def worker(url: str, made: Parts, concurrency: int, hints: Hints | None = None) -> Worker:
    idle = IDLE_SECONDS_POSTGRES if is_postgres(url) else IDLE_SECONDS_SQLITE
    return Worker(engine(url, made, concurrency, hints), idle)
