"""The books, checked after every write: what no verb may ever break, whoever calls it and in whatever order."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from backstay.core.models import ANSWERED
from backstay.core.states import JOB_ENDED, TERMINAL, ItemState, JobState, may_follow
from backstay.store.databases.database import Database
from backstay.store.queries import Script
from tests.databases import Site

T = TypeVar("T")

COUNTED = ("processing", "succeeded", "failed", "skipped", "cancelled")
FLAWS = ("truncated", "refused", "filtered", "unfinished")
# With those that are written apart, until they are added up.
APART = "SELECT coalesce(sum({}), 0) FROM job_counts WHERE job_counts.job_id = jobs.id"
COUNTERS = ", ".join(f"{name} + ({APART.format(name)})" for name in (*COUNTED, *FLAWS))
HAS_APART = "EXISTS (SELECT 1 FROM job_counts WHERE job_counts.job_id = jobs.id)"
# A job without an owner is being deleted: its items go before its counts.
JOBS = f"SELECT id, state, held, sealed, {HAS_APART}, finished_at, total, {COUNTERS} FROM jobs WHERE owner <> ''"
ITEMS = "SELECT id, job_id, state, fence, leased_by, due_at, finished_at, error_code, flaw FROM items"
SUCCESSES = "SELECT item_id, fence, result FROM attempts WHERE outcome = 'succeeded'"


class Seen(NamedTuple):
    state: ItemState
    fence: int
    finished_at: int | None


class Auditor:
    """Remembers how things stood after the last write and holds the next one against it."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._items: dict[int, Seen] = {}
        self._successes: dict[int, tuple[int, str]] = {}

    async def check(self) -> None:
        jobs, items, successes = await self._site.answers(JOBS, ITEMS, SUCCESSES)
        for job in jobs:
            check_job(job, [row for row in items if row[1] == job[0]])
        for row in items:
            self._check_item(row)
        self._check_successes(successes)
        without = {row[0] for row in items if row[2] == ItemState.SUCCEEDED} - {row[0] for row in successes}
        assert not without, f"{without} succeeded without a result"

    def _check_item(self, row: tuple[Any, ...]) -> None:
        item, state, fence, finished_at = row[0], ItemState(row[2]), row[3], row[6]
        assert (finished_at is not None) == (state in TERMINAL), f"item {item} is {state}, finished at {finished_at}"
        assert state not in TERMINAL or row[4] is None, f"item {item} is {state} and still leased"
        assert state in TERMINAL or row[8] in (None, *ANSWERED), f"item {item} is {state} and has the flaw {row[8]}"
        before = self._items.get(item)
        if before is not None and (before.state, before.fence) != (state, fence):
            assert before.state == state or may_follow(before.state, state), f"{before.state} -> {state}"
            assert fence >= before.fence, f"the fence of {item} went back from {before.fence} to {fence}"
            if before.state is state:
                assert state not in TERMINAL, f"item {item} changed although it was {state}"
        if before is not None and before.state in TERMINAL and state is before.state:
            assert finished_at == before.finished_at, f"item {item} ended twice"
        self._items[item] = Seen(state, fence, finished_at)

    def _check_successes(self, rows: list[tuple[Any, ...]]) -> None:
        assert len({row[0] for row in rows}) == len(rows), "an item succeeded twice"
        for item, fence, result in rows:
            assert self._successes.setdefault(item, (fence, result)) == (fence, result), "a result changed"
            assert self._items[item].state is ItemState.SUCCEEDED, f"{item} has a result and is {self._items[item]}"
            assert self._items[item].fence == fence, f"{item} has the result of a holder that had lost it"


def check_job(job: tuple[Any, ...], items: list[tuple[Any, ...]]) -> None:
    job_id, state, held, sealed, has_apart, finished_at, total, *counters = job
    counts = [sum(row[2] == name for row in items) for name in COUNTED]
    counts += [sum(row[8] == name and row[2] in TERMINAL for row in items) for name in FLAWS]
    assert counters == counts, f"job {job_id} counts {counters}, and there are {counts}"
    assert total == len(items), f"job {job_id} counts {total} items, and there are {len(items)}"
    ended = JobState(state) in JOB_ENDED
    over = sealed == 1 and all(ItemState(row[2]) in TERMINAL for row in items)
    assert ended == (finished_at is not None), f"job {job_id} is {state}, finished at {finished_at}"
    if over and total:
        assert ended or has_apart, f"job {job_id} is {state}, and all its items have ended"
    if ended:
        assert over, f"job {job_id} is {state} and has unfinished items"
        assert held == 0, f"job {job_id} is {state} and still held"


class AuditedDatabase:
    """A database that has its books checked after every write."""

    def __init__(self, database: Database, auditor: Auditor) -> None:
        self._inner = database
        self._auditor = auditor
        self.dialect, self.clock = database.dialect, database.clock
        self.listens, self.wakes = database.listens, database.wakes

    async def open(self) -> None:
        await self._inner.open()

    async def close(self) -> None:
        await self._inner.close()

    async def write(self, make: Callable[[], Script[T]]) -> T:
        try:
            return await self._inner.write(make)
        finally:
            await self._auditor.check()

    async def single(self, make: Callable[[], Script[T]]) -> T:
        try:
            return await self._inner.single(make)
        finally:
            await self._auditor.check()

    async def read(self, make: Callable[[], Script[T]]) -> T:
        return await self._inner.read(make)

    async def notify(self) -> None:
        await self._inner.notify()

    async def listen(self, wake: Callable[[], None]) -> None:
        await self._inner.listen(wake)
