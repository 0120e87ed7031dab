"""An application on an empty database in virtual time: `rehearsal` sets it up, `drain` runs all work."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from backstay.app import Backstay
from backstay.client import Client, Job
from backstay.clock import Tasks, new_incarnation
from backstay.core.errors import UsageError
from backstay.core.ids import item_range, show_item
from backstay.core.models import Claimed, JobTerms
from backstay.core.states import ItemState, JobState
from backstay.engine.engine import Engine
from backstay.engine.lease_keeper import beat, let_go
from backstay.engine.parts import Parts
from backstay.engine.worker import Worker
from backstay.handlers.handler import client_ref
from backstay.store.job_views import JobView
from backstay.store.store import Store
from backstay.testing.clock import VirtualClock, VirtualLoop
from backstay.testing.database import InlineSQLite
from backstay.testing.provider import ScriptedProvider

IDLE_SECONDS = 2.0
LOOK_SECONDS = 1.0


@asynccontextmanager
async def rehearsal(app: Backstay) -> AsyncIterator[VirtualClock]:
    """Puts an application on a fresh database in memory while the block runs; its own database is not touched."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise UsageError("a rehearsal runs in virtual time", hint="decorate the test with @virtual_time")
    before = app._client
    store = Store(InlineSQLite(loop.clock))
    app._client = Client(store, app.settings.owner, app.limits, loop.clock, app.bus)
    try:
        yield loop.clock
    finally:
        app._client = before


async def drain(app: Backstay, hours_max: float = 72, seed: int = 0) -> None:
    """Runs a worker until no item is unfinished, through every wait; paused jobs are left as they are."""
    client = _rehearsing(app)
    engine = Engine(_parts(app, client, seed), app.limits.worker_concurrency)
    worker = Worker(engine, IDLE_SECONDS)
    await worker.start()
    beating = engine.parts.tasks.spawn(_beat(engine))
    end = client.clock.monotonic() + hours_max * 3600
    try:
        while waiting := await _unfinished(client):
            if client.clock.monotonic() > end:
                raise AssertionError(f"after {hours_max:g} h these jobs have not ended: {_names(waiting)}")
            await client.clock.sleep(LOOK_SECONDS)
    finally:
        beating.cancel()
        await worker.stop(grace_seconds=0)


async def assert_paid_once(provider: ScriptedProvider, job: Job) -> None:
    """Every item that succeeded is on the provider's bill exactly once, and none is there twice."""
    database = _database(job._client.store)
    wrong: list[str] = []
    for item, state, refs in references(database, job.id):
        times = [provider.times_paid(ref) for ref in refs]
        succeeded = state == ItemState.SUCCEEDED
        if max(times) > 1 or (succeeded and times[-1] != 1):
            wrong.append(f"item {show_item(item)} ({state}) was paid {sum(times)} times")
    if wrong:
        raise AssertionError("; ".join(wrong))


def references(database: InlineSQLite, job_id: int) -> list[tuple[int, str, list[str]]]:
    """Each item of a job as (id, state, the references of its rounds), as they are on the provider's bill."""
    owner, seed = database.connection.execute("SELECT owner, ref_seed FROM jobs WHERE id = ?", (job_id,)).fetchone()
    terms = JobTerms(job_id, owner, seed, None, None)
    rows = database.connection.execute(
        "SELECT items.id, items.state, items.round, requests.body FROM items"
        " JOIN requests ON requests.item_id = items.id WHERE items.id >= ? AND items.id < ? ORDER BY items.id",
        item_range(job_id),
    ).fetchall()
    return [
        (item, state, [client_ref(terms, _reference_parts(item, number, body)) for number in range(rounds + 1)])
        for item, state, rounds, body in rows
    ]


def _reference_parts(item: int, round_number: int, body: str) -> Claimed:
    """The part of an item that its reference is made of."""
    return Claimed(item, 0, "", "", 0, 0, round_number, 0, 0, 0, 0, None, 0, 0, None, None, None, body)


def _rehearsing(app: Backstay) -> Client:
    client = app._client
    if client is None or not isinstance(client.clock, VirtualClock):
        raise UsageError("drain works inside a rehearsal", hint="async with rehearsal(app): …")
    return client


def _database(store: Store) -> InlineSQLite:
    if not isinstance(store._db, InlineSQLite):
        raise UsageError("the bill can be compared inside a rehearsal only", hint="async with rehearsal(app): …")
    return store._db


def _parts(app: Backstay, client: Client, seed: int) -> Parts:
    return Parts(
        client.store,
        app.handlers,
        app.limits,
        client.clock,
        Random(seed),
        Tasks(),
        app.bus,
        new_incarnation(),
        owner=client.owner,
    )


async def _beat(engine: Engine) -> None:
    """The lease keeper without its thread: in virtual time nothing blocks the loop."""
    parts = engine.parts
    while True:
        await parts.clock.sleep(parts.limits.heartbeat_seconds)
        let_go(await beat(parts.store, engine.flights, parts), engine.flights, parts)


async def _unfinished(client: Client) -> list[JobView]:
    jobs = await client.store.job_views.page(client.owner, n=1_000)
    return [job for job in jobs if not job.ended and job.state is not JobState.PAUSED]


def _names(jobs: list[JobView]) -> str:
    return ", ".join(f"{job.id} ({job.done} of {job.total})" for job in jobs)
