"""Rate limits in replies, in all the forms that providers use, and the pace that follows from them."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

from backstay.core.pace import Answers
from backstay.core.retry import parse_retry_after, retry_after_ms_of

THROTTLED: Final = 429
_EXACT: Final = "retry-after-ms"
_LENGTH_MAX: Final = 64  # no real value is longer
_COUNT_DIGITS_MAX: Final = 15
_SPANS_REMEMBERED_MAX: Final = 4_096
_EPOCH_SECONDS_MIN: Final = 10**9  # a wait of 30 years is really a time, in seconds since 1970
_EPOCH_MS_MIN: Final = 10**12  # ... and one of 30,000 years a time in milliseconds

_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)", re.ASCII)
_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h|d)", re.ASCII)
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_UNIT_SECONDS: Final = {
    **{"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3},
    **{"s": 1, "m": 60, "h": 3_600, "d": 86_400},
}


class LimitHeaders(NamedTuple):
    """The names of the headers, in lower case, with one provider's limits; empty where it has none."""

    requests_remaining: str
    requests_reset: str
    tokens_remaining: str = ""
    tokens_reset: str = ""


class LimitHints(NamedTuple):
    """None: the provider gave no figure, or a meaningless one, such as a negative number."""

    retry_after_ms: int | None = None
    requests_remaining: int | None = None
    requests_reset_ms: int | None = None
    tokens_remaining: int | None = None
    tokens_reset_ms: int | None = None

    @property
    def wait_ms(self) -> int | None:
        """How long to wait after a refusal: as the provider asks, or until the used-up limit is reset."""
        if self.retry_after_ms is not None:
            return self.retry_after_ms
        waits = (
            self.requests_reset_ms if self.requests_remaining == 0 else None,
            self.tokens_reset_ms if self.tokens_remaining == 0 else None,
        )
        return max((wait for wait in waits if wait is not None), default=None)


NO_HINTS: Final = LimitHints()


def read_limit_headers(headers: Mapping[str, str], now_ms: int, families: Sequence[LimitHeaders]) -> LimitHints:
    """Reads the headers of a reply, by their names in lower case. A reply has one family of them."""
    retry_after_ms = _retry_after_ms(headers, now_ms) if "retry-after" in headers or _EXACT in headers else None
    for requests, requests_reset, tokens, tokens_reset in families:
        if requests in headers or tokens in headers:
            return LimitHints(
                retry_after_ms,
                _count(headers.get(requests, "")),
                wait_ms_of(headers.get(requests_reset, ""), now_ms),
                _count(headers.get(tokens, "")),
                wait_ms_of(headers.get(tokens_reset, ""), now_ms),
            )
    return NO_HINTS if retry_after_ms is None else LimitHints(retry_after_ms)


def _retry_after_ms(headers: Mapping[str, str], now_ms: int) -> int | None:
    exact = headers.get(_EXACT, "")
    if _NUMBER.fullmatch(exact) and (number := float(exact)) >= 0:
        return retry_after_ms_of(number / 1_000)
    return wait_ms_of(headers.get("retry-after", ""), now_ms)


def _count(text: str) -> int | None:
    if text.isdecimal() and text.isascii() and len(text) <= _COUNT_DIGITS_MAX:
        return int(text)
    number = float(text) if _NUMBER.fullmatch(text) else -1.0
    return int(number) if 0 <= number < 10**_COUNT_DIGITS_MAX else None


def wait_ms_of(text: str, now_ms: int) -> int | None:
    """A wait: seconds, a duration such as 6m0s, or the moment at which it ends."""
    if not text or len(text) > _LENGTH_MAX:
        return None
    span = _span_ms(text)
    return span if span is not None else _until_ms(text, now_ms)


@lru_cache(maxsize=_SPANS_REMEMBERED_MAX)
def _span_ms(text: str) -> int | None:
    """A wait that does not depend on the current time. Every reply has some, with few different values."""
    if _NUMBER.fullmatch(text):
        number = float(text)
        return retry_after_ms_of(number) if 0 <= number < _EPOCH_SECONDS_MIN else None
    if not _DURATION.fullmatch(text):
        return None
    return retry_after_ms_of(sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(text)))


def _until_ms(text: str, now_ms: int) -> int | None:
    if _NUMBER.fullmatch(text):
        number = float(text)
        at_ms = number if number >= _EPOCH_MS_MIN else number * 1_000
        return None if number < 0 else retry_after_ms_of((at_ms - now_ms) / 1_000)
    try:
        moment = datetime.fromisoformat(text)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return retry_after_ms_of(aware.timestamp() - now_ms / 1_000)
    except (ValueError, OverflowError):
        return parse_retry_after(text, now_ms)


class Pacer:
    """Collects every answer; the engine reads `answers` from time to time, and all workers follow the result."""

    def __init__(self) -> None:
        self.answers = Answers()

    def note_answer(self, status: int, seconds: float, learned: LimitHints) -> None:
        exhausted = [
            reset_ms
            for remaining, reset_ms in (
                (learned.requests_remaining, learned.requests_reset_ms),
                (learned.tokens_remaining, learned.tokens_reset_ms),
            )
            if remaining == 0 and reset_ms is not None
        ]
        # A provider that gives no reset time does not mean it.
        if learned.requests_remaining is not None and learned.requests_reset_ms:
            self.answers.requests.say(learned.requests_remaining)
        if learned.tokens_remaining is not None and learned.tokens_reset_ms:
            self.answers.tokens.say(learned.tokens_remaining)
        self.answers.add(seconds, status == THROTTLED, learned.retry_after_ms or 0, max(exhausted, default=0))
