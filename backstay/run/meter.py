"""How fast a run goes, how long it will take and what it will cost, from how it stood a little while ago and now."""

from collections import deque
from typing import Final, NamedTuple

from backstay.core.outcomes import ANSWER_FLAWS
from backstay.core.pace import Pace, day_wait_ms

WINDOW_SECONDS: Final = 30.0
WINDOW_ITEMS: Final = 20  # slow runs look further back, until this many have ended
WINDOW_SECONDS_MAX: Final = 900.0
SAMPLE_SECONDS: Final = 0.5
START_SECONDS: Final = 2.0  # what ends sooner says nothing about the rest
PAUSE_SECONDS: Final = 10.0  # nobody looked for so long: the process itself stood still
COSTED_ITEMS: Final = 20  # as many as it takes for their mean cost to say something about the rest


class RunState(NamedTuple):
    """A run at one moment. Money is in micro-dollars; None is unknown, never nothing."""

    total: int
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    submitted: int | None = None  # how many lines are stored already, while they stream in
    running: int = 0
    retrying: int = 0  # failed for now, and waiting for another try
    held: str | None = None  # why nothing moves
    held_seconds: float | None = None  # until the next try, if that is known
    stopping: bool = False
    reused: int = 0  # of those that succeeded: with the answer of an earlier run
    repeats: int = 0  # calls whose answer was lost, so that they may have been paid, and are sent again
    truncated: int = 0  # answers that are not whole, whether they count as failures or not
    refused: int = 0
    filtered: int = 0
    unfinished: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    spent_micros: int | None = None
    reserved_micros: int = 0
    budget_micros: int | None = None

    @property
    def done(self) -> int:
        return self.succeeded + self.failed + self.cancelled

    @property
    def left(self) -> int:
        return max(self.total - self.done, 0)

    @property
    def flaws(self) -> list[tuple[str, int]]:
        """How many answers have which flaw, of those that there are."""
        return [(name, number) for name in ANSWER_FLAWS if (number := getattr(self, name))]

    @property
    def percent(self) -> int:
        return min(self.done * 100 // self.total, 100) if self.total else 0


class MeterReading(NamedTuple):
    """What follows from the states so far; None is not known yet."""

    per_second: float | None = None
    eta_seconds: float | None = None
    forecast_micros: int | None = None


class _Sample(NamedTuple):
    at: float
    done: int


class Meter:
    """Measures speed over a window. Work of an earlier process does not count, nor does the time during which the run
    was held or the process was suspended."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._looked_at: float | None = None

    def read(self, state: RunState, now: float) -> MeterReading:
        self._look(state, now)
        per_second = self._rate(state, now)
        eta_seconds = None
        if state.left == 0:
            eta_seconds = 0.0
        elif per_second and not state.stopping:
            eta_seconds = state.left / per_second
        return MeterReading(per_second, eta_seconds, forecast(state))

    def _look(self, state: RunState, now: float) -> None:
        samples, looked_at, self._looked_at = self._samples, self._looked_at, now
        stood_still = looked_at is not None and now - looked_at > PAUSE_SECONDS
        if state.held is not None or stood_still or (samples and state.done < samples[-1].done):
            samples.clear()
        if not samples or now - samples[-1].at >= SAMPLE_SECONDS:
            samples.append(_Sample(now, state.done))
        while len(samples) > 2 and self._has_enough_since(samples[1], state, now):
            samples.popleft()

    def _has_enough_since(self, sample: _Sample, state: RunState, now: float) -> bool:
        age, items = now - sample.at, state.done - sample.done
        return age >= WINDOW_SECONDS_MAX or (age >= WINDOW_SECONDS and items >= WINDOW_ITEMS)

    def _rate(self, state: RunState, now: float) -> float | None:
        if state.held is not None:
            return 0.0
        first = self._samples[0]
        seconds, items = now - first.at, state.done - first.done
        if seconds < START_SECONDS or (items == 0 and seconds < WINDOW_SECONDS):
            return None
        return items / seconds


def forecast(state: RunState) -> int | None:
    """What the whole will cost, if what is left costs what the others did; rounded up."""
    if state.spent_micros is None:
        return None
    ended = state.succeeded + state.failed - state.reused
    if state.left == 0:
        return state.spent_micros
    if ended < COSTED_ITEMS:
        return None
    return state.spent_micros - (-state.spent_micros * state.left // ended)


class Wait(NamedTuple):
    """Why nothing moves."""

    why: str
    seconds: float | None = None  # until the next try, if that is known


def wait_for_day(pace: Pace | None, now_ms: int) -> Wait | None:
    """A limit of a day may be reached for hours. Those of a minute are not worth a word."""
    wait_ms = 0 if pace is None else day_wait_ms(pace, now_ms)
    if pace is None or not wait_ms:
        return None
    return Wait(f"the limit of {pace.requests_per_day:,} requests per day is reached", wait_ms / 1000)
