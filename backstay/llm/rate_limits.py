"""The limits of providers: rate limits in replies, in all their forms, with the pace that follows from them, and how
much may wait in batches at once."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

from backstay.clock import Clock
from backstay.core.failures import parse_retry_after, retry_after_ms_of
from backstay.core.pace import Answers

THROTTLED: Final = 429
_EXACT: Final = "retry-after-ms"
_LENGTH_MAX: Final = 64  # no real value is longer
_COUNT_DIGITS_MAX: Final = 15
_SPANS_REMEMBERED_MAX: Final = 4_096
_EPOCH_SECONDS_MIN: Final = 10**9  # a larger number is not a wait but a time, in seconds since 1970
_EPOCH_MS_MIN: Final = 10**12  # a still larger number is a time in milliseconds

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
        # Without a reset time, the number of remaining requests or tokens is not credible.
        if learned.requests_remaining is not None and learned.requests_reset_ms:
            self.answers.requests.say(learned.requests_remaining)
        if learned.tokens_remaining is not None and learned.tokens_reset_ms:
            self.answers.tokens.say(learned.tokens_remaining)
        self.answers.add(seconds, status == THROTTLED, learned.retry_after_ms or 0, max(exhausted, default=0))


QUICK_REQUESTS_MIN: Final = 100  # a smaller batch is not worth another try at once
QUICK_SECONDS: Final = 1.0
WAIT_SECONDS: Final = 5.0  # the first wait; each one is twice as long as the one before
OWN_WAIT_SECONDS_MAX: Final = 300.0  # while batches of ours are under way: their end is seen
WAIT_SECONDS_MAX: Final = 1_800.0  # others use the account as well, and their batches are not seen
REFUSED_SECONDS: Final = 3_600.0  # then the same number is tried again: limits rise, and others end
GIVEN_BACK_SECONDS: Final = 60.0  # for requests that were claimed although there is no room: each time is stored
MODEL_SECONDS: Final = 600.0  # so long after its last request a model without a limit counts
LOOK_SECONDS: Final = 600.0  # while there is no room: then others are claimed too, in case they have another model
UNSEEN_SECONDS: Final = 120.0  # then a batch is forgotten, a larger one later: another worker has seen its end
POLLED_PER_SECOND: Final = 250  # of requests under way, at least
MODELS_MAX: Final = 1_000
REFUSALS_REMEMBERED_MAX: Final = 10_000
_CLOSE: Final = 8  # the search ends when so many parts of the number make no difference


@dataclass(slots=True)
class _ModelLimit:
    """What is known about one model. All numbers are of requests."""

    under_way: dict[str, int] = field(default_factory=dict)  # by the id of their batch
    seen_at: dict[str, float] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)  # the ids of batches that the provider has taken
    gathering: int = 0  # not sent yet
    waiting_max: int | None = None  # None: nothing was refused so far
    fit: int = 0  # the most that ran at once
    refused: int | None = None  # the least that was too much
    refused_at: float = 0.0
    held_until: float = 0.0
    wait_seconds: float = WAIT_SECONDS
    asked_at: float = float("-inf")

    @property
    def waiting(self) -> int:
        return sum(self.under_way.values())

    def see(self, batch_id: str, requests: int, now: float) -> None:
        self.under_way[batch_id], self.seen_at[batch_id] = requests, now

    def forget(self, batch_id: str) -> bool:
        """Whether it was known."""
        self.running.discard(batch_id)
        self.seen_at.pop(batch_id, None)
        return self.under_way.pop(batch_id, None) is not None

    def forget_unseen(self, now: float) -> None:
        oldest = now - UNSEEN_SECONDS - self.waiting / POLLED_PER_SECOND
        for batch_id in [each for each, seen_at in self.seen_at.items() if seen_at < oldest]:
            self.forget(batch_id)

    def counts(self, now: float) -> bool:
        return self.waiting_max is not None or now < self.asked_at + MODEL_SECONDS

    def room(self, now: float) -> int | None:
        """For so many more; None: for any number."""
        if self.waiting_max is None:
            return None
        self.forget_unseen(now)
        return 0 if now < self.held_until else max(self.waiting_max - self.waiting, 0)

    def wait(self, now: float) -> None:
        """Each time longer, until a batch ends or runs."""
        most = OWN_WAIT_SECONDS_MAX if self.under_way else WAIT_SECONDS_MAX
        self.held_until = now + min(self.wait_seconds, most)
        self.wait_seconds = min(self.wait_seconds * 2, WAIT_SECONDS_MAX)

    def shrink(self, requests: int, least: int, now: float) -> None:
        """So many more than those under way were too many."""
        others = self.waiting
        if others + requests <= self.fit:  # it was less before: the limit has changed, or others use it
            self.fit = sum(self.under_way[batch_id] for batch_id in self.running)
            self.refused = None
        self.refused = min(self.refused or others + requests, others + requests)
        self.refused_at = now
        before = self.waiting_max
        self.waiting_max = max(others, self.fit, requests // 2, least)
        is_less = before is None or self.waiting_max < before
        if is_less and not others and (self.waiting_max >= QUICK_REQUESTS_MIN or self.waiting_max == self.fit):
            self.held_until = now + QUICK_SECONDS
        else:
            self.wait(now)

    def run(self, batch_id: str, now: float) -> None:
        """The provider has taken it."""
        self.running.add(batch_id)
        self.fit = max(self.fit, sum(self.under_way[each] for each in self.running))
        self.wait_seconds = WAIT_SECONDS
        self.grow(now)

    def grow(self, now: float) -> None:
        """All that may wait has run, so more may be tried: half-way to what was refused, or twice as much."""
        if self.waiting_max is None or self.fit < self.waiting_max:
            return
        if self.refused is None or now > self.refused_at + REFUSED_SECONDS:
            self.waiting_max, self.refused = 2 * self.fit, None
        elif self.refused - self.fit > max(self.fit // _CLOSE, 1):
            self.waiting_max = (self.fit + self.refused) // 2
        else:
            self.waiting_max = self.fit


class WaitingLimits:
    """Learns how many requests of each model may wait in batches at once: providers limit the tokens that wait, and
    most do not tell the limit.

    A refusal costs nothing but time. So the number is searched: a refused batch comes again smaller at once, and when a
    batch has run, a larger one is tried. While batches of our own take all the room, nothing is claimed, and the next
    one goes out when one of them has ended.
    """

    def __init__(self, clock: Clock, requests_min: int = 1) -> None:
        self._clock = clock
        self._least = 1 if requests_min == 1 else 2 * requests_min
        self._models: dict[str | None, _ModelLimit] = {}
        self._refused: set[str] = set()
        self._look_at = float("inf")

    def room(self) -> int | None:
        """How many requests may be under way beside those that wait in batches; None: any number, because a model may
        have room. Asked for each claim."""
        now = self._clock.monotonic()
        rooms = [each.room(now) for each in self._models.values() if each.counts(now)]
        known = [room for room in rooms if room is not None]
        if not known or len(known) < len(rooms):
            return None
        room = sum(known)
        looks = room == 0 and now >= self._look_at
        if looks or room > 0:
            self._look_at = now + LOOK_SECONDS
        return None if looks else room

    def seconds_to_wait(self, model: str | None) -> float:
        """Until one more request of the model may join a batch; 0: now."""
        known, now = self._known(model), self._clock.monotonic()
        known.asked_at = now
        room = known.room(now)
        if room is None or known.gathering < room:
            return 0.0
        return max(known.held_until - now, GIVEN_BACK_SECONDS)

    def requests_max(self, model: str | None, most: int) -> int:
        """Of the next batch."""
        known = self._models.get(model)
        return most if known is None or known.waiting_max is None else min(known.waiting_max, most)

    @contextmanager
    def gathering(self, model: str | None) -> Iterator[None]:
        """While a request waits for its batch to be sent."""
        known = self._known(model)
        known.gathering += 1
        try:
            yield
        finally:
            known.gathering -= 1

    def see(self, model: str | None, batch_id: str, requests: int, running: bool = False) -> None:
        """Records a batch that exists and has not ended."""
        known, now = self._known(model), self._clock.monotonic()
        known.see(batch_id, requests or known.under_way.get(batch_id, 0), now)
        if running and batch_id not in known.running:
            known.run(batch_id, now)

    def end(self, model: str | None, batch_id: str, has_run: bool) -> None:
        """Records that a batch has ended: the next one may take its place at once."""
        known = self._known(model)
        if has_run and batch_id in known.under_way and batch_id not in known.running:
            known.run(batch_id, self._clock.monotonic())
        if known.forget(batch_id):
            known.held_until, known.wait_seconds = 0.0, WAIT_SECONDS

    def refuse(self, model: str | None, batch_id: str | None, requests: int) -> float:
        """Records that the provider did not take a batch, because too much waits already; returns the seconds to wait.
        What is told again about the same batch counts once; without an id there is no batch."""
        known, now = self._known(model), self._clock.monotonic()
        if batch_id is None or batch_id not in self._refused:
            if len(self._refused) >= REFUSALS_REMEMBERED_MAX:
                self._refused.clear()
            if batch_id is not None:
                self._refused.add(batch_id)
                requests = max(known.under_way.get(batch_id, 0), requests)
                known.forget(batch_id)
            known.shrink(requests, self._least, now)
            self._look_at = min(self._look_at, now + LOOK_SECONDS)
        return max(known.held_until - now, QUICK_SECONDS)

    def _known(self, model: str | None) -> _ModelLimit:
        if model not in self._models and len(self._models) >= MODELS_MAX:
            self._models.clear()
        return self._models.setdefault(model, _ModelLimit())
