"""In which order the requests of a run stand in their file: items by position, and copies of them in between."""

from array import array
from collections.abc import Iterator
from typing import NamedTuple


class LinePlace(NamedTuple):
    """A request: an item, or with a number a copy of it."""

    position: int
    number: int | None = None


class FileOrder:
    """Four bytes for a request, so that it can be told of a million which are copies."""

    def __init__(self) -> None:
        self._items = array("i")  # by number: one more than the position of the item that it is a copy of, or 0

    def add(self, position: int, number: int) -> None:
        if number >= len(self._items):
            self._items.extend([0] * (number + 1 - len(self._items)))
        self._items[number] = position + 1

    def places(self, items: int) -> Iterator[LinePlace]:
        """Every request in its order. A request that is not a copy is the next item."""
        position = 0
        for number, copied in enumerate(self._items):
            if copied:
                yield LinePlace(copied - 1, number)
            elif number and position < items:
                yield LinePlace(position)
                position += 1
        for left in range(position, items):
            yield LinePlace(left)
