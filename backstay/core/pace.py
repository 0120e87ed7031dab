"""How fast a provider may be called: its limits per minute, a pause that it asked for, and the number of calls at once.

Requests and tokens follow the same rule, known as GCRA: each takes its share of the period, and the time up to which
the shares are taken may be ahead of now by one short burst. The period is made a little longer (a minute by a second),
because calls may arrive closer together than they were sent.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, NamedTuple

from backstay.core.errors import UsageError

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_HOURS: Final = 24
RATE_CALLS_MAX: Final = 10**9
_UNITS_MS: Final = {
    **dict.fromkeys(("s", "sec", "second"), 1_000),
    **dict.fromkeys(("min", "minute"), MINUTE_MS),
    **dict.fromkeys(("h", "hour"), 3_600_000),
    **dict.fromkeys(("d", "day"), 86_400_000),
}


class FurtherLimits(NamedTuple):
    """Limits that some providers have besides requests and tokens per minute."""

    input_tokens_per_minute: int | None = None
    output_tokens_per_minute: int | None = None
    requests_per_day: int | None = None


NO_FURTHER_LIMITS: Final = FurtherLimits()


class PersonsLimits(NamedTuple):
    """The limits that a person set for one provider."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int = 100
    further: FurtherLimits = NO_FURTHER_LIMITS


class Rate(NamedTuple):
    """At most this number of calls in any period of this length."""

    calls: int
    period_ms: int


def read_rate(text: object) -> Rate:
    """A rate as people write it: 5/s, 100/min, 2000/h, 10000/day."""
    found = re.fullmatch(r"\s*([0-9]{1,10})\s*/\s*([a-z]+)\s*", text) if isinstance(text, str) else None
    period_ms = None if found is None else _UNITS_MS.get(found[2])
    if found is None or period_ms is None or not 1 <= int(found[1]) <= RATE_CALLS_MAX:
        raise UsageError(
            f"{text!r} is not a rate", hint='write a whole number and a unit: "5/s", "100/min", "2000/h", "10000/day"'
        )
    return Rate(int(found[1]), period_ms)


class Allowance:
    """Collects the remaining quota that replies report; it is read from time to time."""

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
        """How many calls may be under way; None if no reply gave a figure. The figures are then forgotten.

        `each`: a call uses one unit of the quota. Otherwise it uses as much as recent calls did, if that is known.
        """
        least, calls, before, last = self._least, self._calls, self._before, self._last
        self._least, self._calls, self._before = None, 0, last
        if least is None:
            return None
        if each:
            return least - calls  # the same number may have begun by the next look
        used = before - last if before is not None and last is not None else 0
        return least * calls // used - calls if used > 0 else None


BURSTS_PER_PERIOD = 60
SLACK_MS_MIN = 250

THROTTLED_SHARE_MAX = 0.2  # above it fewer calls are made at once: a few refusals are normal
SLOW_GROWTH_PARTS = 4  # with a few refusals the ceiling still goes up, more slowly
PAUSE_SHARE_MIN = 0.5  # above it a pause that the provider asks for applies to all calls
CALLS_MIN = 5
PAUSE_MS_MAX = 60_000
SLOWER_TIMES = 3.0
START_PARTS = 4
CEILING_SLOW_MIN = 4


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of one provider, shared by all workers. Times are the database's; those of the shares (`_at`) are in
    microseconds."""

    provider: str
    requests_per_minute: int | None
    tokens_per_minute: int | None
    concurrency: int
    ceiling: int
    requests_at: int = 0
    tokens_at: int = 0
    resume_at: int = 0  # milliseconds
    requests_period_ms: int = MINUTE_MS  # `requests_per_minute` is per this period
    input_tokens_per_minute: int | None = None
    output_tokens_per_minute: int | None = None
    requests_per_day: int | None = None
    input_at: int = 0
    output_at: int = 0
    day_calls: str = ""  # how many calls began in each of the last hours: "493055:12 493056:3"


def pace_name_of(handler: str) -> str:
    """The name of the pace of a user's own handler."""
    return f"handler:{handler}"


def start_ceiling(concurrency: int) -> int:
    """The first ceiling, a part of the allowed calls. Later latency is compared with the latency at this load."""
    return max(min(concurrency, 16), concurrency // START_PARTS)


def requests_allowed(pace: Pace, in_flight: int, now_ms: int) -> int:
    """How many calls may start now."""
    if now_ms < pace.resume_at:
        return 0
    free, limit = pace.ceiling - in_flight, _requests(pace)
    if limit is not None:
        free = min(free, limit.shares(pace.requests_at, now_ms * 1000))
    if pace.requests_per_day is not None:
        free = min(free, pace.requests_per_day - sum(_calls_of_day(pace, now_ms).values()))
    return max(free, 0)


def _calls_of_day(pace: Pace, now_ms: int) -> dict[int, int]:
    """The calls of the last day, by hour. An hour counts until all of it is more than a day ago. So no 24 hours have
    more calls than the limit, at whatever hour the provider's own day begins."""
    found = (part.split(":") for part in pace.day_calls.split())
    return {int(hour): int(calls) for hour, calls in found if int(hour) >= now_ms // HOUR_MS - DAY_HOURS}


def tokens_fit(pace: Pace, tokens: Sequence[int], now_ms: int, outputs: Sequence[int] | None = None) -> int:
    """How many of these calls, in order, fit under the limits of tokens per minute: of all tokens, of input and of
    output. `outputs`: how many of the tokens are output. A call that is too large to fit starts when no tokens are in
    use."""
    outputs = [0] * len(tokens) if outputs is None else outputs
    inputs = [both - output for both, output in zip(tokens, outputs, strict=True)]
    fits = [
        _fit(limit, at, needs, now_ms * 1000)
        for (limit, at), needs in zip(_token_limits(pace), (tokens, inputs, outputs), strict=True)
        if limit is not None
    ]
    return min(fits, default=len(tokens))


def _fit(limit: "_Limit", at: int, tokens: Sequence[int], now: int) -> int:
    free = limit.shares(at, now)
    if tokens and at <= now and tokens[0] > free:
        return 1
    fit = 0
    for need in tokens:
        free -= need
        if free < 0:
            break
        fit += 1
    return fit


def pace_after(pace: Pace, calls: int, tokens: int, now_ms: int, outputs: int = 0) -> Pace:
    """The pace after these calls have started. A call with more than a minute's tokens counts as a full minute, so that
    one item does not stop all others for hours."""
    now, requests_limit = now_ms * 1000, _requests(pace)
    tokens_at, input_at, output_at = (
        0 if limit is None else limit.after(at, min(count, limit.amount), now)
        for (limit, at), count in zip(_token_limits(pace), (tokens, tokens - outputs, outputs), strict=True)
    )
    return replace(
        pace,
        requests_at=0 if requests_limit is None else requests_limit.after(pace.requests_at, calls, now),
        tokens_at=tokens_at,
        input_at=input_at,
        output_at=output_at,
        day_calls="" if pace.requests_per_day is None else _day_after(pace, calls, now_ms),
    )


def _day_after(pace: Pace, calls: int, now_ms: int) -> str:
    found = _calls_of_day(pace, now_ms)
    hour = now_ms // HOUR_MS
    found[hour] = found.get(hour, 0) + calls
    return " ".join(f"{hour}:{calls}" for hour, calls in sorted(found.items()))


def day_wait_ms(pace: Pace, now_ms: int) -> int:
    """How long until the limit of a day allows another call."""
    if pace.requests_per_day is None:
        return 0
    found = _calls_of_day(pace, now_ms)
    if not found or sum(found.values()) < pace.requests_per_day:
        return 0
    return (min(found) + DAY_HOURS + 1) * HOUR_MS - now_ms


def waits_ms(pace: Pace, now_ms: int) -> int:
    """How long until the limits and the pause allow the next call."""
    if now_ms < pace.resume_at:
        return pace.resume_at - now_ms
    waits = [day_wait_ms(pace, now_ms)]
    for limit, at in ((_requests(pace), pace.requests_at), *_token_limits(pace)):
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
        """The amount of a window besides the burst: both together never exceed the limit."""
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


def _token_limits(pace: Pace) -> list[tuple[_Limit | None, int]]:
    """The limits of all tokens, of input and of output, each with the time up to which its shares are taken."""
    counts = (pace.tokens_per_minute, pace.input_tokens_per_minute, pace.output_tokens_per_minute)
    limits = [None if count is None else _Limit(count, _window_micros(MINUTE_MS)) for count in counts]
    return list(zip(limits, (pace.tokens_at, pace.input_at, pace.output_at), strict=True))


class Answers:
    """The replies of a provider that one worker saw since the last look, and the ceiling that follows from them."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._throttled = 0
        self._pause_ms = 0
        self._exhausted_ms = 0
        self._old = 0  # of the calls that went well: those that began before the ceiling came down
        self._lowered_at = 0
        self._usual: float | None = None  # seconds that a call takes while it waits for no other
        self.requests = Allowance()
        self.tokens = Allowance()
        self.shut_until = 0.0  # on the steady clock: this worker alone claims nothing until then
        self.room: Callable[[], int | None] | None = None  # how many items this worker may have under way; None: any

    def add(
        self, seconds: float, throttled: bool, pause_ms: int = 0, exhausted_ms: int = 0, began_at: int | None = None
    ) -> None:
        """`exhausted_ms`: for this time, the provider reported, no quota is left; one report is enough.
        `began_at`: when the call began, in the database's time, if that is known."""
        if throttled:
            self._throttled += 1
            self._pause_ms = max(self._pause_ms, pause_ms)
        else:
            self._seconds.append(seconds)
            self._old += began_at is not None and began_at < self._lowered_at
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
        """The pace after the replies seen, which are then forgotten. `under_way`: the calls of all workers now.
        Together with the replies they are the most calls that were made at once, so a ceiling far above that comes down
        quickly."""
        throttled, share, pause_ms = self._throttled, self._throttled_share(), self.pause_ms
        slow = self._slower()
        grown, fresh = len(self._seconds), len(self._seconds) - self._old
        self._old = 0
        self._seconds, self._throttled, self._pause_ms, self._exhausted_ms = [], 0, 0, 0
        ceiling = pace.ceiling
        if throttled and under_way is not None:
            ceiling = min(ceiling, under_way + throttled + grown)
        if share > THROTTLED_SHARE_MAX:
            ceiling = max(ceiling * 7 // 10, 1)
        elif slow:
            ceiling = max(ceiling * 85 // 100, min(CEILING_SLOW_MIN, ceiling))
        else:
            ceiling += fresh if throttled == 0 else fresh // SLOW_GROWTH_PARTS
        reported = (self.requests.calls_max(each=True), self.tokens.calls_max())
        ceiling = min([ceiling, pace.concurrency, *(most for most in reported if most is not None)])
        ceiling = max(ceiling, 1)
        if throttled and ceiling < pace.ceiling:
            self._lowered_at = now_ms
        return replace(pace, ceiling=ceiling, resume_at=max(pace.resume_at, now_ms + pause_ms if pause_ms else 0))

    def _slower(self) -> bool:
        """Whether calls take several times as long as usual: the provider queues them without a 429."""
        if len(self._seconds) < CALLS_MIN:
            return False
        now = median(self._seconds)
        if self._usual is None or now < self._usual:
            self._usual = now
        slower = now > SLOWER_TIMES * self._usual
        self._usual *= 1.01  # the usual time changes with the requests
        return slower
