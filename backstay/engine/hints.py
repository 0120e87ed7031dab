"""Hints about ready items from a message broker: which messages a worker holds, and which claims follow the hints or
the database's own order."""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from backstay.store.items import Want

DATABASE_SECONDS: Final = 1.0
WOKEN_ITEMS_MAX: Final = 10_000  # hinted items of one paced handler that one claim covers

Named = list[tuple[Want, Sequence[int]]]


class Hints(Protocol):
    """The messages that a worker holds. All methods are called on the worker's event loop, do not wait, and do not
    raise.

    An implementation acknowledges a message when all of its items are done, or when it has held the message for
    `HELD_SECONDS_MAX`: then the worker finds those items in the database's order. `HeldMessages` keeps count of this.
    """

    @property
    def alive(self) -> bool:
        """Whether messages can come in now. While it is False, the worker uses the database's order alone."""
        ...

    def listen(self, wake: Callable[[], None]) -> None:
        """Stores the function to call when a message has come or `alive` has changed. Called before start."""
        ...

    def take(self, handler: str, n: int) -> list[int]:
        """The first n hinted items of a handler, in the order of their messages. Until they are marked as done, the
        next call returns them again. So nothing must be undone after a claim that failed."""
        ...

    def mark_done(self, ids: Iterable[int], missed: Collection[int] = ()) -> None:
        """Marks items that a committed claim asked for. Those that it `missed` have ended or belong to another worker,
        so their hint is no longer needed either. A message is acknowledged when all of its items are marked. If no
        claim ever won an item of a message, it may be a copy of an earlier message, or name items that do not exist;
        the implementation can look that up. Unknown ids are ignored."""
        ...


class Turns:
    """Decides what the next claim follows: the hints that are held, or the database's own order.

    The database has a turn every second: so old items of low priority are not starved by hinted ones, and items without
    a hint are found. It has every turn while no hints can come in, and also the turns for which no hint is held, as
    long as it returns as many items as the claim asked for.
    """

    def __init__(self, hints: Hints) -> None:
        self.hints = hints
        self.database_at = float("-inf")  # on the steady clock: when the database has its next turn
        self.database_more = False  # its last turn ended at a limit

    def take_named(self, wants: Sequence[Want], room: int) -> Named:
        """The hinted items of the wanted handlers, within the room; room that one handler does not need goes to the
        next."""
        in_hand = [(want, self.hints.take(want.handler, want.items)) for want in wants if want.paced is None]
        in_hand = [(want, ids) for want, ids in in_hand if ids]
        named: Named = []
        for index, (want, ids) in enumerate(in_hand):
            share = -(-room // (len(in_hand) - index))
            if share > 0:
                named.append((want, ids[:share]))
            room -= len(ids[:share])
        return named

    def take_paced(self, wants: Sequence[Want]) -> list[int]:
        """The hinted items of paced handlers. Their hints only say that it is worth looking."""
        paced = (want.handler for want in wants if want.paced is not None)
        return [item for handler in paced for item in self.hints.take(handler, WOKEN_ITEMS_MAX)]

    def has_more(self, wants: Sequence[Want]) -> bool:
        """Whether there are more items than the last claims took."""
        return self.database_more or any(self.hints.take(want.handler, 1) for want in wants)

    def note_database_turn(self, now: float, more: bool) -> None:
        self.database_at = now + DATABASE_SECONDS
        self.database_more = more


HELD_SECONDS_MAX: Final = 60.0

M = TypeVar("M", bound=Hashable)


@dataclass(slots=True)
class _Held:
    handler: str
    left: dict[int, None]  # its items, in order, that no claim has asked for yet
    since: float
    served: bool = False  # a claim has won an item of it


class CoveredMessages(NamedTuple, Generic[M]):
    """Messages whose items have all been in committed claims."""

    served: list[M]
    missed: list[M]  # messages of which no claim has won an item


class HeldMessages(Generic[M]):
    """Messages by the keys that their consumer gives them. Each names items, and is held until committed claims have
    covered all of them. It only keeps count: the caller acknowledges the messages."""

    def __init__(self) -> None:
        self._held: dict[M, _Held] = {}  # the oldest first
        self._by_handler: dict[str, dict[M, _Held]] = {}
        self._naming: dict[int, list[M]] = {}  # the messages that name an item: copies of one message name the same

    def __len__(self) -> int:
        """How many messages are held."""
        return len(self._held)

    def put(self, message: M, handler: str, items: Iterable[int], now: float) -> None:
        held = _Held(handler, dict.fromkeys(items), now)
        self._held[message] = held
        self._by_handler.setdefault(handler, {})[message] = held
        for item in held.left:
            self._naming.setdefault(item, []).append(message)

    def take(self, handler: str, n: int) -> list[int]:
        """The first items of a handler, up to a maximum; the same items again until they are marked as done."""
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
