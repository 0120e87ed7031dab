"""The messages that a consumer holds: each names items, and is held until a committed claim has covered all of them."""

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


class CoveredMessages(NamedTuple, Generic[M]):
    """Messages whose items have all been in committed claims."""

    served: list[M]
    missed: list[M]  # of which no claim has won a single item


class HeldMessages(Generic[M]):
    """Messages by the names that their consumer gives them. It only keeps count: the caller acknowledges them."""

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
        """The first items in hand for a handler, up to a maximum; the same items again until they are done."""
        items: dict[int, None] = {}
        for held in self._by_handler.get(handler, {}).values():
            for item in held.left:
                if len(items) >= n:
                    return list(items)
                items[item] = None
        return list(items)

    def mark_done(self, items: Iterable[int], missed: Collection[int] = ()) -> CoveredMessages[M]:
        """Records a committed claim of these items; `missed` are those it did not win. Returns the messages that are
        done now."""
        over: CoveredMessages[M] = CoveredMessages([], [])
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
        """Drops and returns messages that were held for too long: their items are claimed in the database's order."""
        old: list[M] = []
        for message, held in self._held.items():
            if now - held.since < HELD_SECONDS_MAX:
                break
            old.append(message)
        for message in old:
            self._drop(message)
        return old

    def clear(self) -> None:
        """The channel is gone, so its messages can no longer be acknowledged: the broker delivers all of them again."""
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
