"""Responses that outlive their request: made in the background, or kept to be read again."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from backstay.practice.gate import Gate
from backstay.practice.generated import Generated
from backstay.practice.refusals import Refused, Reply, not_found, reply_with

QUEUED_SHARE = 0.3  # of the time that a response takes


class Kept:
    """A response as it will be, and how far it is."""

    __slots__ = ("cancelled", "done", "starts_at", "text", "timer")

    def __init__(self, text: str, starts_at: float, done: bool) -> None:
        self.text = text
        self.starts_at = starts_at
        self.done = done
        self.cancelled = False
        self.timer: asyncio.TimerHandle | None = None

    def dump(self, now: float) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.text)
        if self.done:
            return value
        status = "cancelled" if self.cancelled else "queued" if now < self.starts_at else "in_progress"
        return value | {"status": status, "output": [], "usage": None, "error": None, "incomplete_details": None}


class Background:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._kept: dict[str, Kept] = {}

    def begin(self, made: Generated, charge: Callable[[], None]) -> str:
        """Starts one; it is charged when it is done, whether anyone asks for it or not."""
        now, seconds = self._gate.clock.monotonic(), self._gate.faults.background_seconds
        kept = Kept(made.text, now + seconds * QUEUED_SHARE, done=False)
        self._kept[json.loads(made.text)["id"]] = kept

        def finish() -> None:
            kept.done, kept.timer = True, None
            charge()

        kept.timer = asyncio.get_running_loop().call_later(seconds, finish)
        return json.dumps(kept.dump(now))

    def keep(self, made: Generated) -> None:
        self._kept[json.loads(made.text)["id"]] = Kept(made.text, 0, done=True)

    async def show(self, request: web.Request) -> Reply:
        return reply_with(self._found(request).dump(self._gate.clock.monotonic()))

    async def cancel(self, request: web.Request) -> Reply:
        kept = self._found(request)
        value = kept.dump(self._gate.clock.monotonic())
        if not value["background"]:
            raise Refused(400, "Only a response made in the background can be cancelled.")
        if kept.timer is not None:
            kept.timer.cancel()
            kept.timer, kept.cancelled = None, True
        return reply_with(kept.dump(self._gate.clock.monotonic()))

    async def remove(self, request: web.Request) -> Reply:
        """Only forgets it: what runs is done and charged."""
        name = request.match_info["id"]
        self._found(request)
        del self._kept[name]
        return reply_with({"id": name, "object": "response", "deleted": True})

    def close(self) -> None:
        for kept in self._kept.values():
            if kept.timer is not None:
                kept.timer.cancel()

    def _found(self, request: web.Request) -> Kept:
        name = request.match_info["id"]
        if (kept := self._kept.get(name)) is None:
            raise not_found("response", name)
        return kept
