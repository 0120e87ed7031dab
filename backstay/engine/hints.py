"""Hints about ready items from a message broker, and when the database's own order has its turn."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Protocol

from backstay.store.items import Want

DATABASE_SECONDS: Final = 1.0
WOKEN_ITEMS_MAX: Final = 10_000  # hints for one paced handler that one claim answers

Named = list[tuple[Want, Sequence[int]]]


class Hints(Protocol):
    """Messages in hand. All methods are called on the worker's event loop, do not wait, and do not raise.

    An implementation acknowledges a message only when all of its items are done.
    What it holds for longer than `HELD_SECONDS_MAX` it acknowledges too and no longer gives: the worker serves those
    items by the database's order. `core.held_messages.HeldMessages` keeps count of all that.
    """

    @property
    def alive(self) -> bool:
        """Whether messages can come in now. While it is False the worker goes by the database alone."""
        ...

    def listen(self, wake: Callable[[], None]) -> None:
        """Keeps the one function to call when a message came to hand or `alive` changed. Called before start."""
        ...

    def take(self, handler: str, n: int) -> list[int]:
        """The first n items in hand for a handler, in the order of their messages. They stay in hand: until they are
        done, the next call gives them again. So a claim that failed needs nothing undone."""
        ...

    def mark_done(self, ids: Iterable[int], missed: Collection[int] = ()) -> None:
        """A committed claim had these items in it; those it missed are done or in other hands: either way their hint
        has served. A message all of whose items are done is acknowledged. One of which no item was ever won may be the
        copy of one that has served, or be about items that never were: that can be looked up. Unknown ids are passed
        over."""
        ...


class Turns:
    """Decides what the next claim follows: the hints in hand, or the database's own order.

    The database has a turn every second, so that what is old and unimportant is not starved by what is hinted at, and
    what no hint came for is found. It has every turn while the hints are not alive, and those for which nothing is in
    hand as long as it gives all that was asked for.
    """

    def __init__(self, hints: Hints) -> None:
        self.hints = hints
        self.database_at = float("-inf")  # on the steady clock: when the database has its next turn
        self.database_more = False  # its last turn ended at a limit

    def take_named(self, wants: Sequence[Want], room: int) -> Named:
        """What is in hand of what is wanted; within the room, what one handler leaves over goes to the next."""
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
        """Items in hand of paced handlers. Their hints say no more than that it is worth while to look."""
        paced = (want.handler for want in wants if want.paced is not None)
        return [item for handler in paced for item in self.hints.take(handler, WOKEN_ITEMS_MAX)]

    def has_more(self, wants: Sequence[Want]) -> bool:
        """Whether there is more to be had than the last claims took."""
        return self.database_more or any(self.hints.take(want.handler, 1) for want in wants)

    def note_database_turn(self, now: float, more: bool) -> None:
        self.database_at = now + DATABASE_SECONDS
        self.database_more = more
