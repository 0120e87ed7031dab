"""Workers: which are alive, the end of leases whose workers are dead, the duties of one worker at a time, and ticks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from backstay.clock import DAY_MS
from backstay.core.display import one_line, show_utc
from backstay.store.databases.database import Database, writes
from backstay.store.jobs import change_job
from backstay.store.queries import Ask, Script, one, record

LOOKED_MAX: Final = 100
LEASES_LOOKED_MAX: Final = 20_000
KEPT_MS: Final = 7 * DAY_MS


@record
@dataclass(frozen=True, slots=True)
class WorkerView:
    id: str
    host: str
    pid: int
    handlers: tuple[str, ...]
    started_at: int
    seen_at: int
    stopped_at: int | None
    now: int
    providers: Mapping[str, str]  # handler -> its provider, as far as the worker reported it

    def alive(self, lease_ms: int) -> bool:
        return self.stopped_at is None and self.seen_at + lease_ms > self.now


@record
class HeldLeases(NamedTuple):
    """The leases of one worker. An unknown worker counts as stopped."""

    worker: str
    items: int
    until_at: int
    host: str
    pid: int
    place: str
    stopped: int
    now: int


@record
class Lease(NamedTuple):
    """The items that one claim of a worker is sending."""

    handler: str
    leased_by: str | None
    items: int

    @property
    def worker(self) -> str:
        return (self.leased_by or "").partition(":")[0]


@record
class OldTransaction(NamedTuple):
    """The transaction of a PostgreSQL database that has been open for the longest time. The fields are empty if our
    user may not see them, and a prepared transaction has no process."""

    pid: int | None
    user_name: str | None
    application: str | None
    state: str | None
    age_ms: int
    query_at: int | None

    @property
    def words(self) -> str:
        user, name = self.user_name or "unknown", one_line(self.application or "", 60)
        if self.pid is None:
            return f"the prepared transaction {name!r} of user {user}"
        whose = f"process {self.pid} of user {user}" + (f", application {name!r}" if name else "")
        return whose + ("" if self.query_at is None else f", whose last query began at {show_utc(self.query_at)}")


class Workers:
    def __init__(self, database: Database) -> None:
        self._db = database

    @writes
    def register(self, worker: str, host: str, pid: int, place: str, handlers: str) -> Script[None]:
        values = {"id": worker, "host": host, "pid": pid, "place": place, "handlers": handlers}
        yield Ask("register_worker", values)
        yield Ask("forget_workers", {"age_ms": KEPT_MS})

    async def end_dead_leases(self, worker: str, place: str, is_alive: Callable[[int], bool]) -> int:
        """Ends the leases of workers on this machine whose processes are gone; returns how many."""
        return await self._end_dead_leases(worker, place, is_alive) if place else 0

    @writes
    def _end_dead_leases(self, worker: str, place: str, is_alive: Callable[[int], bool]) -> Script[int]:
        neighbours = yield Ask("neighbours", {"place": place, "id": worker})
        dead = [row["id"] for row in neighbours if not is_alive(row["pid"])]
        for name in dead:
            yield Ask("end_dead_leases", {"claims": f"{name}:%"})
            yield Ask("unregister_worker", {"id": name})
        return len(dead)

    @writes
    def unregister(self, worker: str) -> Script[None]:
        yield Ask("unregister_worker", {"id": worker})

    # A run that ends pauses its job, and the same run may begin again at this moment. Both lock the job first, and the
    # new run has registered its worker before: so either its worker is seen, or it sees the pause.

    @writes
    def pause_unattended(self, job_id: int, owner: str, lease_ms: int) -> Script[None]:
        """Pauses a job if it can be paused and no worker is alive."""
        yield Ask("lock_jobs", {"owner": owner}, [(job_id,)])
        workers: list[WorkerView] = yield Ask("workers", {"n": LOOKED_MAX})
        if not any(worker.alive(lease_ms) for worker in workers):
            yield from change_job("pause_job", job_id, owner, "paused")

    @writes
    def take_up(self, job_id: int, owner: str) -> Script[bool]:
        """Resumes a job if it is paused; returns whether it was. The caller's worker is registered."""
        yield Ask("lock_jobs", {"owner": owner}, [(job_id,)])
        return (yield from change_job("resume_job", job_id, owner, "resumed"))

    async def page(self, n: int = LOOKED_MAX) -> list[WorkerView]:
        return await self._db.read(one("workers", {"n": n}))

    async def held_leases(self) -> list[HeldLeases]:
        """The workers that hold valid leases."""
        return await self._db.read(one("leases_held"))

    async def oldest_transaction(self) -> OldTransaction | None:
        """The open transaction that keeps the most row versions. SQLite keeps none."""
        if not self._db.dialect.keeps_entries:
            return None
        found: list[OldTransaction] = await self._db.read(one("oldest_transaction"))
        return found[0] if found else None

    async def leases(self) -> list[Lease]:
        return await self._db.read(one("leases", {"n": LEASES_LOOKED_MAX}))


class Duties:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def take(self, name: str, lease_ms: int) -> bool:
        """Whether this process gets the duty. No other process gets it before the lease ends, even if this one dies."""
        return bool(await self._db.write(one("take_duty", {"name": name, "lease_ms": lease_ms})))


INVOCATIONS_KEPT_MS: Final = 14 * DAY_MS
GRACE_MS: Final = 60_000  # how long a tick may overrun before it counts as killed


@record
class RecentTicks(NamedTuple):
    """Recent ticks, their chains, the chains that reached the depth limit with work left, and failures."""

    ticks: int
    chains: int
    chains_full: int
    failed: int


class Invocations:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def begin(self, invocation: str, depth: int, seconds: float) -> None:
        await self._db.write(lambda: _begin(invocation, depth, round(seconds * 1000) + GRACE_MS))

    async def end(self, invocation: str, items: int, was_full: bool) -> None:
        values = {"id": invocation, "items": items, "was_full": int(was_full)}
        await self._db.write(one("end_invocation", values))

    async def fail(self, invocation: str, error: str) -> None:
        """Marks a tick as failed: its follow-up could not be requested, even if the tick itself had ended well."""
        await self._db.write(one("fail_invocation", {"id": invocation, "error": error}))

    async def lately(self, age_ms: int) -> RecentTicks:
        [found] = await self._db.read(one("invocations_lately", {"age_ms": age_ms}))
        return found  # type: ignore[no-any-return]


def _begin(invocation: str, depth: int, span_ms: int) -> Script[None]:
    yield Ask("begin_invocation", {"id": invocation, "depth": depth, "span_ms": span_ms})
    yield Ask("forget_invocations", {"age_ms": INVOCATIONS_KEPT_MS})
