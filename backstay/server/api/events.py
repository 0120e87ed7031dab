"""Live events: one reader of the database for all watchers, and a stream of snapshots for each of them.

A snapshot's id is its digest, so it means the same on every server: a client that reconnects with its last id gets the
new state, or nothing if it did not change. No client gets an older snapshot after a newer one: one reader reads in
order, and a new watcher waits for a read that began after it joined. A slow client misses snapshots in between,
never the last.
"""

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, NamedTuple

from fastapi import APIRouter, Header, Request, Response
from starlette.types import Receive, Scope, Send

from backstay.clock import Clock, Tasks, wait_for_event
from backstay.core.errors import BackstayError, DatabaseUnreachable, NotFound
from backstay.core.ids import show_item
from backstay.core.states import TERMINAL, ItemState
from backstay.server.auth import Reader, key_in_request
from backstay.server.problems import Problem
from backstay.server.service import Service, Serving
from backstay.server.shapes import PROBLEMS, ItemId, JobId, etag_of, item_bytes, item_number, job_bytes, job_number
from backstay.store.item_views import ItemView
from backstay.store.job_views import JobView
from backstay.store.keys import is_key
from backstay.store.store import Store

LOOK_SECONDS: Final = 0.5
WATCHERS_PER_SECOND: Final = 2_000  # notified at most: with more of them, the time between two reads grows
LOOKED_MAX: Final = 500  # at once
FIRST_SECONDS_MAX: Final = 10.0
WATCHERS_MAX: Final = 10_000
WATCHERS_OF_OWNER_MAX: Final = 2_000


class Subject(NamedTuple):
    """The watched job or item, and its owner."""

    kind: Literal["job", "item"]
    id: int
    owner: str


class Snapshot(NamedTuple):
    id: str
    text: bytes  # as it is sent to every stream
    ended: bool  # nothing more comes, unless somebody retries it


GONE: Final = Snapshot("gone", b"event: gone\ndata: {}\n\n", True)


@dataclass(slots=True, eq=False)
class Watcher:
    """One watcher. `changed` is set when there is something new."""

    subject: Subject
    since: int  # reads that had begun when the watcher joined
    changed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _WatchedSubject:
    """A subject as it was at the last look."""

    watchers: set[Watcher] = field(default_factory=set)
    look: int = -1
    row: JobView | ItemView | None = None
    snapshot: Snapshot | None = None


class Lookout:
    """Reads all watched jobs and items at a steady pace, as long as there are watchers."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._tasks = Tasks()
        self._seen: dict[Subject, _WatchedSubject] = {}
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
        self._seen.setdefault(subject, _WatchedSubject()).watchers.add(watcher)
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
        """Ends every stream; the clients reconnect to any other server."""
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

    def _tell(self, seen: _WatchedSubject, row: JobView | ItemView | None, look: int) -> None:
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


KEY_SECONDS: Final = 5.0  # a revoked key keeps its streams for this long
BEAT_SECONDS: Final = 15.0
SEND_SECONDS_MAX: Final = 30.0  # a client that reads nothing for this long is gone
STREAM_SECONDS_MAX: Final = 3_600.0
RETRY: Final = b"retry: 1000\n\n"
BEAT: Final = b": still here\n\n"

_STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "A stream of snapshots.", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
    204: {"description": "The job or item has ended, and the client has its last snapshot."},
}
router = APIRouter(prefix="/api", tags=["events"], responses={**PROBLEMS, **_STREAM})

LastEventId = Annotated[
    str | None, Header(max_length=100, description="The id of the last event that the client received.")
]


@router.get("/jobs/{job_id}/events", response_class=Response)
async def watch_job(
    request: Request, who: Reader, service: Serving, job_id: JobId, last_event_id: LastEventId = None
) -> Response:
    """Streams snapshots like GET of the job. Resume with Last-Event-ID; the stream closes after the final snapshot."""
    return await _watch(request, service, Subject("job", job_number(job_id), who.owner), last_event_id)


@router.get("/items/{item_id}/events", response_class=Response)
async def watch_item(
    request: Request, who: Reader, service: Serving, item_id: ItemId, last_event_id: LastEventId = None
) -> Response:
    """Streams snapshots like GET of the item, including its progress. Resume with Last-Event-ID."""
    return await _watch(request, service, Subject("item", item_number(item_id), who.owner), last_event_id)


async def _watch(request: Request, service: Service, subject: Subject, last_id: str | None) -> Response:
    watcher = service.lookout.join(subject)
    try:
        first = await service.lookout.first(watcher)
    except BaseException:
        service.lookout.leave(watcher)
        raise
    if first.ended and first.id == last_id:
        service.lookout.leave(watcher)
        return Response(status_code=204)  # after which a browser does not reconnect
    return EventStream(service, watcher, key_in_request(request), last_id)


class EventStream(Response):
    """The stream of one watcher, sent as it comes."""

    media_type = "text/event-stream"

    def __init__(self, service: Service, watcher: Watcher, key: str | None, last_id: str | None) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._service = service
        self._clock = service.main.clock
        self._lookout: Lookout = service.lookout
        self._watcher = watcher
        self._key = key if key is not None and is_key(key) else None
        self._last_id = last_id
        self._left = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        leaving = Tasks().start(self._notice_leaving(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._stream(send)
        except TimeoutError:
            pass  # the client has stopped reading
        finally:
            leaving.cancel()
            self._lookout.leave(self._watcher)
        if not self._left:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _notice_leaving(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._left = True
        self._watcher.changed.set()

    async def _stream(self, send: Send) -> None:
        await self._send(send, RETRY)
        ends_at = self._clock.monotonic() + STREAM_SECONDS_MAX
        key_at = beat_at = self._clock.monotonic()
        while not self._left and not self._lookout.closed and (now := self._clock.monotonic()) < ends_at:
            if now >= key_at + KEY_SECONDS:
                key_at = now
                if not await self._may_see():
                    return
            self._watcher.changed.clear()
            snapshot = self._lookout.latest(self._watcher)
            if snapshot is not None and snapshot.id != self._last_id:
                await self._send(send, snapshot.text)
                self._last_id, beat_at = snapshot.id, now
            elif now >= beat_at + BEAT_SECONDS:
                await self._send(send, BEAT)
                beat_at = now
            if snapshot is not None and snapshot.ended:
                return
            await wait_for_event(self._watcher.changed, KEY_SECONDS)

    async def _may_see(self) -> bool:
        """Whether the key is still valid. While the database does not answer, the stream stays open."""
        try:
            return self._key is None or await self._service.ring.find(self._key) is not None
        except DatabaseUnreachable:
            return True

    async def _send(self, send: Send, text: bytes) -> None:
        async with asyncio.timeout(SEND_SECONDS_MAX):
            await send({"type": "http.response.body", "body": text, "more_body": True})
