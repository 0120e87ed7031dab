"""What every request passes: outages, the key, its luck, and the way out."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, NamedTuple

from aiohttp import web

from backstay.clock import Clock, new_incarnation
from backstay.practice.counts import Counts
from backstay.practice.delivery import cut, deliver
from backstay.practice.faults import Faults
from backstay.practice.mishaps import OK, UNDONE, UNHEARD, Luck, asked_for, at_time, drawn, refusal
from backstay.practice.refusals import Refused, Reply, Severed

NOTHING = Reply(204, b"")

Meeting = Callable[[web.Request], Awaitable[tuple[Reply, str]]]  # what is answered, and with which mishap
Work = Callable[[web.Request], Awaitable[Reply]]
Route = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Fate(NamedTuple):
    """What a request meets, and the luck that it has left for the time it takes."""

    mishap: str = OK
    rng: Random | None = None


class Gate:
    """The faults of now, and the state that belongs to them."""

    def __init__(self, faults: Faults, clock: Clock) -> None:
        self.change(faults)
        self.clock = clock
        self.counts = Counts(faults.window_seconds)
        self.started_at = clock.monotonic()
        self._life = new_incarnation()[:6]
        self._marks = 0
        self._luck = Luck()
        self._slots: asyncio.Semaphore | None = None
        self._slots_size: int | None = None

    def change(self, faults: Faults) -> None:
        self.faults = faults
        self._uncertain = faults.uncertain

    def mark(self) -> str:
        """Unique, also among the lives of this provider."""
        self._marks += 1
        return f"{self._life}{self._marks:08x}"

    def elapsed(self) -> float:
        return self.clock.monotonic() - self.started_at

    def enter(self, request: web.Request) -> None:
        """Lets nobody in during an outage, and strangers never."""
        faults = self.faults
        if faults.outage and faults.is_out(self.elapsed()):
            self.counts.faults["outage"] += 1
            if self.counts.requests % 2:
                raise Severed
            raise Refused(503, "The practice provider is down.", "service_unavailable")
        if faults.key is not None and _key_of(request) != faults.key:
            raise Refused(401, "Incorrect API key provided.", "invalid_api_key")

    def fate(self, key: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Fate:
        """Decides what a request meets; `key` stands for its content."""
        asked = asked_for(body, headers)
        if asked is None and not self._uncertain:
            return Fate()
        time = self._luck.again(key)
        rng = self._luck.of(self.faults, key, time)
        return Fate(drawn(self.faults, rng) if asked is None else at_time(asked, time), rng)

    async def suffer(self, fate: Fate) -> None:
        """The time that it takes, in line with others if there is a line; or a refusal, if that is its fate."""
        refused = None
        if fate.mishap != OK:
            self.counts.faults[fate.mishap] += 1
            refused = refusal(fate.mishap, self.faults, self.clock.now_ms())
            if refused is not None and refused.status == 429:
                raise refused  # whoever sends too much is told at once
        await self._take_time(fate.rng)
        if refused is not None:
            raise refused

    async def _take_time(self, rng: Random | None) -> None:
        latency = self.faults.latency
        wait = latency * (0.5 + rng.random()) if latency and rng is not None else 0.0
        slots = self._open_slots()
        if slots is not None:
            async with slots:
                await self.clock.sleep(wait)
        elif wait:
            await self.clock.sleep(wait)

    async def attend(self, request: web.Request, meet: Meeting) -> web.StreamResponse:
        """Counts a request, lets it meet its fate, and sends what came of it."""
        self.counts.arrive()
        try:
            try:
                reply, mishap = await meet(request)
            except Refused as refused:
                reply, mishap = refused.reply, OK
            except Severed:
                reply, mishap = NOTHING, "cut"
            return await self._send(request, reply, mishap)
        except ConnectionError:
            return cut(request)  # the client is gone, and so is whoever could be told
        finally:
            self.counts.leave()

    def through(self, work: Work) -> Route:
        """A route for what is not paid for: files, batches, look-ups."""

        async def meet(request: web.Request) -> tuple[Reply, str]:
            self.enter(request)
            fate = self.fate(f"{request.method} {request.path_qs}", {}, request.headers)
            await self.suffer(fate)
            return (NOTHING if fate.mishap in UNDONE else await work(request)), fate.mishap

        async def route(request: web.Request) -> web.StreamResponse:
            return await self.attend(request, meet)

        return route

    async def _send(self, request: web.Request, reply: Reply, mishap: str) -> web.StreamResponse:
        marked = reply._replace(headers={**reply.headers, "x-request-id": f"req_{self.mark()}"})
        if mishap not in UNHEARD:
            self.counts.statuses[reply.status] += 1
        return await deliver(request, marked, mishap, self.faults, self.clock)

    def _open_slots(self) -> asyncio.Semaphore | None:
        if self.faults.concurrency != self._slots_size:
            self._slots_size = self.faults.concurrency
            self._slots = asyncio.Semaphore(self._slots_size) if self._slots_size else None
        return self._slots


def _key_of(request: web.Request) -> str | None:
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    return key if scheme.lower() == "bearer" else request.headers.get("api-key")
