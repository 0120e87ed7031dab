"""Which answers of earlier runs a run uses again, and the key that a request is known by."""

import hashlib
import json
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from backstay.core.models import AnswerKey

if TYPE_CHECKING:
    from backstay.llm.endpoint import Endpoint
    from backstay.llm.formats import ParsedRequest
    from backstay.llm.intake import Tally

LOOKED_UP: Final = 2_000  # requests at once
_canonical: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_NUMBERS: Final = struct.Struct(">qq")
_SAMPLE: Final = re.compile(r'\{"sample":(\d{1,9})\}')
_VERSION: Final = "1"  # another form of the key finds no answers of the earlier form


class Reuse(NamedTuple):
    """All answers, none, or those that are not older than this."""

    wanted: bool = True
    age_seconds: float | None = None


ALWAYS: Final = Reuse()
NEVER: Final = Reuse(wanted=False)


class RequestKeys:
    """Makes the keys of the requests that begin at one endpoint. What is sent counts, and where to: not the lane, the
    API key, the pace, the price, a custom_id or metadata."""

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
    """What tells a further sample of a request from the first one; it is not sent."""
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
        if len(self._waiting) >= LOOKED_UP:
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
    """The sentence before anything is sent."""
    return f"{known:,} of {of}{total:,} are known; {total - known:,} will be sent"
