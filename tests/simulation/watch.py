"""What must hold after every single transaction, whoever made it."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from backstay.core.errors import DatabaseUnreachable
from backstay.core.models import Settlement
from backstay.core.states import TERMINAL, ItemState, may_follow
from backstay.store import settle
from backstay.store.items import Items
from backstay.store.queries import Script
from backstay.store.settle import Settled
from backstay.store.store import Store
from backstay.testing import InlineSQLite


class Broken(AssertionError):
    """An invariant does not hold."""


class Watch:
    """Reads the tables after each commit and compares them with what they were before."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._items: dict[int, tuple[str, int]] = {}
        self._results: dict[int, str | None] = {}
        self._changes = 0
        self.retried: Counter[int] = Counter()
        self.wrongs: list[str] = []

    def fences(self) -> dict[int, int]:
        return dict(self._connection.execute("SELECT id, fence FROM items"))

    def wrong(self, message: str) -> Broken:
        """Noted as well as raised: the engine takes an exception for a failure like any other."""
        self.wrongs.append(message)
        return Broken(message)

    def committed(self) -> None:
        if self._connection.total_changes == self._changes:
            return
        self._changes = self._connection.total_changes
        rows = self._connection.execute("SELECT id, state, fence FROM items ORDER BY id").fetchall()
        changed = [row for row in rows if self._items.get(row[0]) != row[1:]]
        for item, state, fence in changed:
            self._moved(item, ItemState(state), fence)
        if changed:
            self._items.update((item, (state, fence)) for item, state, fence in changed)
            self._count()

    def _moved(self, item: int, state: ItemState, fence: int) -> None:
        before, old_fence = self._items.get(item, (ItemState.QUEUED, 0))
        was = ItemState(before)
        if fence < old_fence:
            raise self.wrong(f"item {item}: the fence fell from {old_fence} to {fence}")
        if state is not was and not may_follow(was, state):
            raise self.wrong(f"item {item} went from {was} to {state}")
        if was in TERMINAL and state is not was:
            self.retried[item] += 1
        if state is ItemState.SUCCEEDED:
            self._results[item] = self.result(item)

    def result(self, item: int) -> str | None:
        rows = self._connection.execute(
            "SELECT result FROM attempts WHERE item_id = ? AND outcome = 'succeeded'", (item,)
        ).fetchall()
        if len(rows) != 1:
            raise self.wrong(f"item {item} succeeded and has {len(rows)} results")
        result: str | None = rows[0][0]
        return result

    def _count(self) -> None:
        kept = "processing, succeeded, failed, skipped, cancelled"
        counts = ", ".join(f"sum(items.state = '{name}')" for name in kept.split(", "))
        sql = f"SELECT jobs.id, {kept}, {counts}, total, count(items.id) FROM jobs JOIN items ON job_id = jobs.id"
        for row in self._connection.execute(sql + " GROUP BY jobs.id"):
            if row[1:6] != row[6:11] or row[11] != row[12]:
                raise self.wrong(f"job {row[0]} counts {row[1:6]} of {row[11]}, but has {row[6:11]} of {row[12]}")

    def results_never_changed(self) -> None:
        for item, result in self._results.items():
            if self.result(item) != result:
                raise self.wrong(f"the result of item {item} changed")


class WatchedStore(Store):
    """The store as it is, but for a look at every settlement that the database accepts."""

    def __init__(self, database: "WatchedDatabase") -> None:
        super().__init__(database)
        self.items = WatchedItems(database)


class WatchedItems(Items):
    def __init__(self, database: "WatchedDatabase") -> None:
        super().__init__(database)
        self._watched = database

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        return await self._db.write(lambda: self._settle(settlements))

    def _settle(self, settlements: Sequence[Settlement]) -> Script[Settled]:
        fences = self._watched.watch.fences()
        settled = yield from settle.settle(settlements)
        for settlement in settled.applied:
            if fences[settlement.id] != settlement.fence:
                raise self._watched.watch.wrong(
                    f"item {settlement.id}: fence {settlement.fence} wrote over {fences[settlement.id]}"
                )
        for settlement in settled.lost:
            late = fences[settlement.id] != settlement.fence
            self._watched.reached("a late write was refused" if late else "a write that was made was made again")
        return settled


class WatchedDatabase(InlineSQLite):
    """One simulated process's way to the shared database, with a network that may be slow, deaf or cut."""

    def __init__(self, on: InlineSQLite, watch: Watch, line: "Line") -> None:
        super().__init__(on.clock, on)
        self.watch = watch
        self.reached = line.reached
        self._line = line

    async def write(self, make: Callable[[], Script[Any]]) -> Any:
        await self._line.travel()
        script: Any = make()
        name: str = script.__name__
        value = self.commit(lambda: script)
        self.watch.committed()
        await self._line.travel()
        if self._line.loses_answer():
            self.reached(f"{name.strip('_')} committed, its answer lost")
            raise DatabaseUnreachable("the answer was lost")
        return value


class Line:
    """The network between one process and the database."""

    def __init__(self, clock: Any, rng: Any, reached: Callable[[str], None]) -> None:
        self._clock = clock
        self._rng = rng
        self.reached = reached
        self.cut = False
        self.slow = 0.0
        self.deaf = 0.0

    async def travel(self) -> None:
        draw = self._rng.random()
        if draw < self.slow:
            await self._clock.sleep(self._rng.uniform(0.5, 3))
        elif draw < 0.5:
            await self._clock.sleep(0)
        else:
            await self._clock.sleep(self._rng.uniform(0.0005, 0.01))
        if self.cut:
            await self._clock.sleep(0.5)
            raise DatabaseUnreachable("cut off from the database")

    def loses_answer(self) -> bool:
        return bool(self._rng.random() < self.deaf)
