"""JSON arrays that are too large for memory: read element by element, as lines."""

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from backstay.core.errors import UsageError
from backstay.llm.lines import CHUNK_BYTES, LINE_BYTES_MAX, open_temporary

_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
_SCAN = json.JSONDecoder().raw_decode


@contextmanager
def array_as_lines(lines: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """A JSON array as JSON Lines: an element a line, so that its number is the number of its line."""
    with open_temporary() as spooled:
        for element in _elements(lines, name):
            spooled.write(element.encode("utf-8", "surrogatepass") + b"\n")
        spooled.seek(0)
        yield spooled


def _elements(lines: IO[bytes], name: str) -> Iterator[str]:
    """The text of every element, on one line: a raw line end in JSON can only stand between tokens."""
    buffer = _ArrayBuffer(lines, name)
    buffer.skip("[")
    if buffer.next_character() == "]":
        buffer.end(0)
        return
    number = 1
    while True:
        yield buffer.element(number).replace("\n", " ").replace("\r", " ")
        mark = buffer.next_character()
        if mark == "]":
            buffer.end(number)
            return
        if mark != ",":
            raise UsageError(f"{name} is not a JSON array: element {number} is not followed by a comma or ]")
        buffer.skip(",")
        number += 1


class _ArrayBuffer:
    """The part of a JSON array that is read and not yet used."""

    def __init__(self, lines: IO[bytes], name: str) -> None:
        self._lines = lines
        self._name = name
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._ended = False

    def next_character(self) -> str:
        """The next one that is not space; empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = self._at if found is None else found.end()
            if self._at < len(self._text) or not self._read(CHUNK_BYTES):
                return self._text[self._at : self._at + 1]

    def skip(self, mark: str) -> None:
        self.next_character()
        self._at += len(mark)

    def element(self, number: int) -> str:
        self.next_character()
        while True:
            try:
                _, end = _SCAN(self._text, self._at)
            except (ValueError, RecursionError) as error:
                self._require_more(number, error)
                continue
            if end < len(self._text) or self._ended:
                text, self._at = self._text[self._at : end], end
                return text
            self._require_more(number, None)  # a number may go on behind the part that is read

    def end(self, number: int) -> None:
        self.skip("]")
        if self.next_character():
            raise UsageError(f"{self._name} has more text behind its array of {number:,} elements")

    def _require_more(self, number: int, error: Exception | None) -> None:
        """Twice as much each time, so that a long element is not scanned again and again."""
        held = len(self._text) - self._at
        if held > LINE_BYTES_MAX:
            raise UsageError(f"{self._name}: element {number} has more than {LINE_BYTES_MAX:,} bytes")
        if not self._read(max(CHUNK_BYTES, held)) and error is not None:
            what = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
            raise UsageError(f"{self._name}: element {number} is not JSON: {what}")

    def _read(self, size: int) -> bool:
        if self._ended:
            return False
        chunk = self._lines.read(size)
        self._ended = not chunk
        try:
            more = self._decode.decode(chunk, final=self._ended)
        except UnicodeDecodeError as error:
            raise UsageError(f"{self._name} is not UTF-8: {error.reason}") from None
        self._text, self._at = self._text[self._at :] + more, 0
        return not self._ended
