"""Finds repeats: ids that come twice among a million lines, requests that need to be paid only once, and requests that
an earlier run has answered."""

import hashlib
import json
import re
import sqlite3
import struct
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from json import encoder as json_encoder
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from backstay.core.models import AnswerKey
from backstay.llm.endpoint import DEFAULT_API
from backstay.llm.lines import LlmRequest, no_room_error

if TYPE_CHECKING:
    from backstay.llm.endpoint import Endpoint
    from backstay.llm.formats import ParsedRequest
    from backstay.llm.intake import Tally

BUCKETS: Final = 256
CACHE_KIBIBYTES: Final = 8 * 1024
LOOK_UP_REQUESTS: Final = 2_000  # that are looked up together
_NUMBERS: Final = struct.Struct(">qq")
_SAMPLE: Final = re.compile(r'\{"sample":(\d{1,9})\}')
_VERSION: Final = "1"  # with another version, answers under the earlier keys are not found


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
    """Takes pairs of id and line; yields every line whose id an earlier line has, in the order of lines."""
    with _explain_errors(), closing(_scratch()) as scratch:
        scratch.execute("CREATE TABLE seen (id TEXT NOT NULL, line INTEGER NOT NULL)")
        scratch.executemany("INSERT INTO seen VALUES (?, ?)", ids)
        rows = scratch.execute(
            "SELECT line, first FROM (SELECT line, min(line) OVER (PARTITION BY id) AS first FROM seen)"
            " WHERE line > first ORDER BY line"
        )
        yield from map(Repeat._make, rows)


def same_text(request: LlmRequest, api: str = DEFAULT_API) -> str:
    """What two requests have in common that can have the same answer: provider, url, body and metadata."""
    kept = "" if request.metadata is None else f"\0{request.metadata}"
    return f"{api}\0{request.url}\0{request.body}{kept}"


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
        digest = hashlib.blake2b(same_text(request, api).encode(), digest_size=16).digest()
        with _explain_errors():
            (first,) = self._scratch.execute(
                "INSERT INTO seen VALUES (?, ?) ON CONFLICT DO UPDATE SET ordinal = ordinal RETURNING ordinal",
                (digest, ordinal),
            ).fetchone()
        return int(first)


@contextmanager
def _explain_errors() -> Iterator[None]:
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


# Answers of earlier runs


def _canonical_writer() -> Callable[[object], str]:
    """Writes JSON in one way only. `JSONEncoder.encode` makes a new encoder in C for each value, and so takes twice as
    long; every request passes here."""
    make = getattr(json_encoder, "c_make_encoder", None)
    if make is None:  # a Python without it
        return json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
    encode = make(None, None, json_encoder.encode_basestring_ascii, None, ":", ",", True, False, True)
    return lambda value: "".join(encode(value, 0))


_canonical: Final = _canonical_writer()


class RequestKeys:
    """Makes the keys of the requests that begin at one endpoint. The key covers the content of a request and its
    address, but not the lane, the API key, the pace, the price, a custom_id or metadata."""

    def __init__(self, owner: str, api: str, base_url: str, headers_env: Iterable[tuple[str, str]]) -> None:
        where = [_VERSION, owner, api, base_url.rstrip("/"), sorted(headers_env)]
        self._begun = hashlib.sha256(json.dumps(where).encode())

    @classmethod
    def of(cls, owner: str, endpoint: "Endpoint") -> Self:
        return cls(owner, endpoint.api, endpoint.base_url, endpoint.headers_env)

    def key(self, url: str, fields: Mapping[str, Any], model: str | None, sample: int = 0) -> AnswerKey:
        """`fields` is the whole body; the order of its members does not count. Several samples of the same request
        have different keys."""
        digest = self._begun.copy()
        digest.update(_canonical((url, model, sample, fields)).encode())
        high, low = _NUMBERS.unpack_from(digest.digest())
        return AnswerKey(high, low, model or "")


def metadata_of_sample(number: int) -> str:
    """Metadata that distinguishes several samples of the same request; it is not sent."""
    return f'{{"sample":{number}}}'


def sample_of(metadata: str | None) -> int:
    found = None if metadata is None else _SAMPLE.fullmatch(metadata)
    return 0 if found is None else int(found[1])


class UnknownRequests:
    """Passes on the requests that no earlier run has answered, and counts the others. `flush` ends it."""

    def __init__(
        self,
        tally: "Tally",
        keys_of: Callable[[str], RequestKeys],
        look_up: Callable[[Sequence[AnswerKey]], set[int]],
    ) -> None:
        self.known = 0
        self._tally = tally
        self._keys_of = keys_of
        self._keys: dict[str, RequestKeys] = {}  # by provider
        self._look_up = look_up
        self._waiting: list[ParsedRequest] = []

    def add(self, parsed: "ParsedRequest") -> None:
        self._waiting.append(parsed)
        if len(self._waiting) >= LOOK_UP_REQUESTS:
            self.flush()

    def flush(self) -> None:
        known = self._look_up([self._key(parsed) for parsed in self._waiting]) if self._waiting else set[int]()
        for number, parsed in enumerate(self._waiting):
            if number not in known:
                self._tally.add(parsed)
        self.known += len(known)
        self._waiting.clear()

    def clear(self) -> None:
        self._tally.clear()
        self._waiting.clear()
        self.known = 0

    def _key(self, parsed: "ParsedRequest") -> AnswerKey:
        keys = self._keys.get(parsed.api)
        if keys is None:
            keys = self._keys[parsed.api] = self._keys_of(parsed.api)
        return keys.key(parsed.url, parsed.fields, parsed.model, sample_of(parsed.metadata))


def show_known(known: int, total: int, of: str = "") -> str:
    """The sentence that is shown before anything is sent."""
    return f"{known:,} of {of}{total:,} are known; {total - known:,} will be sent"
