"""What workers measure per minute: how much was done, how long calls took, what they cost."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

from backstay.core.models import Act, Settlement
from backstay.core.states import ItemState

MINUTE_MS: Final = 60_000
LATENCY_MS: Final = (100, 250, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)  # a call counts in the first that fits


class MeasureSource(NamedTuple):
    """The owner of the work, and the handler and provider that did it."""

    owner: str
    handler: str
    provider: str


class MeasureSlot(NamedTuple):
    """What is counted together; minutes are since 1970."""

    minute: int
    source: MeasureSource


@dataclass(slots=True)
class Measure:
    """Counts of one place, or of several together. The columns of the table, in its order."""

    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    repeats: int = 0
    calls: int = 0
    latency_ms: int = 0
    cost_micros: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    within_tenth: int = 0  # of a second; the rest are seconds
    within_quarter: int = 0
    within_half: int = 0
    within_one: int = 0
    within_two: int = 0
    within_five: int = 0
    within_ten: int = 0
    within_thirty: int = 0
    within_sixty: int = 0
    longer: int = 0

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed

    @property
    def mean_ms(self) -> float | None:
        return self.latency_ms / self.calls if self.calls else None

    def within_ms(self, share: float) -> int | None:
        """The time within which this share of the calls was answered, rounded up to a bucket's bound; None above the
        last."""
        wanted, found = share * self.calls, 0
        for bound, column in zip(LATENCY_MS, BUCKETS[:-1], strict=True):
            found += getattr(self, column)
            if self.calls and found >= wanted:
                return bound
        return None

    def values(self) -> tuple[int, ...]:
        return tuple(getattr(self, column) for column in COLUMNS)

    def add(self, settlement: Settlement) -> None:
        if settlement.state is ItemState.SUCCEEDED:
            self.succeeded += 1
        elif settlement.state is ItemState.FAILED:
            self.failed += 1
        if settlement.act is Act.REPEAT:
            self.repeats += 1
        attempt = settlement.attempt
        if attempt is None:
            return
        took = max(attempt.ended_at - attempt.started_at, 0)
        self.calls += 1
        self.latency_ms += took
        column = BUCKETS[bisect_left(LATENCY_MS, took)]
        setattr(self, column, getattr(self, column) + 1)
        self.retried += attempt.outcome == "retry"
        self.cost_micros += attempt.cost_micros or 0
        self.input_tokens += attempt.input_tokens or 0
        self.output_tokens += attempt.output_tokens or 0


COLUMNS: Final = tuple(field.name for field in fields(Measure))
BUCKETS: Final = COLUMNS[COLUMNS.index("within_tenth") :]


def sum_measures(measures: Sequence[Measure]) -> Measure:
    return Measure(*(sum(column) for column in zip(*(one.values() for one in measures), strict=True)))


class Sums:
    """What a process has measured since it last stored its measures."""

    def __init__(self) -> None:
        self._sums: dict[MeasureSlot, Measure] = {}

    def add(self, source: MeasureSource, settlement: Settlement, now_ms: int) -> None:
        attempt = settlement.attempt
        at = now_ms if attempt is None else attempt.ended_at
        place = MeasureSlot(at // MINUTE_MS, source)
        measure = self._sums.get(place)
        if measure is None:
            measure = self._sums[place] = Measure()
        measure.add(settlement)

    def take(self) -> dict[MeasureSlot, Measure]:
        """Returns everything and forgets it: the caller keeps it from now on."""
        taken, self._sums = self._sums, {}
        return {place: measure for place, measure in taken.items() if any(measure.values())}

    def give_back(self, taken: dict[MeasureSlot, Measure]) -> None:
        """Takes back measures that could not be stored, for the next time."""
        for place, measure in taken.items():
            mine = self._sums.get(place)
            self._sums[place] = measure if mine is None else sum_measures([mine, measure])
