"""Where the lines of a batch's files stand, by the references that they carry."""

import json
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

from backstay.llm.lines import number_lines

LINE_BYTES_MAX: Final = 64 << 20
_REF: Final = re.compile(r"[0-9a-f]{40}")
_KEY_DIGITS: Final = 16  # 64 bits of a reference tell any two that will ever meet apart
_SPOT_BITS: Final = 64
# Nearly every line of a file that we wrote, or that a provider made of it, begins like this.
_HEAD: Final = re.compile(rb'\{(?:"id": ?"[^"\\]*", ?)?"custom_id": ?"([0-9a-f]{40})"')


class LineIndex:
    """Sixteen bytes for a line, so that the lines of a hundred full batches can be kept in mind."""

    def __init__(self, lines: Iterable[tuple[str, int]]) -> None:
        entries = sorted(_key(ref) << _SPOT_BITS | spot for ref, spot in lines)
        self._keys = array("Q", (entry >> _SPOT_BITS for entry in entries))
        self._spots = array("Q", (entry & ((1 << _SPOT_BITS) - 1) for entry in entries))

    def spots(self, ref: str) -> list[int]:
        """Where its lines stand: none, one, or more if the provider gave it more than once."""
        key = _key(ref)
        at = bisect_left(self._keys, key)
        found: list[int] = []
        while at < len(self._keys) and self._keys[at] == key:
            found.append(self._spots[at])
            at += 1
        return found

    def keys(self) -> set[int]:
        """One for each reference."""
        return set(self._keys)

    def __contains__(self, ref: str) -> bool:
        return bool(self.spots(ref))

    def __len__(self) -> int:
        return len(self._keys)


def is_ref(text: object) -> bool:
    return isinstance(text, str) and _REF.fullmatch(text) is not None


def refs_by_number(file: BinaryIO) -> Iterator[tuple[str, int]]:
    """The references in a file of requests, each with the number of its line."""
    file.seek(0)
    for number, line in number_lines(file, LINE_BYTES_MAX):
        if line is not None and (ref := _ref_of(line)) is not None:
            yield ref, number


def refs_by_offset(file: BinaryIO) -> Iterator[tuple[str, int]]:
    """The references in a file of results, each with the byte where its line begins."""
    file.seek(0)
    at = 0
    for _, line in number_lines(file, LINE_BYTES_MAX):
        if line is not None and (ref := _ref_of(line)) is not None:
            yield ref, at
        at = file.tell()


def _ref_of(line: bytes) -> str | None:
    head = _HEAD.match(line)
    if head is not None:
        return head[1].decode()
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None  # whose line it was nobody can tell: its request counts as one without an answer
    named = value.get("custom_id") if isinstance(value, dict) else None
    return named if is_ref(named) else None


def _key(ref: str) -> int:
    return int(ref[:_KEY_DIGITS], 16)
