"""Keeps one connection to a broker: opens it, looks after it, and opens another whenever anything is wrong with it.

The driver can reconnect by itself, but its users have seen consumers that vanish silently, publishes that never end,
and frames for channels that were closed long ago. So nothing is repaired here: a connection that does not answer in
time, or is not as it should be, is dropped as a whole, and there is one way to start.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from backstay.clock import Clock, Tasks, cancel_until_ended, wait_for_event
from backstay.core.events import BrokerConnected, BrokerLost, Event
from backstay.messaging.connection import close_connection, open_connection, reason_of

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection

BACKOFF_SECONDS: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 30.0
STEADY_SECONDS: Final = 10.0  # a connection that lived for so long was a good one


@dataclass(frozen=True, slots=True)
class LinkWatch:
    """How often a connection is asked, and how long it may take."""

    every_seconds: float = 3.0
    answer_seconds: float = 5.0
    open_seconds: float = 20.0
    publish_seconds: float = 30.0
    backoff_seconds_max: float = BACKOFF_SECONDS_MAX


WATCH: Final = LinkWatch()


@dataclass(frozen=True, slots=True)
class Means:
    """What every connection of a process shares."""

    url: str
    name: str  # as the broker's pages show it
    clock: Clock
    tasks: Tasks
    rng: Random
    emit: Callable[[Event], None]
    watch: LinkWatch = WATCH


class Broken(Exception):
    """The connection is not what it should be."""


class Link:
    """One life: start, stop. `opened` makes a new connection ready, `checked` asks it whether all is well."""

    def __init__(
        self,
        role: str,
        means: Means,
        opened: "Callable[[AbstractConnection], Awaitable[None]]",
        checked: Callable[[], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        self.role = role
        self.up = False
        self._means = means
        self._opened = opened
        self._checked = checked
        self._changed = changed
        self._look = asyncio.Event()
        self._broken = ""
        self._failures = 0
        self._life: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._life = self._means.tasks.spawn(self._live(), name=f"broker {self.role}")

    async def stop(self) -> None:
        if self._life is not None:
            await cancel_until_ended([self._life])
            self._life = None

    def nudge(self) -> None:
        """Look now."""
        self._look.set()

    def restart(self, reason: str) -> None:
        """Called by a user of the connection that finds it broken."""
        self._broken = self._broken or reason
        self._look.set()

    async def _live(self) -> None:
        means = self._means
        while True:
            began = means.clock.monotonic()
            reason = await self._one_connection()
            lasted = means.clock.monotonic() - began
            self._failures = 1 if lasted >= STEADY_SECONDS else self._failures + 1
            wait = self._backoff()
            means.emit(BrokerLost(self.role, reason, wait))
            await means.clock.sleep(wait)

    async def _one_connection(self) -> str:
        """Holds one connection as long as it is good; returns why it no longer is."""
        means, connection = self._means, None
        self._broken = ""
        self._look.clear()
        try:
            async with asyncio.timeout(means.watch.open_seconds):
                connection = await open_connection(means.url, f"{means.name} {self.role}")
                connection.close_callbacks.add(self._closed)
                await self._opened(connection)
            self._set_up(True)
            means.emit(BrokerConnected(self.role))
            await self._watched()
            return self._broken
        except Exception as error:
            return self._broken or reason_of(error)
        finally:
            self._set_up(False)
            if connection is not None:
                await close_connection(connection)

    async def _watched(self) -> None:
        watch = self._means.watch
        while not self._broken:
            await wait_for_event(self._look, watch.every_seconds)
            self._look.clear()
            if not self._broken:
                async with asyncio.timeout(watch.answer_seconds):
                    await self._checked()

    def _closed(self, _: object, error: BaseException | None) -> None:
        self.restart(reason_of(error) if error is not None else "the connection was closed")

    def _set_up(self, up: bool) -> None:
        if self.up != up:
            self.up = up
            self._changed()

    def _backoff(self) -> float:
        """Doubles from one failure to the next; no two processes come back in step."""
        top: float = min(BACKOFF_SECONDS * 2 ** min(self._failures - 1, 16), self._means.watch.backoff_seconds_max)
        return top * self._means.rng.uniform(0.5, 1.0)
