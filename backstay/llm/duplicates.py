"""Finds repeats among a million lines: ids that come twice, and requests that need to be paid only once."""

import hashlib
import sqlite3
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from types import TracebackType
from typing import NamedTuple, Self

from backstay.llm.endpoint import DEFAULT_API
from backstay.llm.lines import LlmRequest, no_room_error

BUCKETS = 256
CACHE_KIBIBYTES = 8 * 1024


class LineSet:
    """Numbers of lines, a bit each."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, line: int) -> None:
        byte = line >> 3
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits)))
        self._bits[byte] |= 1 << (line & 7)

    def __contains__(self, line: int) -> bool:
        byte = line >> 3
        return byte < len(self._bits) and bool(self._bits[byte] & 1 << (line & 7))

    def __bool__(self) -> bool:
        return bool(self._bits)


class Suspicion:
    """Finds texts that may have come twice: eight bytes of each are kept, so two different ones may look the same."""

    def __init__(self) -> None:
        self._buckets = [array("q") for _ in range(BUCKETS)]

    def add(self, text: str) -> None:
        mark = hash(text)
        self._buckets[mark % BUCKETS].append(mark)

    def narrow(self) -> bool:
        """Keeps only those that came more than once; returns whether there are any."""
        for at, bucket in enumerate(self._buckets):
            self._buckets[at] = array("q", sorted(mark for mark, times in Counter(bucket).items() if times > 1))
        return any(self._buckets)

    def __contains__(self, text: str) -> bool:
        mark = hash(text)
        bucket = self._buckets[mark % BUCKETS]
        at = bisect_left(bucket, mark)
        return at < len(bucket) and bucket[at] == mark


class Repeat(NamedTuple):
    """A line whose id an earlier line has already."""

    line: int
    first: int


def repeats(ids: Iterable[tuple[str, int]]) -> Iterator[Repeat]:
    """Of (id, line): every line whose id an earlier line has, in the order of lines, however many there are."""
    with _telling(), closing(_scratch()) as scratch:
        scratch.execute("CREATE TABLE seen (id TEXT NOT NULL, line INTEGER NOT NULL)")
        scratch.executemany("INSERT INTO seen VALUES (?, ?)", ids)
        rows = scratch.execute(
            "SELECT line, first FROM (SELECT line, min(line) OVER (PARTITION BY id) AS first FROM seen)"
            " WHERE line > first ORDER BY line"
        )
        yield from map(Repeat._make, rows)


class Originals:
    """Finds for each request the first one with the same provider, url, body and metadata: both can have the same
    answer. A temporary file remembers them."""

    def __init__(self) -> None:
        self._scratch = _scratch()
        self._scratch.execute("CREATE TABLE seen (digest BLOB PRIMARY KEY, ordinal INTEGER NOT NULL) WITHOUT ROWID")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._scratch.close()

    def first(self, request: LlmRequest, ordinal: int, api: str = DEFAULT_API) -> int:
        """The ordinal of the first such request to this provider: the given one, if there was none before."""
        # With 16 bytes of a cryptographic hash, two different requests never collide in practice.
        kept = "" if request.metadata is None else f"\0{request.metadata}"
        digest = hashlib.blake2b(f"{api}\0{request.url}\0{request.body}{kept}".encode(), digest_size=16).digest()
        with _telling():
            (first,) = self._scratch.execute(
                "INSERT INTO seen VALUES (?, ?) ON CONFLICT DO UPDATE SET ordinal = ordinal RETURNING ordinal",
                (digest, ordinal),
            ).fetchone()
        return int(first)


@contextmanager
def _telling() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:  # our own statements can only fail because of the disk
        raise no_room_error(error) from error


def _scratch() -> sqlite3.Connection:
    """A database in a private temporary file, deleted when it is closed."""
    scratch = sqlite3.connect("", isolation_level=None)
    scratch.execute("PRAGMA journal_mode = OFF")
    scratch.execute("PRAGMA synchronous = OFF")
    scratch.execute(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}")
    scratch.execute("PRAGMA temp_store = FILE")
    scratch.execute("BEGIN")
    return scratch
