"""A stream that tells a page that something has changed; the page then fetches that part of itself."""

import asyncio
from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.types import Receive, Scope, Send

from backstay.clock import Tasks, wait_for_event
from backstay.core.errors import DatabaseUnreachable
from backstay.server.api.events import (
    BEAT,
    BEAT_SECONDS,
    KEY_SECONDS,
    RETRY,
    SEND_SECONDS_MAX,
    STREAM_SECONDS_MAX,
    Subject,
    Watcher,
)
from backstay.server.cursors import item_number, job_number
from backstay.server.pages.page_request import Visit, visit_of_anyone, visit_to_read

router = APIRouter(include_in_schema=False)

SUBJECTS_MAX: Final = 50
CHANGED: Final = b"event: changed\ndata: {}\n\n"
HELLO: Final = b"event: hello\ndata: {}\n\n"


@router.get("/live")
async def watch(request: Request) -> Response:
    """`?job=12&job=13&item=12-3`; without any it only shows that the service is reachable."""
    visit = await visit_to_read(request)
    wanted = request.query_params.multi_items()[:SUBJECTS_MAX]
    subjects = [Subject("job", job_number(text), visit.owner) for name, text in wanted if name == "job"]
    subjects += [Subject("item", item_number(text), visit.owner) for name, text in wanted if name == "item"]
    return Pulse(visit, subjects)


class Pulse(Response):
    """The stream of one page. It carries no data, only the fact that something changed."""

    media_type = "text/event-stream"

    def __init__(self, visit: Visit, subjects: list[Subject]) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._visit = visit
        self._clock = visit.service.main.clock
        self._lookout = visit.service.lookout
        self._subjects = subjects
        self._news = asyncio.Event()
        self._left = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watchers: list[Watcher] = []
        leaving = Tasks().start(self._notice_leaving(receive))
        try:
            for subject in self._subjects:
                watcher = self._lookout.join(subject)
                watcher.changed = self._news
                watchers.append(watcher)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._stream(send, watchers)
        except TimeoutError:
            pass  # the client has stopped reading
        finally:
            leaving.cancel()
            for watcher in watchers:
                self._lookout.leave(watcher)
        if not self._left:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _notice_leaving(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._left = True
        self._news.set()

    async def _stream(self, send: Send, watchers: list[Watcher]) -> None:
        await self._send(send, RETRY + HELLO)
        now = self._clock.monotonic()
        ends_at, key_at, beat_at = now + STREAM_SECONDS_MAX, now, now
        known: dict[int, str] = {}
        while not self._left and not self._lookout.closed and (now := self._clock.monotonic()) < ends_at:
            if now >= key_at + KEY_SECONDS:
                key_at = now
                if not await self._may_see():
                    return
            self._news.clear()
            if self._is_news(known, watchers):
                await self._send(send, CHANGED)
                beat_at = now
            elif now >= beat_at + BEAT_SECONDS:
                await self._send(send, BEAT)
                beat_at = now
            await wait_for_event(self._news, KEY_SECONDS)

    def _is_news(self, known: dict[int, str], watchers: list[Watcher]) -> bool:
        """Whether something changed. The first look counts: the subject may have changed since the page was made."""
        looked = {number: self._lookout.latest(watcher) for number, watcher in enumerate(watchers)}
        news = {number: found.id for number, found in looked.items() if found and known.get(number) != found.id}
        known.update(news)
        return bool(news)

    async def _may_see(self) -> bool:
        """Whether the visitor still has access. While the database does not answer, the stream stays open."""
        try:
            who = (await visit_of_anyone(self._visit.request)).who
        except DatabaseUnreachable:
            return True
        return who is not None and who.owner == self._visit.owner

    async def _send(self, send: Send, text: bytes) -> None:
        async with asyncio.timeout(SEND_SECONDS_MAX):
            await send({"type": "http.response.body", "body": text, "more_body": True})
