"""When a failed item is tried again: named backoff policies, and the Retry-After that overrides them."""

import math
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Final

from backstay.core.errors import UsageError

RETRY_AFTER_CAP_MS: Final = 3_600_000
# A throttled item spends no attempt, so a Retry-After of 0 would spin until the item times out.
RETRY_AFTER_FLOOR_MS: Final = 1_000
_YEAR_MS: Final = 366 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how late an item is tried again.

    The delay is min(base · factor^attempt, cap), then times U(1 - spread, 1 + spread), then plus U(0, jitter).
    The cap bounds the formula before it is spread: capping afterwards would pile the items that wait
    longest onto one instant. So the longest delay is `delay_ms_max`, a little above `cap_ms`.
    `attempts_max` includes the first try; None means that only the time limits end the tries.
    """

    name: str
    attempts_max: int | None
    base_ms: int
    factor: float
    cap_ms: int
    jitter_ms: int = 0
    spread: float = 0.0

    def __post_init__(self) -> None:
        attempts_ok = self.attempts_max is None or self.attempts_max >= 1
        rules = (
            (attempts_ok, f"attempts_max must be at least 1, or None, not {self.attempts_max}"),
            (0 <= self.base_ms <= self.cap_ms, f"base_ms must be from 0 to cap_ms, not {self.base_ms}"),
            (self.cap_ms <= _YEAR_MS, f"cap_ms must be at most {_YEAR_MS}, not {self.cap_ms}"),
            (1 <= self.factor <= 100, f"factor must be from 1 to 100, not {self.factor}"),
            (0 <= self.jitter_ms <= _YEAR_MS, f"jitter_ms must be from 0 to {_YEAR_MS}, not {self.jitter_ms}"),
            (0 <= self.spread <= 1, f"spread must be from 0 to 1, not {self.spread}"),
        )
        for kept, sentence in rules:
            if not kept:
                raise UsageError(f"retry policy {self.name!r}: {sentence}")

    @property
    def delay_ms_max(self) -> int:
        return math.ceil(self.cap_ms * (1 + self.spread)) + self.jitter_ms

    def delay_ms(self, attempt: int, rng: random.Random) -> int:
        """The wait after a failed attempt, counted from 0: attempt 0 is the first try."""
        spread = rng.uniform(1 - self.spread, 1 + self.spread)
        jitter = rng.uniform(0, self.jitter_ms)
        return max(0, round(self._formula_ms(max(0, attempt)) * spread + jitter))

    def _formula_ms(self, attempt: int) -> float:
        if self.base_ms == 0 or self.factor == 1:
            return float(self.base_ms)
        # Compared as logarithms, because factor ** attempt overflows long before attempt does.
        if attempt >= math.log(self.cap_ms / self.base_ms, self.factor):
            return float(self.cap_ms)
        return min(self.base_ms * self.factor**attempt, float(self.cap_ms))


GATEWAY: Final = RetryPolicy("gateway", attempts_max=3, base_ms=5_000, factor=2, cap_ms=3_600_000, jitter_ms=5_000)
QUEUE: Final = RetryPolicy("queue", attempts_max=3, base_ms=2_000, factor=2, cap_ms=300_000, spread=0.2)
TIMED: Final = RetryPolicy("timed", attempts_max=None, base_ms=2_000, factor=2, cap_ms=300_000, spread=0.2)
NONE: Final = RetryPolicy("none", attempts_max=1, base_ms=0, factor=1, cap_ms=0)

NAMED: Final[Mapping[str, RetryPolicy]] = MappingProxyType(
    {policy.name: policy for policy in (GATEWAY, QUEUE, TIMED, NONE)}
)


def policy_named(name: str) -> RetryPolicy:
    policy = NAMED.get(name)
    if policy is None:
        raise UsageError(f"there is no retry policy {name!r}; choose from {', '.join(NAMED)}")
    return policy


def next_delay_ms(policy: RetryPolicy, attempt: int, retry_after_ms: int | None, rng: random.Random) -> int:
    """The wait that the provider asked for, within a floor and a cap; without one, the wait of the policy."""
    if retry_after_ms is None:
        return policy.delay_ms(attempt, rng)
    return min(max(retry_after_ms, RETRY_AFTER_FLOOR_MS), RETRY_AFTER_CAP_MS)


def retry_after_ms_of(seconds: float | str | None) -> int | None:
    """Also accepts the text of a header; text that is not a number is ignored."""
    try:
        number = math.nan if seconds is None else float(seconds)
    except (TypeError, ValueError):
        return None
    return None if math.isnan(number) else _within_a_year(number * 1_000)


def parse_retry_after(value: str, now_ms: int | None) -> int | None:
    """Milliseconds to wait by a Retry-After of seconds or an HTTP date; None when it is neither."""
    text = value.strip()
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)", text, re.ASCII):
        return _within_a_year(float(text) * 1_000)
    if now_ms is None:
        return None
    try:
        moment = parsedate_to_datetime(text)
        # RFC 5322 writes "-0000" for a time in UTC of unknown origin, which Python reads as naive.
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return _within_a_year(aware.timestamp() * 1_000 - now_ms)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _within_a_year(ms: float) -> int:
    return math.ceil(min(max(ms, 0), _YEAR_MS))
