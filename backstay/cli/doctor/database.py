"""The database: whether it answers, its schema, durability, connections and clock. And the work in it: whether somebody
does it, and what got stuck."""

from collections.abc import AsyncIterator, Callable, Container, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from backstay.cli import database_choice, output
from backstay.cli.command import next_command
from backstay.cli.doctor import Finding, Setup, fail, fail_with, ok, warn
from backstay.core.display import show_span
from backstay.core.errors import BackstayError, DatabaseUnreachable

if TYPE_CHECKING:
    from backstay.store.databases.schema import Pooling
    from backstay.store.job_views import Backlog
    from backstay.store.outbox import Lag
    from backstay.store.workers import HeldLeases, WorkerView


SKEW_MS_MAX: Final = 5_000
CONNECTIONS_MIN: Final = 50  # five processes of up to eight connections, and a few for people
CONNECTIONS_SHARE: Final = 0.9
BOUNCER_OPTIONS: Final = "?listen=off&prepared_statements=off"


async def database(setup: Setup) -> AsyncIterator[Finding]:
    """Which database is used, which setting names it, and whether it answers."""
    from backstay import wiring

    target = setup.target
    says = f"{target.description}, from {target.source}"
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
        yield fail_with(error)
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
    for finding in _judge_connections(found):
        yield finding


def _judge_connections(found: "Pooling") -> list[Finding]:
    says = f"{found.connections} of {found.connections_max} are open"
    advice = "raise max_connections: every Backstay process uses up to eight"
    if found.pooled:
        says += ", behind a pooler"
    elif found.connections_max < CONNECTIONS_MIN or found.connections > found.connections_max * CONNECTIONS_SHARE:
        return [warn(says, advice)]
    return [ok(says)]


async def old_transactions(setup: Setup) -> AsyncIterator[Finding]:
    """Whether a transaction has been open for long: PostgreSQL keeps all row versions since its start."""
    old, most = await setup.store.workers.oldest_transaction(), setup.settings.alarm_transaction_seconds
    if old is None or old.age_ms <= most * 1000:
        yield ok("no transaction has been open for long")
        return
    end = "" if old.pid is None else f", for example with SELECT pg_terminate_backend({old.pid})"
    yield warn(f"{old.words}: a transaction has been open for {show_span(old.age_ms)}", f"end it{end}")


async def clock(setup: Setup) -> AsyncIterator[Finding]:
    """How far this machine's clock is from the database's, which decides leases, retries and deadlines."""
    from backstay.store.databases.database import is_postgres

    if not is_postgres(setup.app.url):
        yield ok("SQLite uses the clock of this machine")
        return
    before = setup.clock.now_ms()
    there = (await setup.store.providers.holds()).now
    yield judge_skew(there, (before + setup.clock.now_ms()) // 2)


def judge_skew(database_ms: int, here_ms: int) -> Finding:
    apart = abs(database_ms - here_ms)
    advice = "synchronize this machine's clock with NTP; leases, retries and deadlines use the database's clock"
    says = f"{apart / 1000:.1f} s from the database's"
    return ok(says) if apart <= SKEW_MS_MAX else fail(says, advice)


OPEN_MS_MAX: Final = 15 * 60_000  # a submit that has not ended by then was probably interrupted
LAG_MS_MAX: Final = 60_000


async def _alive(setup: Setup) -> "list[WorkerView]":
    lease_ms = setup.app.limits.lease_ms
    return [worker for worker in await setup.store.workers.page() if worker.alive(lease_ms)]


async def workers(setup: Setup) -> AsyncIterator[Finding]:
    """How many workers are alive."""
    yield ok(f"{len(await _alive(setup))} alive")


async def backlog(setup: Setup) -> AsyncIterator[Finding]:
    """Whether a live worker runs each handler that has unfinished items."""
    requests = dict(await setup.store.providers.endpoints())
    for finding in find_missing_workers(await setup.store.job_views.backlog(), await _alive(setup), requests):
        yield finding


def find_missing_workers(
    backlog: "list[Backlog]", alive: "list[WorkerView]", requests: Container[str] = ()
) -> Iterator[Finding]:
    """Requests may wait until their run is resumed: that is fine."""
    for waiting in backlog:
        runs = sum(waiting.handler in worker.handlers for worker in alive)
        unfinished = output.count(waiting.items, "item")
        says = f"{waiting.handler}: {unfinished} unfinished, {output.count(runs, 'live worker')}"
        if waiting.handler in requests:
            yield ok(says + ("" if runs else f"; to resume: the same `backstay run`, or {next_command('worker')}"))
        elif runs:
            yield ok(says)
        else:
            yield fail(says, f"start a worker whose application has the handler {waiting.handler!r}")


async def stuck_items(setup: Setup) -> AsyncIterator[Finding]:
    """Whether another worker takes over the items of a lost worker."""
    requests = dict(await setup.store.providers.endpoints())
    yield judge_stuck_items(await setup.store.item_views.stuck(), await _alive(setup), requests)


def judge_stuck_items(items: Mapping[str, int], alive: "list[WorkerView]", requests: Container[str] = ()) -> Finding:
    """Requests run again when their run is resumed: until then it is fine."""
    served = {handler for worker in alive for handler in worker.handlers}
    waiting = sum(count for handler, count in items.items() if handler in requests and handler not in served)
    wrong = sum(items.values()) - waiting
    says = f"{wrong:,}" + (
        f"; {output.count(waiting, 'request')} from an interrupted run wait until you run it again" if waiting else ""
    )
    advice = "start a worker that runs their handler: it takes over these items"
    return fail(says, advice) if wrong else ok(says)


async def dead_leases(setup: Setup) -> AsyncIterator[Finding]:
    """Whether items are leased to workers that are gone."""
    from backstay.clock import is_process_alive, own_namespace

    held = await setup.store.workers.held_leases()
    gone = [leases for leases in held if _is_gone(leases, own_namespace(), is_process_alive)]
    for leases in gone:
        says = (
            f"{output.count(leases.items, 'item')} leased to a worker on {leases.host}, process {leases.pid}, that is"
        )
        left = max(leases.until_at - leases.now, 0) / 1000
        advice = f"start a worker: on that machine it takes them over at once, elsewhere in {left:.0f} s"
        yield warn(f"{says} gone", advice)
    if not gone:
        yield ok(f"{output.count(sum(leases.items for leases in held), 'item')} leased, all to live workers")


def _is_gone(leases: "HeldLeases", here: str, is_process_alive: Callable[[int], bool]) -> bool:
    return bool(leases.stopped) or (bool(here) and leases.place == here and not is_process_alive(leases.pid))


async def unsealed_jobs(setup: Setup) -> AsyncIterator[Finding]:
    """Whether a submit was interrupted half-way: its job waits for the rest, and never ends."""
    found = await setup.store.job_views.unsealed_jobs(OPEN_MS_MAX)
    for job_id, age_ms in found:
        says = f"job {job_id} has been open for new items for {age_ms / 60_000:.0f} min"
        yield warn(
            f"{says}: its submit was interrupted, or still runs",
            f"run the same submit again, or: {next_command(f'job cancel {job_id}')}",
        )
    if not found:
        yield ok("none")


async def budgets(setup: Setup) -> AsyncIterator[Finding]:
    """Which jobs wait because of their budgets."""
    short = await setup.store.job_views.short_jobs()
    for job_id in short:
        how = "the same `backstay run` or `submit` with a higher --budget"
        yield ok(f"job {job_id} has reached its budget; to resume: {how}")
    if not short:
        yield ok("no job has reached its budget")


async def outbox(setup: Setup) -> AsyncIterator[Finding]:
    """Whether messages are published: hints for a broker (RabbitMQ or Celery's), events for webhooks, and yours."""
    sinks = setup.store.outbox
    off = next_command("broker off")
    advice = f"see the logs of the workers and the relay; if you use no broker any more: {off}"
    if await sinks.is_open():
        yield judge_lag(await sinks.lag("work"), "hint", advice)
    if await sinks.is_open("messages"):
        yield judge_lag(await sinks.lag("messages"), "message", advice)
    advice = f"start the service, which sends webhooks, or: {next_command('relay')}"
    yield judge_lag(await sinks.lag("webhooks"), "event", advice)


def judge_lag(lag: "Lag", noun: str, advice: str) -> Finding:
    """Without hints work continues more slowly; receivers of events keep waiting."""
    says = f"{output.count(lag.rows, noun)} not published"
    says += f", the oldest for {lag.age_ms // 1000} s" if lag.rows else ""
    return ok(says) if lag.age_ms <= LAG_MS_MAX else fail(says, advice)
