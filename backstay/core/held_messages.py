"""What a consumer has in hand: messages that name items, each held until all of its items were in a committed claim."""

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

HELD_SECONDS_MAX: Final = 60.0

M = TypeVar("M", bound=Hashable)


@dataclass(slots=True)
class _Held:
    handler: str
    left: dict[int, None]  # its items, in order, that no claim has had yet
    since: float
    served: bool = False  # a claim has won an item of it


class Over(NamedTuple, Generic[M]):
    """Messages all of whose items were in committed claims."""

    served: list[M]
    missed: list[M]  # of which no claim has won a single item


class HeldMessages(Generic[M]):
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

    def done(self, items: Iterable[int], missed: Collection[int] = ()) -> Over[M]:
        """A committed claim had these items in it, and has not won those that it missed; returns what is over by it."""
        over: Over[M] = Over([], [])
        for item in items:
            for message in self._naming.pop(item, ()):
                held = self._held[message]
                held.served = held.served or item not in missed
                del held.left[item]
                if not held.left:
                    self._drop(message)
                    (over.served if held.served else over.missed).append(message)
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
