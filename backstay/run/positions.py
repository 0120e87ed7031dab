"""A set of positions at one bit each: a million take 125 kB, and a set of numbers hundreds of times that."""

from backstay.core.ids import POSITIONS_MAX


class Positions:
    __slots__ = ("_bits", "_count")

    def __init__(self) -> None:
        self._bits = bytearray()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, position: int) -> bool:
        at = position >> 3
        return at < len(self._bits) and bool(self._bits[at] >> (position & 7) & 1)

    @property
    def bytes_used(self) -> int:
        return len(self._bits)

    def add(self, position: int) -> bool:
        """Whether it is new."""
        if not 0 <= position < POSITIONS_MAX:
            raise ValueError(f"{position} is not a position")
        at = position >> 3
        if at >= len(self._bits):
            self._bits.extend(bytes(at + 1 - len(self._bits)))
        elif self._bits[at] >> (position & 7) & 1:
            return False
        self._bits[at] |= 1 << (position & 7)
        self._count += 1
        return True

    def discard(self, position: int) -> None:
        if position in self:
            self._bits[position >> 3] ^= 1 << (position & 7)
            self._count -= 1
