"""Someone who carries hints, in memory: a queue of messages, what the worker has of them in hand, and what it acked."""

from collections.abc import Callable, Collection, Iterable

from backstay.core.ids import item_id
from backstay.engine.hints import HeldMessages


class Carrier:
    """A worker's `Hints` whose broker is the test."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.alive = True
        self.acked: list[int] = []
        self.not_won: set[int] = set()
        self._clock = clock
        self._hand: HeldMessages[int] = HeldMessages()
        self._sent = 0
        self._wake: Callable[[], None] = lambda: None

    def send(self, handler: str, items: Iterable[int]) -> int:
        """A message that has come to hand; returns its number."""
        self._sent += 1
        self._hand.put(self._sent, handler, items, self._clock())
        self._wake()
        return self._sent

    def send_job(self, handler: str, job_id: int, items: int) -> int:
        return self.send(handler, [item_id(job_id, position) for position in range(items)])

    def turn(self, alive: bool) -> None:
        """The broker goes away, and with it what was in hand; or it comes back."""
        self.alive = alive
        self._hand.clear()
        self._wake()

    @property
    def in_hand(self) -> int:
        return len(self._hand)

    def tend(self) -> None:
        """Lets go of what was held for too long, as a consumer does now and then."""
        self.acked += self._hand.overdue(self._clock())

    # what the worker calls

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def take(self, handler: str, n: int) -> list[int]:
        return self._hand.take(handler, n)

    def mark_done(self, ids: Iterable[int], missed: Collection[int] = ()) -> None:
        self.not_won.update(missed)
        over = self._hand.mark_done(ids, missed)
        self.acked += [*over.served, *over.missed]
