"""The counters of jobs: how many items are in which state, and what they cost.

A job's counters change in the transaction of its items. They are columns of the job's row, so many workers that settle
items of one job would wait for each other there. So on PostgreSQL, while a job has many items left and its settlements
move no money, they only add rows to `job_counts`. One process at a time adds these up, about every half second, and
ends the job if that was all. Near the end of a job its settlements add up what there is, and end it themselves. Views
of jobs include the rows that are not added up yet.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

from backstay.core.models import ANSWER_FLAWS
from backstay.core.states import JOB_ENDED, TERMINAL, ItemState, JobState
from backstay.store.budgets import Payer, book
from backstay.store.databases.database import Database
from backstay.store.queries import Ask, Script, fields_of, one, record

SUM_MAX = 10**16  # of a job, in micro-dollars or tokens: ten billion dollars; hundreds of such sums still fit
LARGE_ITEMS: Final = 5_000  # a job with at least so many items left is large
JOBS_REMEMBERED_MAX: Final = 1_000
QUIET_MS: Final = 400  # counts of a job are not added up again within this time
FORGOTTEN_MS: Final = 3_000  # counts of a process that died are added up by the others
JOBS_MAX: Final = 100
_COUNTED = frozenset({ItemState.PROCESSING, *TERMINAL})  # the states that a job counts


class Move(NamedTuple):
    """The change of one item in its job's counters."""

    job_id: int
    old: str | None
    new: str | None
    repeats: int = 0
    freed: int = 0
    spent: int = 0
    unknown: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    flaw: str | None = None
    payer: str = ""  # the handler whose call it is about; empty if it moves no money


@record
@dataclass(slots=True)
class JobCounts:
    """The change of many items together in their job's counters."""

    job_id: int
    processing: int = 0
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    cancelled: int = 0
    repeats: int = 0
    freed: int = 0
    spent: int = 0
    unknown: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    truncated: int = 0
    refused: int = 0
    filtered: int = 0
    unfinished: int = 0

    def add(self, move: Move, times: int) -> None:
        if move.old == ItemState.PROCESSING:
            self.processing -= times
        if move.new in _COUNTED:
            self._raise(move.new, times)
        for name in _AMOUNTS:
            if amount := getattr(move, name):
                self._raise(name, amount * times)
        if move.flaw in ANSWER_FLAWS and move.new in TERMINAL:
            self._raise(move.flaw, times)

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.skipped + self.cancelled

    @property
    def moves_money(self) -> bool:
        return self.freed != 0 or self.spent != 0 or self.unknown != 0

    def _raise(self, name: str, amount: int) -> None:
        setattr(self, name, min(getattr(self, name) + amount, SUM_MAX))


@record
@dataclass(slots=True)
class ApartCounts:
    """The counts that may be written apart: all but money."""

    processing: int
    succeeded: int
    failed: int
    skipped: int
    cancelled: int
    repeats: int
    input_tokens: int
    output_tokens: int
    truncated: int
    refused: int
    filtered: int
    unfinished: int


_AMOUNTS = tuple(name for name in Move._fields if name in fields_of(JobCounts) and name != "job_id")
_count_row = attrgetter(*fields_of(JobCounts))


class LargeJobs:
    """The jobs whose settlements are counted apart. It is only a hint, in the memory of this process."""

    def __init__(self, items_min: int = LARGE_ITEMS) -> None:
        self.items_min = items_min
        self._left: OrderedDict[int, int] = OrderedDict()  # of jobs that were large: how many items are left, at least
        self._written: set[int] = set()  # jobs with counts of this process that it has not added up

    def __contains__(self, job_id: int) -> bool:
        return self._left.get(job_id, 0) >= self.items_min

    def was_large(self, job_id: int) -> bool:
        """Whether it may have counts apart, although it is not large any more."""
        return 0 <= self._left.get(job_id, -1) < self.items_min

    def note_left(self, jobs: Iterable[tuple[int, int, JobState]]) -> None:
        """Remembers the items that jobs have left, by their rows."""
        for job_id, left, state in jobs:
            if state in JOB_ENDED:
                self._left.pop(job_id, None)
            elif left >= self.items_min or job_id in self._left:
                self._left[job_id] = max(left, 0)
                if len(self._left) > JOBS_REMEMBERED_MAX:
                    self._left.popitem(last=False)

    def note_claimed(self, jobs: Iterable[tuple[int, int]]) -> None:
        """The same for jobs of claimed items. Their rows may lag behind, so what is remembered already is better."""
        self.note_left((job_id, left, JobState.RUNNING) for job_id, left in jobs if job_id not in self._left)

    def note_apart(self, items: Mapping[int, int]) -> None:
        """Remembers that so many items of each job were counted apart."""
        for job_id, n in items.items():
            self._written.add(job_id)
            if job_id in self._left:
                self._left[job_id] = max(self._left[job_id] - n, 0)

    def take_written(self) -> set[int]:
        written, self._written = self._written, set()
        return written

    def give_back(self, jobs: Iterable[int]) -> None:
        self._written.update(jobs)


def count_flaws(flaws: Iterable[str | None]) -> dict[str, int]:
    """How many items have each of the flaws that a job counts, in order."""
    found = Counter(flaws)
    return {flaw.value: found[flaw] for flaw in ANSWER_FLAWS}


def count(moves: Iterable[Move], large: LargeJobs | None = None) -> Script[list[tuple[int, JobState]]]:
    """Updates the counters of all these jobs; returns the jobs that ended. `large`: those of large jobs may be written
    apart. Locks of counts come before locks of rows, and both in the order of the jobs, against deadlocks."""
    sums: dict[int, JobCounts] = {}
    paid: dict[tuple[int, str], tuple[int, int]] = {}  # by job and handler: money set aside, and spent or perhaps spent
    for move, times in Counter(moves).items():
        sums.setdefault(move.job_id, JobCounts(move.job_id)).add(move, times)
        reserved, used = paid.get((move.job_id, move.payer), (0, 0))
        used += (move.spent + move.unknown) * times
        paid[move.job_id, move.payer] = reserved - move.freed * times, used
    changed = [sums[job_id] for job_id in sorted(sums) if sums[job_id] != JobCounts(job_id)]
    ended: list[tuple[int, JobState]] = []
    if large is not None:
        changed, ended = yield from _count_apart(changed, large)
    if not changed:
        return ended
    rows = yield Ask("count_items", {"sum_max": SUM_MAX}, list(map(_count_row, changed)))
    owners = {row["id"]: row["owner"] for row in rows}
    # A job whose counters stay the same has no row here, and no money that moves.
    moved = [(Payer(owners[job], payer), money) for (job, payer), money in paid.items() if job in owners]
    yield from book(moved)
    counted = [(row["id"], row["items_left"], JobState(row["state"])) for row in rows]
    if large is not None:
        large.note_left(counted)
    return ended + [(job_id, state) for job_id, _, state in counted if state in JOB_ENDED]


def _count_apart(
    changed: list[JobCounts], large: LargeJobs
) -> Script[tuple[list[JobCounts], list[tuple[int, JobState]]]]:
    """Writes counts of large jobs apart, and adds up those of jobs that are near their end. Returns the counts that are
    still to be written into the rows of their jobs, and the jobs that ended."""
    apart = [counts for counts in changed if counts.job_id in large and not counts.moves_money]
    if not apart and not any(large.was_large(counts.job_id) for counts in changed):
        return changed, []
    rest = [counts for counts in changed if counts not in apart]
    over = [counts.job_id for counts in rest if large.was_large(counts.job_id)]
    if over:
        yield Ask(
            "lock_counts", batch=sorted([*((job_id, 1) for job_id in over), *((each.job_id, 0) for each in apart)])
        )
    if apart:
        yield Ask("count_apart", batch=list(map(_count_row, apart)))
        large.note_apart({counts.job_id: counts.ended for counts in apart})
    return rest, (yield from _add_up(over, large)) if over else []


class Counters:
    """The counts of large jobs that were written apart."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self.large = LargeJobs()

    async def add_up(self, at_once: bool = False) -> list[tuple[int, JobState]]:
        """Adds up the counts that this process has written, and returns the jobs that ended. What another process has
        just added up waits for the next time, unless it must be done `at_once`."""
        return await self._each(sorted(self.large.take_written()), 0 if at_once else QUIET_MS)

    async def add_up_forgotten(self) -> list[tuple[int, JobState]]:
        """The same for counts of processes that died."""
        if not self._db.dialect.chained:
            return []
        values = {"items_min": self.large.items_min, "quiet_ms": FORGOTTEN_MS, "n": JOBS_MAX}
        rows = await self._db.read(one("jobs_counted_apart", values))
        return await self._each([row["id"] for row in rows], FORGOTTEN_MS)

    async def _each(self, jobs: list[int], quiet_ms: int) -> list[tuple[int, JobState]]:
        """A transaction for each job: whoever holds the lock of one must not wait for another."""
        ended: list[tuple[int, JobState]] = []
        for at, job_id in enumerate(jobs):
            try:
                found = await self._db.write(partial(_add_up_alone, job_id, quiet_ms, self.large))
            except BaseException:
                self.large.give_back(jobs[at:])
                raise
            if found is None:
                self.large.give_back([job_id])
            else:
                ended += found
        return ended


def _add_up_alone(job_id: int, quiet_ms: int, large: LargeJobs) -> Script[list[tuple[int, JobState]] | None]:
    """None: another process does it, or has just done it."""
    if not (yield Ask("may_add_up", {"job_id": job_id, "quiet_ms": quiet_ms})):
        return None
    yield Ask("lock_counts", batch=[(job_id, 1)])
    return (yield from _add_up([job_id], large))


def _add_up(jobs: list[int], large: LargeJobs) -> Script[list[tuple[int, JobState]]]:
    """Adds the counts that were written apart to the rows of jobs. Their locks are held."""
    rows = yield Ask("add_up", {"sum_max": SUM_MAX}, [(job_id,) for job_id in jobs])
    found = [(row["id"], row["items_left"], JobState(row["state"])) for row in rows]
    large.note_left(found)
    return [(job_id, state) for job_id, _, state in found if state in JOB_ENDED]
