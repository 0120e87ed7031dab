"""An application on an empty database in memory, in virtual time: `rehearsal` sets it up, `drain` runs all work."""

import asyncio
import functools
import selectors
import sqlite3
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, ParamSpec, TypeVar

from backstay.app import Backstay
from backstay.client import Client, Job
from backstay.clock import Clock, Tasks, new_incarnation
from backstay.core.errors import BackstayError, UsageError
from backstay.core.ids import item_range, show_item
from backstay.core.models import Claimed, JobTerms
from backstay.core.states import ItemState, JobState
from backstay.engine.engine import Engine
from backstay.engine.parts import Parts, beat, drop_lost_items
from backstay.engine.worker import Worker
from backstay.handlers.handler import client_ref
from backstay.store.databases import schema
from backstay.store.databases.sqlite import connect, run_script
from backstay.store.job_views import JobView
from backstay.store.queries import SQLITE, Script
from backstay.store.store import Store
from backstay.testing.provider import ScriptedProvider

P = ParamSpec("P")
T = TypeVar("T")

FIRST_MS = 1_767_225_600_000  # midnight, 1 January 2026, UTC; any time would work
THREAD_LOOK_SECONDS = 0.02


class EverythingWaits(BackstayError):
    """All tasks wait, and no timer is left that could wake one."""


class VirtualClock(Clock):
    """All clocks of a test: wall clock, monotonic clock and the loop's timers move together."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return FIRST_MS + round(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


class _Selector(selectors.DefaultSelector):
    """Where a real loop would sleep, this one moves the clock; it really waits only while a thread works."""

    def __init__(self, clock: VirtualClock, busy: Callable[[], bool]) -> None:
        super().__init__()
        self._clock = clock
        self._busy = busy

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self._busy():
            seconds = THREAD_LOOK_SECONDS if timeout is None else min(timeout, THREAD_LOOK_SECONDS)
            self._clock.seconds += seconds  # time goes on beside a thread, or one that never returns would stop it
            return super().select(seconds)
        if timeout is None:
            raise EverythingWaits
        self._clock.seconds += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop on a virtual clock. Timers fire in order, at once, and the same way every time."""

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self._in_executor = 0
        self._other_threads = frozenset(threading.enumerate())  # a handler of an earlier test may still block its own
        super().__init__(_Selector(self.clock, self._threads_work))
        self._clock_resolution = 1e-6  # sums of floats miss a timer by less than this

    def time(self) -> float:
        return self.clock.seconds

    def _threads_work(self) -> bool:
        return self._in_executor > 0 or any(
            thread.name.startswith("backstay-handler") and thread not in self._other_threads
            for thread in threading.enumerate()
        )

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        future = super().run_in_executor(executor, func, *args)
        self._in_executor += 1
        future.add_done_callback(self._came_back)
        return future

    async def shutdown_default_executor(self, *args: Any) -> None:
        self._in_executor += 1  # a thread waits for the others to end
        try:
            await super().shutdown_default_executor(*args)
        finally:
            self._in_executor -= 1

    def _came_back(self, _: "asyncio.Future[Any]") -> None:
        self._in_executor -= 1


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Turns an async test into a plain one that runs on its own VirtualLoop, under any test runner."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(test(*args, **kwargs))

    return run


@cache
def _template() -> sqlite3.Connection:
    """A migrated, empty database in memory, made once and copied for each test."""
    made = sqlite3.connect(":memory:", check_same_thread=False)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "template.db")
        schema.create_sqlite(path)
        file = connect(path)
        file.backup(made)
        file.close()
    return made


def _fresh() -> sqlite3.Connection:
    connection = connect(":memory:")
    _template().backup(connection)
    return connection


class InlineSQLite:
    """The store's database for virtual time. Databases made with `on` share its data: another process, same file."""

    dialect, listens, wakes = SQLITE, False, False

    def __init__(self, clock: Clock, on: "InlineSQLite | None" = None) -> None:
        self.clock = clock
        self.connection: sqlite3.Connection = _fresh() if on is None else on.connection

    async def open(self) -> None:
        """It is open from the start."""

    async def close(self) -> None:
        """Its data lives as long as the object."""

    async def single(self, make: Callable[[], Script[T]]) -> T:
        return await self.write(make)

    async def write(self, make: Callable[[], Script[T]]) -> T:
        await self.clock.sleep(0)  # a process that dies here never asked
        value = self.commit(make)
        await self.clock.sleep(0)  # a process that dies here never got the answer
        return value

    async def read(self, make: Callable[[], Script[T]]) -> T:
        return await self.write(make)

    def commit(self, make: Callable[[], Script[T]]) -> T:
        """Runs one script in one transaction, all or nothing."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            value = run_script(self.connection, make(), self.clock.now_ms())
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")
        return value

    async def notify(self) -> None:
        """Nothing to do: workers in virtual time poll."""

    async def listen(self, wake: Callable[[], None]) -> None:
        """Nothing to do: nothing notifies here."""


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
    client = _rehearsal_client(app)
    engine = Engine(_parts(app, client, seed), app.limits.worker_concurrency)
    worker = Worker(engine, IDLE_SECONDS)
    await worker.start()
    beating = engine.parts.tasks.spawn(_beat(engine))
    end = client.clock.monotonic() + hours_max * 3600
    try:
        while waiting := await _unfinished_jobs(client):
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


def _rehearsal_client(app: Backstay) -> Client:
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
        drop_lost_items(await beat(parts.store, engine.flights, parts), engine.flights, parts)


async def _unfinished_jobs(client: Client) -> list[JobView]:
    jobs = await client.store.job_views.page(client.owner, n=1_000)
    return [job for job in jobs if not job.ended and job.state is not JobState.PAUSED]


def _names(jobs: list[JobView]) -> str:
    return ", ".join(f"{job.id} ({job.done} of {job.total})" for job in jobs)
