"""Celery's messages as the hints that a worker goes by."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from itertools import count

from backstay.clock import Clock, wait_for_event
from backstay.core.held_messages import HELD_SECONDS_MAX, HeldMessages


class CeleryHints:
    """The messages whose Celery tasks are under way in this process; each waits here until a claim had its items.

    Always alive: a message that Celery lost is made up for by the worker's own look at the database, every second.
    """

    alive = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hand = HeldMessages[int]()
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Event] = {}
        self._wake: Callable[[], None] = lambda: None

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def take(self, handler: str, n: int) -> list[int]:
        return self._hand.take(handler, n)

    def done(self, ids: Iterable[int], missed: Collection[int] = ()) -> None:
        """Of what was missed, Celery's log tells: how many items a message named, and how many of them were run."""
        over = self._hand.done(ids, missed)
        self._over([*over.served, *over.missed])

    async def served(self, handler: str, items: Iterable[int]) -> None:
        """Puts a message in hand, and returns when a committed claim had all its items, or it was held for too long."""
        number, over = next(self._numbers), asyncio.Event()
        self._waiting[number] = over
        self._hand.put(number, handler, items, self._clock.monotonic())
        self._wake()
        await wait_for_event(over, HELD_SECONDS_MAX)
        self._over(self._hand.overdue(self._clock.monotonic()))

    def let_go(self) -> None:
        """Nobody claims here any more: what is in hand is left to the database."""
        self._hand.clear()
        self._over(list(self._waiting))

    def _over(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._waiting.pop(number).set()
