"""Responses that outlive their request: made in the background, or kept to be read again."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import web

from backstay.clock import wait_for_event
from backstay.practice.gate import Gate
from backstay.practice.generated import Generated
from backstay.practice.refusals import Refused, Reply, Stream, not_found, reply_with
from backstay.practice.response_events import ENDED, QUEUED_SHARE, Event, events_of, unfinished

EVENTS = {"Content-Type": "text/event-stream; charset=utf-8"}


class Kept:
    """A response as it will be, and how far it is."""

    __slots__ = ("begun_at", "cancelled", "done", "ended", "seconds", "streams", "text", "timer")

    def __init__(self, text: str, begun_at: float = 0.0, seconds: float = 0.0, streams: bool = False) -> None:
        self.text = text
        self.begun_at = begun_at
        self.seconds = seconds
        self.streams = streams
        self.done = self.cancelled = False
        self.ended = asyncio.Event()
        self.timer: asyncio.TimerHandle | None = None

    def dump(self, now: float) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.text)
        if self.done:
            return value
        waits = now < self.begun_at + self.seconds * QUEUED_SHARE
        return unfinished(value, "cancelled" if self.cancelled else "queued" if waits else "in_progress")

    def stop(self) -> None:
        """Ends its streams; it will not be done any more."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None
        self.ended.set()


class Background:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._kept: dict[str, Kept] = {}

    def begin(self, made: Generated, charge: Callable[[], None], streams: bool) -> Reply:
        """Starts one; it is charged when it is done, whether anyone asks for it or not."""
        now, seconds = self._gate.clock.monotonic(), self._gate.faults.background_seconds
        kept = Kept(made.text, now, seconds, streams)
        self._kept[json.loads(made.text)["id"]] = kept

        def finish() -> None:
            kept.done, kept.timer = True, None
            charge()
            kept.ended.set()

        kept.timer = asyncio.get_running_loop().call_later(seconds, finish)
        return self._stream(kept) if streams else reply_with(kept.dump(now))

    def keep(self, made: Generated) -> None:
        kept = self._kept[json.loads(made.text)["id"]] = Kept(made.text)
        kept.done = True

    async def show(self, request: web.Request) -> Reply:
        """As it is now or, with `stream=true`, as events: those after `starting_after`, and then as they happen."""
        kept = self._found(request)
        if request.query.get("stream") != "true":
            return reply_with(kept.dump(self._gate.clock.monotonic()))
        if not kept.streams:
            raise Refused(400, "Only a response made with 'background' and 'stream' can be streamed.", param="stream")
        after = request.query.get("starting_after", "-1")
        if not after.removeprefix("-").isdecimal():
            raise Refused(400, "Invalid type for 'starting_after': expected an integer.", param="starting_after")
        return self._stream(kept, int(after))

    def _stream(self, kept: Kept, after: int = -1) -> Reply:
        events = [event for event in events_of(json.loads(kept.text)) if event.sequence_number > after]
        return Reply(200, b"", EVENTS, Stream(len(events), self._pieces(kept, events)))

    async def _pieces(self, kept: Kept, events: list[Event]) -> AsyncIterator[bytes]:
        """Each when it is time for it. One that is cancelled says no more: OpenAI has no event for it."""
        for event in events:
            if event.at == ENDED:
                await kept.ended.wait()
            else:
                due_at = kept.begun_at + kept.seconds * event.at
                await wait_for_event(kept.ended, due_at - self._gate.clock.monotonic())
            if kept.ended.is_set() and not kept.done:
                return
            yield event.dump()

    async def cancel(self, request: web.Request) -> Reply:
        kept = self._found(request)
        value = kept.dump(self._gate.clock.monotonic())
        if not value["background"]:
            raise Refused(400, "Only a response made in the background can be cancelled.")
        if kept.timer is not None:
            kept.cancelled = True
            kept.stop()
        return reply_with(kept.dump(self._gate.clock.monotonic()))

    async def remove(self, request: web.Request) -> Reply:
        """Only forgets it: what runs is done and charged."""
        name = request.match_info["id"]
        self._found(request)
        del self._kept[name]
        return reply_with({"id": name, "object": "response", "deleted": True})

    def close(self) -> None:
        for kept in self._kept.values():
            kept.stop()

    def _found(self, request: web.Request) -> Kept:
        name = request.match_info["id"]
        if (kept := self._kept.get(name)) is None:
            raise not_found("response", name)
        return kept
