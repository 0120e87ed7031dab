"""Retention: which dead letters are archived, by age, by their number and by their size per owner."""

from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple

from backstay.artifacts import Artifacts
from backstay.clock import DAY_MS, Clock
from backstay.settings import Settings
from backstay.store.archives import AFTER_ALL, BEFORE_ALL, Archives, Candidate, Place
from backstay.store.dead_letters import LetterFilter
from backstay.upkeep.archivist import ARCHIVE_ITEMS_MAX, Archivist

PAGE_ITEMS: Final = 500
WALK_ITEMS_MAX: Final = 1_000_000  # that one pass reads
PASS_ITEMS_MAX: Final = 50_000  # that one pass archives
PASS_SECONDS_MAX: Final = 60.0  # after this time a pass begins no further file
HELD_ITEMS_MAX: Final = 20_000  # that wait for more letters of their owner
QUIET_MS: Final = 60_000  # after its end a job's results may still be written
# Above a limit, a little more than necessary is archived: otherwise every pass would write a file of a few letters.
SLACK: Final = 20  # 1/n of the limit
AGE_SLACK: Final = 168  # of seven days, an hour


class RetentionBounds(NamedTuple):
    """What an owner may hold. Archives are each owner's own, so the bounds are as well."""

    age_ms: int
    items: int
    bytes: int


def bounds_of(settings: Settings) -> RetentionBounds:
    age_ms = int(settings.dead_letter_days * DAY_MS)
    return RetentionBounds(age_ms, settings.dead_letter_items, settings.dead_letter_bytes)


Rule = Callable[[Candidate], bool]


class _Held(NamedTuple):
    items: int
    bytes: int
    low: Place | None  # letters from here backwards are archived if a limit is exceeded


class Retention:
    def __init__(self, archives: Archives, artifacts: Artifacts, clock: Clock, bounds: RetentionBounds) -> None:
        self._archives = archives
        self._archivist = Archivist(archives, artifacts, clock)
        self._clock = clock
        self._bounds = bounds

    async def run_once(self, *, exact: bool = False, owner: str | None = None) -> int:
        """One bounded pass; returns how many items were archived. With `exact` it archives no more than necessary; with
        `owner` only that owner's items."""
        cutoffs = await self._cutoffs(exact)
        age_ms = self._bounds.age_ms if exact or await self._overdue() else None

        def goes(one: Candidate) -> bool:
            if owner not in (None, one.owner):
                return False
            return (age_ms is not None and one.age_ms >= age_ms) or one.place <= cutoffs.get(one.owner, BEFORE_ALL)

        last = max(cutoffs.values(), default=BEFORE_ALL)
        return await self._archive(goes, lambda one: age_ms is None or one.age_ms < age_ms, last, QUIET_MS)

    async def archive(self, owner: str, wanted: LetterFilter) -> int:
        """One bounded pass over what a person chooses."""

        def goes(one: Candidate) -> bool:
            chosen = wanted.job_id in (None, one.job_id) and wanted.error_code in (None, one.error_code)
            return one.owner == owner and chosen and one.age_ms >= wanted.age_ms

        return await self._archive(goes, lambda one: one.age_ms < wanted.age_ms, BEFORE_ALL, 0)

    async def _overdue(self) -> bool:
        """Whether any letter that can be archived is old enough for a new file."""
        page = await self._archives.oldest(BEFORE_ALL, PAGE_ITEMS, QUIET_MS)
        limit = self._bounds.age_ms + self._bounds.age_ms // AGE_SLACK
        return any(one.free and one.age_ms >= limit for one in page)

    async def _cutoffs(self, exact: bool) -> dict[str, Place]:
        """By owner: the newest letter that exceeds the limits. Owners within their limits are left out."""
        held: dict[str, _Held] = {}
        found: dict[str, Place] = {}
        before, looked = AFTER_ALL, 0
        while looked < WALK_ITEMS_MAX and (page := await self._archives.newest(before, PAGE_ITEMS)):
            own = [(place, owner) for place, owner in page if owner and owner not in found]
            sizes = await self._archives.sizes([place[1] for place, _ in own]) if own else {}
            for place, owner in own:
                if owner not in found:
                    now = held[owner] = self._add(held.get(owner), place, sizes.get(place[1], 0), exact)
                    if now.items > self._bounds.items or now.bytes > self._bounds.bytes:
                        found[owner] = now.low or place
            before, looked = page[-1][0], looked + len(page)
        return found

    def _add(self, before: _Held | None, place: Place, size: int, exact: bool) -> _Held:
        items, size, low = (1, size, None) if before is None else (before.items + 1, before.bytes + size, before.low)
        slack = 0 if exact else 1
        over = items > self._bounds.items - slack * (self._bounds.items // SLACK)
        over = over or size > self._bounds.bytes - slack * (self._bounds.bytes // SLACK)
        return _Held(items, size, low if low is not None else (place if over else None))

    async def _archive(self, goes: Rule, is_young: Rule, last: Place, quiet_ms: int) -> int:
        """Each owner's items go into files of their own, the oldest first."""
        waiting: dict[str, list[Candidate]] = {}
        gone, held, end = 0, 0, self._clock.monotonic() + PASS_SECONDS_MAX
        async for one in self._chosen(goes, is_young, last, quiet_ms):
            mine = waiting.setdefault(one.owner, [])
            mine.append(one)
            held += 1
            if len(mine) >= ARCHIVE_ITEMS_MAX or held >= HELD_ITEMS_MAX:
                fullest = max(waiting, key=lambda owner: len(waiting[owner]))
                held -= len(waiting[fullest])
                gone += await self._archivist.archive(waiting.pop(fullest))
            if gone + held >= PASS_ITEMS_MAX or self._clock.monotonic() >= end:
                break
        for rest in waiting.values():
            gone += await self._archivist.archive(rest)
        return gone

    async def _chosen(self, goes: Rule, is_young: Rule, last: Place, quiet_ms: int) -> AsyncIterator[Candidate]:
        after, looked = BEFORE_ALL, 0
        while looked < WALK_ITEMS_MAX and (page := await self._archives.oldest(after, PAGE_ITEMS, quiet_ms)):
            for one in page:
                if one.place > last and is_young(one):
                    return
                if one.free and one.owner and goes(one):
                    yield one
            after, looked = page[-1].place, looked + len(page)
