"""What is measured over time: items, calls, tokens, money and times, by minute."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from backstay.core.measures import Measure, MeasureSlot, sum_measures
from backstay.store.databases.database import Database
from backstay.store.queries import Ask, Script, combine_records, one, read_row, record

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
        for minute, _, measure in await self._measured(owner, since_minute, step_minutes):
            found.setdefault(minute, []).append(measure)
        return [Step(minute, sum_measures(measures)) for minute, measures in found.items()]

    async def spending(self, minutes: int) -> list[ProviderSpending]:
        """Of all owners, in the last minutes."""
        return await self._db.read(one("spending", {"minutes": minutes}))

    async def by_provider(self, owner: str, since_minute: int) -> dict[str, Measure]:
        return {provider: measure for _, provider, measure in await self._measured(owner, since_minute, ALL_MINUTES)}

    async def _measured(self, owner: str, since_minute: int, step_minutes: int) -> list[tuple[int, str, Measure]]:
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
