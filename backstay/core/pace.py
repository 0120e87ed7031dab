"""How fast a provider may be called: its limits per minute, a pause it asked for, and how many calls at once it allows.

Requests and tokens follow the same rule, known as GCRA: each takes its share of the period, and the moment up to which
the shares are taken may run ahead of now by one short burst. The period is made a little longer (a minute by a second),
because calls that left in time may arrive closer together than they left.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, NamedTuple

from backstay.core.errors import UsageError

MINUTE_MS: Final = 60_000
RATE_CALLS_MAX: Final = 10**9
_UNITS_MS: Final = {
    **dict.fromkeys(("s", "sec", "second"), 1_000),
    **dict.fromkeys(("min", "minute"), MINUTE_MS),
    **dict.fromkeys(("h", "hour"), 3_600_000),
    **dict.fromkeys(("d", "day"), 86_400_000),
}


class Rate(NamedTuple):
    """At most so many calls in any period of this length."""

    calls: int
    period_ms: int


def read_rate(text: object) -> Rate:
    """A rate as people write it: 5/s, 100/min, 2000/h, 10000/day."""
    found = re.fullmatch(r"\s*(\d{1,10})\s*/\s*([a-z]+)\s*", text) if isinstance(text, str) else None
    period_ms = None if found is None else _UNITS_MS.get(found[2])
    if found is None or period_ms is None or not 1 <= int(found[1]) <= RATE_CALLS_MAX:
        raise UsageError(
            f"{text!r} is not a rate", hint='write a number and a unit: "5/s", "100/min", "2000/h", "10000/day"'
        )
    return Rate(int(found[1]), period_ms)


class Allowance:
    """Collects what the answers say is left; read from time to time."""

    def __init__(self) -> None:
        self._least: int | None = None  # from the answers since the last look
        self._last: int | None = None
        self._before: int | None = None  # from the last answer before the last look
        self._calls = 0

    def say(self, left: int) -> None:
        self._least = left if self._least is None else min(left, self._least)
        self._last = left
        self._calls += 1

    def calls_max(self, each: bool = False) -> int | None:
        """How many calls may be under way; None if no answer gave a figure. The figures are then forgotten.

        `each`: a call uses one unit of what is left. Otherwise it uses what recent calls used, if that is known.
        """
        least, calls, before, last = self._least, self._calls, self._before, self._last
        self._least, self._calls, self._before = None, 0, last
        if least is None:
            return None
        if each:
            return least - calls  # as many again may have begun by the next look
        used = before - last if before is not None and last is not None else 0
        return least * calls // used - calls if used > 0 else None


BURSTS_PER_PERIOD = 60
SLACK_MS_MIN = 250

THROTTLED_SHARE_MAX = 0.2  # above it fewer calls are made at once: a few refusals are normal
WEATHER_PARTS = 4  # with a few refusals it still goes up, more slowly
PAUSE_SHARE_MIN = 0.5  # above it the pause that the provider asks of one call applies to all
CALLS_MIN = 5
PAUSE_MS_MAX = 60_000
SLOWER_TIMES = 3.0
START_PARTS = 4
CEILING_SLOW_MIN = 4


@dataclass(frozen=True, slots=True)
class Pace:
    """One provider's pace as all workers share it. Times are the database's: `_at` of the shares in microseconds."""

    provider: str
    requests_per_minute: int | None
    tokens_per_minute: int | None
    concurrency: int
    ceiling: int
    requests_at: int = 0
    tokens_at: int = 0
    resume_at: int = 0  # milliseconds
    requests_period_ms: int = MINUTE_MS  # `requests_per_minute` is per this period


def start_ceiling(concurrency: int) -> int:
    """Calls start with a part of what is allowed: their latency at that load is what later latency is compared with."""
    return max(min(concurrency, 16), concurrency // START_PARTS)


def requests_allowed(pace: Pace, in_flight: int, now_ms: int) -> int:
    """How many calls may start now."""
    if now_ms < pace.resume_at:
        return 0
    free, limit = pace.ceiling - in_flight, _requests(pace)
    if limit is not None:
        free = min(free, limit.shares(pace.requests_at, now_ms * 1000))
    return max(free, 0)


def tokens_fit(pace: Pace, tokens: Sequence[int], now_ms: int) -> int:
    """How many of these calls, in order, fit under the tokens per minute. A call that never fits starts when no tokens
    are in use."""
    limit = _tokens(pace)
    if limit is None:
        return len(tokens)
    now = now_ms * 1000
    free = limit.shares(pace.tokens_at, now)
    if tokens and pace.tokens_at <= now and tokens[0] > free:
        return 1
    fit = 0
    for need in tokens:
        free -= need
        if free < 0:
            break
        fit += 1
    return fit


def pace_after(pace: Pace, calls: int, tokens: int, now_ms: int) -> Pace:
    """The pace after these calls have started."""
    now, requests_limit, tokens_limit = now_ms * 1000, _requests(pace), _tokens(pace)
    return replace(
        pace,
        requests_at=0 if requests_limit is None else requests_limit.after(pace.requests_at, calls, now),
        tokens_at=0 if tokens_limit is None else tokens_limit.after(pace.tokens_at, tokens, now),
    )


def waits_ms(pace: Pace, now_ms: int) -> int:
    """How long until the next call may start, as far as the limits and the pause are concerned."""
    if now_ms < pace.resume_at:
        return pace.resume_at - now_ms
    waits = [0]
    for limit, at in ((_requests(pace), pace.requests_at), (_tokens(pace), pace.tokens_at)):
        if limit is not None and limit.shares(at, now_ms * 1000) < 1:
            share = -(-limit.window_micros // limit.rate)
            waits.append(-(-(at + share - limit.burst_micros) // 1000) - now_ms)
    return max(waits)


class _Limit(NamedTuple):
    """A number of calls or tokens in a period, as GCRA counts them."""

    amount: int
    window_micros: int

    @property
    def burst(self) -> int:
        return max(self.amount // BURSTS_PER_PERIOD, 1)

    @property
    def rate(self) -> int:
        """What a window allows besides the burst, so that both together never exceed the limit."""
        return self.amount - (self.burst - 1)

    @property
    def burst_micros(self) -> int:
        return -(-self.burst * self.window_micros // self.rate)

    def shares(self, at: int, now: int) -> int:
        ahead = max(at, now) - now
        return (self.burst_micros - ahead) * self.rate // self.window_micros

    def after(self, at: int, count: int, now: int) -> int:
        return max(at, now) + -(-count * self.window_micros // self.rate)


def _window_micros(period_ms: int) -> int:
    return (period_ms + max(period_ms // BURSTS_PER_PERIOD, SLACK_MS_MIN)) * 1000


def _requests(pace: Pace) -> _Limit | None:
    count = pace.requests_per_minute
    return None if count is None else _Limit(count, _window_micros(pace.requests_period_ms))


def _tokens(pace: Pace) -> _Limit | None:
    count = pace.tokens_per_minute
    return None if count is None else _Limit(count, _window_micros(MINUTE_MS))


class Answers:
    """What one worker saw of a provider since the last look, and what that means for the number of calls at once."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._throttled = 0
        self._pause_ms = 0
        self._exhausted_ms = 0
        self._usual: float | None = None  # seconds that a call takes while it waits for no other
        self.requests = Allowance()
        self.tokens = Allowance()

    def add(self, seconds: float, throttled: bool, pause_ms: int = 0, exhausted_ms: int = 0) -> None:
        """`exhausted_ms`: the provider reported that nothing is left until then; one report is enough."""
        if throttled:
            self._throttled += 1
            self._pause_ms = max(self._pause_ms, pause_ms)
        else:
            self._seconds.append(seconds)
        self._exhausted_ms = max(self._exhausted_ms, exhausted_ms)

    @property
    def any(self) -> bool:
        return bool(self._seconds or self._throttled)

    @property
    def pause_ms(self) -> int:
        """The pause for all calls that follows from the replies seen; 0: none."""
        voted = self._pause_ms if self._throttled_share() > PAUSE_SHARE_MIN else 0
        return min(max(voted, self._exhausted_ms), PAUSE_MS_MAX)

    def _throttled_share(self) -> float:
        calls = len(self._seconds) + self._throttled
        return self._throttled / calls if calls >= CALLS_MIN else 0.0

    def verdict(self, pace: Pace, now_ms: int, under_way: int | None = None) -> Pace:
        """The pace after the replies seen, which are then forgotten. `under_way`: calls now, of all workers; with the
        replies they are the most there can have been at once, so a ceiling far above that comes down quickly."""
        throttled, share, pause_ms = self._throttled, self._throttled_share(), self.pause_ms
        slow = self._slower()
        grown = len(self._seconds)
        self._seconds, self._throttled, self._pause_ms, self._exhausted_ms = [], 0, 0, 0
        ceiling = pace.ceiling
        if throttled and under_way is not None:
            ceiling = min(ceiling, under_way + throttled + grown)
        if share > THROTTLED_SHARE_MAX:
            ceiling = max(ceiling * 7 // 10, 1)
        elif slow:
            ceiling = max(ceiling * 85 // 100, min(CEILING_SLOW_MIN, ceiling))
        else:
            ceiling += grown if throttled == 0 else grown // WEATHER_PARTS
        said = (self.requests.calls_max(each=True), self.tokens.calls_max())
        ceiling = min([ceiling, pace.concurrency, *(most for most in said if most is not None)])
        ceiling = max(ceiling, 1)
        return replace(pace, ceiling=ceiling, resume_at=max(pace.resume_at, now_ms + pause_ms if pause_ms else 0))

    def _slower(self) -> bool:
        """Whether calls take several times as long as they used to: the provider queues them without saying so."""
        if len(self._seconds) < CALLS_MIN:
            return False
        now = median(self._seconds)
        if self._usual is None or now < self._usual:
            self._usual = now
        slower = now > SLOWER_TIMES * self._usual
        self._usual *= 1.01  # what is usual changes with the requests
        return slower
