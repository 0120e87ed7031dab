"""Keeps few large answers in memory at once: most are short, and a thousand long ones would fill a machine."""

from collections import deque
from typing import Final, Protocol

LARGE_BYTES: Final = 1 << 20
LARGE_AT_ONCE_MAX: Final = 4


class Reader(Protocol):
    def read_on(self) -> None: ...


class Crowd:
    """Who has read much waits its turn to read on."""

    def __init__(self, at_once_max: int = LARGE_AT_ONCE_MAX) -> None:
        self._at_once_max = at_once_max
        self._inside: set[Reader] = set()
        self._waiting: deque[Reader] = deque()

    def enter(self, reader: Reader) -> bool:
        """Whether it may read on; if not, it is told when it may."""
        if reader in self._inside:
            return True
        if len(self._inside) < self._at_once_max:
            self._inside.add(reader)
            return True
        if reader not in self._waiting:
            self._waiting.append(reader)
        return False

    def leave(self, reader: Reader) -> None:
        if reader in self._inside:
            self._inside.discard(reader)
            if self._waiting:
                following = self._waiting.popleft()
                self._inside.add(following)
                following.read_on()
        elif reader in self._waiting:
            self._waiting.remove(reader)
