"""Live events: one reader of the database for everyone who watches, and a stream of snapshots for each of them.

A snapshot's id is its digest, so it means the same on every server: a client that reconnects with its last id gets the
new state, or nothing if it did not change. No client gets an older snapshot after a newer one: one reader reads in
order, and a new watcher waits for a read that began after it joined. A slow client misses snapshots in between,
never the last.
"""

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from backstay.clock import Clock, Tasks, wait_for_event
from backstay.core.errors import BackstayError, NotFound
from backstay.core.ids import show_item
from backstay.core.states import TERMINAL, ItemState
from backstay.server.etags import etag_of
from backstay.server.problems import Problem
from backstay.server.shapes import item_bytes, job_bytes
from backstay.store.item_views import ItemView
from backstay.store.job_views import JobView
from backstay.store.store import Store

LOOK_SECONDS: Final = 0.5
WATCHERS_PER_SECOND: Final = 2_000  # notified at most: with more of them, the time between two reads grows
LOOKED_MAX: Final = 500  # at once
FIRST_SECONDS_MAX: Final = 10.0
WATCHERS_MAX: Final = 10_000
WATCHERS_OF_OWNER_MAX: Final = 2_000


class Subject(NamedTuple):
    """What is watched, and whose it is."""

    kind: Literal["job", "item"]
    id: int
    owner: str


class Snapshot(NamedTuple):
    id: str
    text: bytes  # as it goes down every stream
    ended: bool  # nothing more comes unless somebody asks for it


GONE: Final = Snapshot("gone", b"event: gone\ndata: {}\n\n", True)


@dataclass(slots=True, eq=False)
class Watcher:
    """One who watches. `changed` is set when there is something to look at."""

    subject: Subject
    since: int  # reads that had begun when the watcher joined
    changed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _Seen:
    """A subject as it was at the last look."""

    watchers: set[Watcher] = field(default_factory=set)
    look: int = -1
    row: JobView | ItemView | None = None
    snapshot: Snapshot | None = None


class Lookout:
    """Looks at everything that is watched, at a steady pace, as long as anyone watches."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._tasks = Tasks()
        self._seen: dict[Subject, _Seen] = {}
        self._new: set[Subject] = set()  # joined since the last look
        self._joined = asyncio.Event()
        self._watchers: Counter[str] = Counter()
        self._looks = 0
        self._looking = False
        self.closed = False

    def __len__(self) -> int:
        return self._watchers.total()

    def join(self, subject: Subject) -> Watcher:
        if len(self) >= WATCHERS_MAX or self._watchers[subject.owner] >= WATCHERS_OF_OWNER_MAX:
            raise Problem(
                429, "there are too many open event streams", hint="close other streams", headers={"retry-after": "5"}
            )
        watcher = Watcher(subject, self._looks)
        self._seen.setdefault(subject, _Seen()).watchers.add(watcher)
        self._watchers[subject.owner] += 1
        self._new.add(subject)
        self._joined.set()
        if not self._looking:
            self._looking = True
            self._tasks.spawn(self._look_on())
        return watcher

    def leave(self, watcher: Watcher) -> None:
        seen = self._seen[watcher.subject]
        seen.watchers.discard(watcher)
        self._watchers[watcher.subject.owner] -= 1
        if not seen.watchers:
            del self._seen[watcher.subject]
            self._new.discard(watcher.subject)
            self._joined.set()

    def latest(self, watcher: Watcher) -> Snapshot | None:
        """None until a read has finished that began after the watcher joined."""
        seen = self._seen[watcher.subject]
        return seen.snapshot if seen.look > watcher.since else None

    async def first(self, watcher: Watcher) -> Snapshot:
        ends_at = self._clock.monotonic() + FIRST_SECONDS_MAX
        while (found := self.latest(watcher)) is None:
            if self.closed or (now := self._clock.monotonic()) >= ends_at:
                raise Problem(
                    503, "the service is stopping or overloaded", hint="try again", headers={"retry-after": "1"}
                )
            await wait_for_event(watcher.changed, ends_at - now)
            watcher.changed.clear()
        if found is GONE:
            named = watcher.subject.id if watcher.subject.kind == "job" else show_item(watcher.subject.id)
            raise NotFound(f"no {watcher.subject.kind} {named}")
        return found

    def close(self) -> None:
        """Every stream ends; their clients come back to whichever server there is."""
        self.closed = True
        for seen in self._seen.values():
            for watcher in seen.watchers:
                watcher.changed.set()

    async def _look_on(self) -> None:
        try:
            due = self._clock.monotonic()
            while self._seen and not self.closed:
                everything = self._clock.monotonic() >= due
                wanted = list(self._seen if everything else self._new)
                self._new.clear()
                self._joined.clear()
                for start in range(0, len(wanted), LOOKED_MAX):
                    with contextlib.suppress(BackstayError):  # the next look may find the database again
                        await self._look_at(wanted[start : start + LOOKED_MAX])
                if everything:
                    due = self._clock.monotonic() + LOOK_SECONDS + len(self) / WATCHERS_PER_SECOND
                await wait_for_event(self._joined, max(due - self._clock.monotonic(), 0))
        finally:
            self._looking = False

    async def _look_at(self, wanted: list[Subject]) -> None:
        self._looks += 1
        look = self._looks
        asked = {kind: [(id, owner) for of, id, owner in wanted if of == kind] for kind in ("job", "item")}
        jobs = await self._store.job_views.many(asked["job"]) if asked["job"] else {}
        items = await self._store.item_views.many(asked["item"]) if asked["item"] else {}
        for subject in wanted:
            seen = self._seen.get(subject)
            if seen is not None:  # or everyone left meanwhile
                place = (subject.id, subject.owner)
                self._tell(seen, jobs.get(place) if subject.kind == "job" else items.get(place), look)

    def _tell(self, seen: _Seen, row: JobView | ItemView | None, look: int) -> None:
        news = seen.snapshot is None or row != seen.row
        if news:
            seen.row, seen.snapshot = row, _snapshot(row)
        for watcher in seen.watchers:
            if news or seen.look <= watcher.since:
                watcher.changed.set()
        seen.look = look


def _snapshot(row: JobView | ItemView | None) -> Snapshot:
    if row is None:
        return GONE
    if isinstance(row, JobView):
        kind, body, ended = "job", job_bytes(row), row.ended
    else:
        kind, body, ended = "item", item_bytes(row), ItemState(row.state) in TERMINAL
    revision = etag_of(body).strip('"')
    return Snapshot(revision, f"id: {revision}\nevent: {kind}\ndata: ".encode() + body + b"\n\n", ended)
