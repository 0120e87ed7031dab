"""Measures over time, by minute: items, calls, tokens, cost and latency. Workers add them up; pages read them."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

from backstay.core.models import Act, AttemptOutcome, Settlement
from backstay.core.states import ItemState
from backstay.store.databases.database import Database
from backstay.store.queries import Ask, Script, combine_records, one, read_row, record

MINUTE_MS: Final = 60_000
LATENCY_MS: Final = (100, 250, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)  # a call counts in the first that fits


class MeasureSource(NamedTuple):
    """The owner of the work, and the handler and provider that did it."""

    owner: str
    handler: str
    provider: str


class MeasureSlot(NamedTuple):
    """Settlements of one slot are counted together; minutes are since 1970."""

    minute: int
    source: MeasureSource


@dataclass(slots=True)
class Measure:
    """The counts of one slot, or the sum of several. The fields are the columns of the table, in its order."""

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
        self.retried += attempt.outcome == AttemptOutcome.RETRY
        self.cost_micros += attempt.cost_micros or 0
        self.input_tokens += attempt.input_tokens or 0
        self.output_tokens += attempt.output_tokens or 0


COLUMNS: Final = tuple(field.name for field in fields(Measure))
BUCKETS: Final = COLUMNS[COLUMNS.index("within_tenth") :]


def sum_measures(measures: Sequence[Measure]) -> Measure:
    return Measure(*(sum(column) for column in zip(*(one.values() for one in measures), strict=True)))


class Sums:
    """The measures of a process since it last stored them."""

    def __init__(self) -> None:
        self._sums: dict[MeasureSlot, Measure] = {}
        self._last: tuple[int, MeasureSource, Measure] | None = None  # most settlements are of the same slot

    def add(self, source: MeasureSource, settlement: Settlement, now_ms: int) -> None:
        attempt = settlement.attempt
        at = now_ms if attempt is None else attempt.ended_at
        minute, last = at // MINUTE_MS, self._last
        if last is None or last[0] != minute or last[1] is not source:
            measure = self._sums.setdefault(MeasureSlot(minute, source), Measure())
            self._last = last = (minute, source, measure)
        last[2].add(settlement)

    def take(self) -> dict[MeasureSlot, Measure]:
        """Returns all sums and starts again from zero."""
        taken, self._sums, self._last = self._sums, {}, None
        return {place: measure for place, measure in taken.items() if any(measure.values())}

    def give_back(self, taken: dict[MeasureSlot, Measure]) -> None:
        """Adds measures that could not be stored to the current sums, for the next time."""
        self._last = None
        for place, measure in taken.items():
            mine = self._sums.get(place)
            self._sums[place] = measure if mine is None else sum_measures([mine, measure])


KEPT_MINUTES: Final = 14 * 24 * 60
ALL_MINUTES: Final = 1 << 40  # one step that covers all minutes


@record
class MeasuredPlace(NamedTuple):
    owner: str
    minute: int
    handler: str
    provider: str


record(Measure)
combine_records("MeasureRow", ("", MeasuredPlace), ("", Measure))


class Step(NamedTuple):
    """Some minutes together; `minute` is the first of them, since 1970."""

    minute: int
    measure: Measure


@record
class ProviderSpending(NamedTuple):
    """The cost of calls to a provider, and how many were repeated although the first may have been paid."""

    provider: str
    cost_micros: int
    repeats: int


class Measures:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def add(self, worker: str, sums: Mapping[MeasureSlot, Measure]) -> None:
        """Adds to what the worker wrote before. In order, so that two writers do not deadlock."""
        rows = [
            (place.source.owner, place.minute, place.source.handler, place.source.provider, *measure.values())
            for place, measure in sorted(_by_key(sums).items())
        ]
        if rows:
            await self._db.write(lambda: _add(worker, rows))

    async def forget(self) -> None:
        await self._db.write(one("forget_measures", {"minutes": KEPT_MINUTES}))

    async def steps(self, owner: str, since_minute: int, step_minutes: int) -> list[Step]:
        found: dict[int, list[Measure]] = {}
        for minute, _, measure in await self._read(owner, since_minute, step_minutes):
            found.setdefault(minute, []).append(measure)
        return [Step(minute, sum_measures(measures)) for minute, measures in found.items()]

    async def spending(self, minutes: int) -> list[ProviderSpending]:
        """The spending of all owners in the last minutes, by provider."""
        return await self._db.read(one("spending", {"minutes": minutes}))

    async def by_provider(self, owner: str, since_minute: int) -> dict[str, Measure]:
        return {provider: measure for _, provider, measure in await self._read(owner, since_minute, ALL_MINUTES)}

    async def _read(self, owner: str, since_minute: int, step_minutes: int) -> list[tuple[int, str, Measure]]:
        values = {"owner": owner, "since": since_minute, "step": step_minutes}
        rows = await self._db.read(one("measures_of", values))
        return [(row["since"], row["provider"], read_row(Measure, row)) for row in rows]


def _add(worker: str, rows: list[tuple[object, ...]]) -> Script[None]:
    yield Ask("add_measures", {"worker": worker}, rows)


def _by_key(sums: Mapping[MeasureSlot, Measure]) -> dict[MeasureSlot, Measure]:
    """One row for each key: a handler whose provider was changed in the same minute counts with the later one."""
    found: dict[tuple[str, int, str], MeasureSlot] = {}
    made: dict[MeasureSlot, Measure] = {}
    for place, measure in sums.items():
        key = (place.source.owner, place.minute, place.source.handler)
        first = found.setdefault(key, place)
        made[first] = measure if first not in made else sum_measures([made[first], measure])
    return made
