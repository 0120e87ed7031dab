"""The database: whether it answers, its schema, how durable it is, its connections and its clock."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from backstay.cli import database_choice
from backstay.cli.doctor.finding import Finding, Setup, fail, ok, warn, wrong
from backstay.core.errors import BackstayError, DatabaseUnreachable

if TYPE_CHECKING:
    from backstay.store.databases.schema import Pooling

SKEW_MS_MAX: Final = 5_000
CONNECTIONS_MIN: Final = 50  # five processes of up to eight connections, and a few for people
CONNECTIONS_SHARE: Final = 0.9
BOUNCER_OPTIONS: Final = "?listen=off&prepared_statements=off"


async def database(setup: Setup) -> AsyncIterator[Finding]:
    """Which database is used, which setting names it, and whether it answers."""
    from backstay import wiring

    target = setup.target
    says = f"{target.shown}, from {target.source}"
    if database_choice.missing_file(setup.app.url):
        yield ok(f"{says}: Backstay creates the file at its first use")
        return
    try:
        await wiring.schema_version(setup.app.url)
    except DatabaseUnreachable as error:
        yield fail(f"{says}: {error.message}", error.hint)
    else:
        yield ok(says)


async def schema(setup: Setup) -> AsyncIterator[Finding]:
    """Whether the database has the tables of this version."""
    from backstay import wiring
    from backstay.store.databases import schema as schema_module
    from backstay.store.databases.database import is_postgres

    version = await wiring.schema_version(setup.app.url)
    if version is None and not is_postgres(setup.app.url):
        yield ok("no schema yet: the file gets one at its first use")
        return
    try:
        schema_module.check(version)
    except BackstayError as error:
        yield wrong(error)
    else:
        yield ok(str(version))


async def durability(setup: Setup) -> AsyncIterator[Finding]:
    """Whether what was committed survives a power cut: SQLite's journal_mode and synchronous, PostgreSQL's fsync,
    synchronous_commit and full_page_writes."""
    from backstay import wiring

    for promise in await wiring.durability(setup.app.url):
        says = f"{promise.name} is {promise.value}"
        yield ok(says) if promise.durable else fail(says, promise.advice)


async def connections(setup: Setup) -> AsyncIterator[Finding]:
    """Whether PostgreSQL allows enough connections, and what a PgBouncer in front of it needs."""
    from backstay.store.databases.database import is_postgres, postgres_url
    from backstay.store.databases.schema import postgres_pooling

    if not is_postgres(setup.app.url):
        yield ok("SQLite needs no connections")
        return
    found = await postgres_pooling(setup.app.url)
    url = postgres_url(setup.app.url)
    if found.by_transaction and (url.listen or url.prepared_statements):
        advice = f"add {BOUNCER_OPTIONS} to the database URL, or use session pooling"
        yield fail("PgBouncer uses transaction pooling, which does not support LISTEN and prepared statements", advice)
    for finding in _enough(found):
        yield finding


def _enough(found: "Pooling") -> list[Finding]:
    says = f"{found.connections} of {found.connections_max} are open"
    advice = "raise max_connections: every Backstay process uses up to eight"
    if found.pooled:
        says += ", behind a pooler"
    elif found.connections_max < CONNECTIONS_MIN or found.connections > found.connections_max * CONNECTIONS_SHARE:
        return [warn(says, advice)]
    return [ok(says)]


async def clock(setup: Setup) -> AsyncIterator[Finding]:
    """How far this machine's clock is from the database's, which decides leases, retries and deadlines."""
    from backstay.store.databases.database import is_postgres

    if not is_postgres(setup.app.url):
        yield ok("SQLite uses the clock of this machine")
        return
    before = setup.clock.now_ms()
    there = (await setup.store.providers.holds()).now
    yield skew(there, (before + setup.clock.now_ms()) // 2)


def skew(database_ms: int, here_ms: int) -> Finding:
    apart = abs(database_ms - here_ms)
    advice = "synchronize this machine's clock with NTP; leases, retries and deadlines use the database's clock"
    says = f"{apart / 1000:.1f} s from the database's"
    return ok(says) if apart <= SKEW_MS_MAX else fail(says, advice)
