"""Live events of a job or an item (SSE): a snapshot now and after every change, until it has ended."""

import asyncio
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Request, Response
from starlette.types import Receive, Scope, Send

from backstay.clock import Tasks, wait_for_event
from backstay.core.errors import DatabaseUnreachable
from backstay.server.auth import Reader, key_in_request
from backstay.server.cursors import ItemId, JobId, item_number, job_number
from backstay.server.events import Lookout, Subject, Watcher
from backstay.server.service import Service, Serving
from backstay.server.shapes import PROBLEMS
from backstay.store.keys import is_key

KEY_SECONDS: Final = 5.0  # a key that was revoked sees that much more
BEAT_SECONDS: Final = 15.0
SEND_SECONDS_MAX: Final = 30.0  # who takes nothing for so long has left without a word
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
        return Response(status_code=204)  # on which a browser stops coming back
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
            await self._pour(send)
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

    async def _pour(self, send: Send) -> None:
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
        """While the database does not answer there is nothing new to see, so nobody is sent away for it."""
        try:
            return self._key is None or await self._service.ring.find(self._key) is not None
        except DatabaseUnreachable:
            return True

    async def _send(self, send: Send, text: bytes) -> None:
        async with asyncio.timeout(SEND_SECONDS_MAX):
            await send({"type": "http.response.body", "body": text, "more_body": True})
