"""What a consumer has in hand: messages that name items, each held until all of its items were in a committed claim."""

from collections.abc import Hashable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

HELD_SECONDS_MAX: Final = 60.0

M = TypeVar("M", bound=Hashable)


class _Held(NamedTuple):
    handler: str
    left: dict[int, None]  # its items, in order, that no claim has had yet
    since: float


class Hand(Generic[M]):
    """Messages by the names that their consumer gives them. It only keeps count: who calls it acknowledges."""

    def __init__(self) -> None:
        self._held: dict[M, _Held] = {}  # the oldest first
        self._by_handler: dict[str, dict[M, _Held]] = {}
        self._naming: dict[int, list[M]] = {}  # the messages that name an item: copies of one message name the same

    def __len__(self) -> int:
        """How many messages are in hand."""
        return len(self._held)

    def put(self, message: M, handler: str, items: Iterable[int], now: float) -> None:
        held = _Held(handler, dict.fromkeys(items), now)
        self._held[message] = held
        self._by_handler.setdefault(handler, {})[message] = held
        for item in held.left:
            self._naming.setdefault(item, []).append(message)

    def take(self, handler: str, n: int) -> list[int]:
        """The first items in hand for a handler, at most so many; the same again until they are done."""
        items: dict[int, None] = {}
        for held in self._by_handler.get(handler, {}).values():
            for item in held.left:
                if len(items) >= n:
                    return list(items)
                items[item] = None
        return list(items)

    def done(self, items: Iterable[int]) -> list[M]:
        """A committed claim had these items in it, won or not; returns the messages that are over by it."""
        over: list[M] = []
        for item in items:
            for message in self._naming.pop(item, ()):
                left = self._held[message].left
                del left[item]
                if not left:
                    self._drop(message)
                    over.append(message)
        return over

    def overdue(self, now: float) -> list[M]:
        """Lets go of what was held for too long, and returns it: the database's order will serve its items."""
        old: list[M] = []
        for message, held in self._held.items():
            if now - held.since < HELD_SECONDS_MAX:
                break
            old.append(message)
        for message in old:
            self._drop(message)
        return old

    def clear(self) -> None:
        """The channel is gone, and with it the right to acknowledge: all of it is delivered again."""
        self._held.clear()
        self._by_handler.clear()
        self._naming.clear()

    def _drop(self, message: M) -> None:
        held = self._held.pop(message)
        of_handler = self._by_handler[held.handler]
        del of_handler[message]
        if not of_handler:
            del self._by_handler[held.handler]
        for item in held.left:
            naming = self._naming[item]
            naming.remove(message)
            if not naming:
                del self._naming[item]
