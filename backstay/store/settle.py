"""Scripts that end a claim: the fenced settlement, its attempts, its events and its jobs' counters, all or nothing."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from backstay.core.callbacks import Callback, Kind, digest_of
from backstay.core.ids import job_of
from backstay.core.models import Attempt, Settlement
from backstay.core.outcomes import ANSWER_FLAWS, Flaw
from backstay.core.states import JOB_ENDED, TERMINAL, ItemState, JobState
from backstay.store.outbox import hint_queued
from backstay.store.queries import FEW_ROWS_MAX, Ask, Load, Row, Script

_SHARED_FROM = Settlement._fields.index("was")
_SHARED_TO = Settlement._fields.index("flaw") + 1
_SHARED = Settlement._fields[_SHARED_FROM:_SHARED_TO]
_NO_FLAW = (0, 0, 0)
_FLAW_COUNTS: dict[str, tuple[int, int, int]] = {
    Flaw.TRUNCATED: (1, 0, 0),
    Flaw.REFUSED: (0, 1, 0),
    Flaw.FILTERED: (0, 0, 1),
}
_NO_ATTEMPT = (None,) * len(Attempt._fields)
SUM_MAX = 10**16  # of a job, in micro-dollars or tokens: ten billion dollars; hundreds of such sums can be added up
_COUNTED = ("processing", "succeeded", "failed", "skipped", "cancelled")


class Settled(NamedTuple):
    applied: list[Settlement]
    lost: list[Settlement]  # the lease was gone: someone else decides about these items
    ended_jobs: list[tuple[int, JobState]]


def settle(settlements: Sequence[Settlement]) -> Script[Settled]:
    won: list[Row] = []
    for shared, rows in _alike(settlements).items():
        won += yield Ask("settle_items", dict(zip(_SHARED, shared, strict=True)), rows)
    if len(won) == len(settlements):
        applied, lost = list(settlements), []
    else:
        kept = {(row[0], row[1]) for row in won}  # by fence too: an item's old and new holder may settle together
        applied = [s for s in settlements if s[:2] in kept]
        lost = [s for s in settlements if s[:2] not in kept]
    yield from write_attempts([s.attempt for s in applied if s.attempt is not None])
    acts = [(f"item:{s.id}", s.act, s.detail) for s in applied if s.act is not None]
    if acts:
        yield Ask("write_events", batch=acts)
    if late := [(s.id,) for s in applied if s.timed_out]:
        yield Ask("mark_late", batch=late)
    yield from add_late([(s.id, s.fence, s.late_result) for s in applied if s.late_result is not None])
    yield from hint_queued([s.id for s in applied if s.state == ItemState.QUEUED])
    ended = yield from count(_moves(applied))
    return Settled(applied, lost, ended)


def settle_few(settlements: Sequence[Settlement]) -> Script[Settled]:
    """The same for a few items of one fate, in one statement, where the database can do that."""
    [(shared, _)] = _alike(settlements).items()
    rows = yield Ask(
        "settle_few",
        dict(zip(_SHARED, shared, strict=True)),
        [(*s[:_SHARED_FROM], *(s.attempt or _NO_ATTEMPT)) for s in settlements],
    )
    kept = {(row[0], row[1]) for row in rows}
    ended = {row[2]: JobState(row[3]) for row in rows if row[3] in JOB_ENDED}
    return Settled(
        [s for s in settlements if s[:2] in kept],
        [s for s in settlements if s[:2] not in kept],
        list(ended.items()),
    )


def are_few(settlements: Sequence[Settlement]) -> bool:
    """Whether one statement can settle them: few, alike, and with nothing more to be told."""
    fates = {s[_SHARED_FROM:_SHARED_TO] for s in settlements}
    return len(fates) == 1 and len(settlements) <= FEW_ROWS_MAX and not any(map(_tells_more, settlements))


def _tells_more(settlement: Settlement) -> bool:
    """Whether it has a rare act, money, a passed deadline, a flaw or a hint to tell besides its state."""
    attempt = settlement.attempt
    used = attempt is not None and (attempt.input_tokens is not None or attempt.cost_micros is not None)
    rare = settlement.act is not None or settlement.freed != 0 or settlement.timed_out != 0  # or what came too late
    return rare or used or settlement.state == ItemState.QUEUED or settlement.flaw is not None


def _alike(settlements: Sequence[Settlement]) -> dict[tuple[object, ...], list[tuple[object, ...]]]:
    """Settlements grouped by what they have in common, so that a group is one short statement."""
    groups: dict[tuple[object, ...], list[tuple[object, ...]]] = {}
    for s in settlements:
        groups.setdefault(s[_SHARED_FROM:_SHARED_TO], []).append(s[:_SHARED_FROM])
    return groups


def write_attempts(attempts: Sequence[Attempt]) -> Script[None]:
    if attempts:
        yield Load("attempts", Attempt._fields, attempts)


def add_late(results: Sequence[tuple[int, int, str]]) -> Script[list[int]]:
    """Of each: the item, the fence of its call, and the result as JSON text."""
    rows = []
    for item_id, fence, result in results:
        callback = Callback(Kind.SUCCEEDED, f'{{"status":"succeeded","result":{result}}}')
        rows.append((item_id, fence, callback.body, digest_of(callback, fence)))
    found = (yield Ask("add_late", batch=rows)) if rows else []
    return [row[0] for row in found]


def flaw_late(items: Sequence[int]) -> Script[None]:
    """The results of these items have come, if too late."""
    if items:
        yield Ask("flaw_late", batch=[(item,) for item in items])


class Move(NamedTuple):
    """What one item changes in its job's counters."""

    job_id: int
    old: str | None
    new: str | None
    repeats: int = 0
    freed: int = 0
    spent: int = 0
    unknown: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    truncated: int = 0
    refused: int = 0
    filtered: int = 0


def _moves(settlements: Iterable[Settlement]) -> Iterable[Move]:
    for s in settlements:
        attempt = s.attempt
        flaws = _NO_FLAW if s.flaw is None or s.state not in TERMINAL else flaw_counts(s.flaw)
        if attempt is not None and (attempt.input_tokens is not None or attempt.cost_micros is not None):
            used = (attempt.cost_micros or 0, s.unknown, attempt.input_tokens or 0, attempt.output_tokens or 0)
            yield Move(job_of(s.id), s.was, s.state, int(s.act == "repeat"), s.freed, *used, *flaws)
        elif s.state != s.was or s.act == "repeat":
            yield Move(job_of(s.id), s.was, s.state, int(s.act == "repeat"), s.freed, 0, s.unknown, 0, 0, *flaws)


def flaw_counts(flaw: str | None) -> tuple[int, int, int]:
    """How many truncated, refused and filtered answers an item with such a flaw is."""
    return _NO_FLAW if flaw is None else _FLAW_COUNTS.get(flaw, _NO_FLAW)


def count_flaws(flaws: Iterable[str | None]) -> dict[str, int]:
    """How many items have each of the flaws that a job counts."""
    found = Counter(flaws)
    return {flaw.value: found[flaw] for flaw in ANSWER_FLAWS}


def count(moves: Iterable[Move]) -> Script[list[tuple[int, JobState]]]:
    """Moves the counters of all jobs concerned; returns the jobs that ended by it."""
    sums: dict[int, list[int]] = {}
    for job_id, old, new, *amounts in moves:
        row = sums.get(job_id)
        if row is None:
            row = sums[job_id] = [0] * (len(_COUNTED) + len(amounts))
        if old == ItemState.PROCESSING:
            row[0] -= 1
        if new in _COUNTED:
            row[_COUNTED.index(new)] += 1
        if any(amounts):
            for place, amount in enumerate(amounts, start=len(_COUNTED)):
                row[place] = min(row[place] + amount, SUM_MAX)
    changed = sorted((job_id, *row) for job_id, row in sums.items() if any(row))
    if not changed:
        return []
    rows = yield Ask("count_items", {"sum_max": SUM_MAX}, changed)
    return [(row[0], JobState(row[1])) for row in rows if row[1] in JOB_ENDED]


def ended_attempt(row: Sequence[int], state: str, code: str | None, message: str) -> Attempt:
    """The attempt that tells why time, not a worker, ended an item, from a row of the sweep."""
    item, _, fence, last_attempt_at, calls, now, *_ = row
    return Attempt(item, fence, calls, state, last_attempt_at or now, now, code, message, *[None] * 5)


assert set(_COUNTED) == {ItemState.PROCESSING, *TERMINAL}
