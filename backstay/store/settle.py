"""Scripts that settle claimed items: under their fence, with attempts, events and the counters of jobs, all or
nothing."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from backstay.core.callbacks import Callback, Kind, digest_of
from backstay.core.ids import job_of
from backstay.core.models import Act, Attempt, Settlement
from backstay.core.states import JOB_ENDED, ItemState, JobState
from backstay.store.job_counts import LargeJobs, Move, count
from backstay.store.outbox import hint_queued
from backstay.store.queries import FEW_ROWS_MAX, Ask, Load, Script, combine_records, record


@record
class FencedItem(NamedTuple):
    """An item, and the fence of its lease."""

    id: int
    fence: int


@record
class SettledItem(NamedTuple):
    """The part of a settlement that is different for every item."""

    id: int
    fence: int
    delay_ms: int | None
    provider_task_id: str | None


record(Attempt)
combine_records("SettledAttempt", ("", SettledItem), ("attempt_", Attempt))
_NO_ATTEMPT = (None,) * len(Attempt._fields)

# The fields that settlements of one statement have in common: all but their own ones, and those that are written apart.
_APART = ("attempt", "act", "detail", "freed", "unknown", "payer", "late_result", "moves")
_COMMON = tuple(name for name in Settlement._fields if name not in (*SettledItem._fields, *_APART))
_common_of = attrgetter(*_COMMON)
_own_of = attrgetter(*SettledItem._fields)
OwnFields = tuple[int, int, int | None, str | None]  # of a settlement: those of SettledItem


class Settled(NamedTuple):
    applied: list[Settlement]
    lost: list[Settlement]  # the lease was lost: another process decides about these items
    ended_jobs: list[tuple[int, JobState]]


def settle(settlements: Sequence[Settlement], large: LargeJobs | None = None) -> Script[Settled]:
    won: list[FencedItem] = []
    for common, rows in _group(settlements).items():
        values = dict(zip(_COMMON, common, strict=True))
        if any(delay_ms is not None or task is not None for _, _, delay_ms, task in rows):
            won += yield Ask("settle_items", values, rows)
        else:
            won += yield Ask("settle_ended", values, [(item, fence) for item, fence, _, _ in rows])
    applied, lost = _split_by_lease(settlements, won)
    yield from write_attempts([s.attempt for s in applied if s.attempt is not None])
    if moved := [s.id for s in applied if s.handler_next is not None]:
        yield Ask("lock_moved", batch=[(job_id,) for job_id in sorted({job_of(s.id) for s in applied})])
        yield from widen_moved((yield Ask("join_queue", batch=[(item, turn) for turn, item in enumerate(moved)])))
    late_moved = yield from _move_late([s for s in applied if s.state == ItemState.QUEUED and s.handler_next is None])
    acts = [(f"item:{s.id}", s.act, s.detail) for s in applied if s.act is not None]
    if acts:
        yield Ask("write_events", batch=acts)
    if late := [(s.id,) for s in applied if s.timed_out]:
        yield Ask("mark_late", batch=late)
    yield from add_late([(s.id, s.fence, s.late_result) for s in applied if s.late_result is not None])
    yield from hint_queued([s.id for s in applied if s.state == ItemState.QUEUED])
    # Whoever has locked rows of jobs must not wait for the counts of one.
    ended = yield from count(_moves(applied), None if moved or late_moved else large)
    return Settled(applied, lost, ended)


def settle_few(settlements: Sequence[Settlement], large: LargeJobs) -> Script[Settled]:
    """The same for a few items with the same outcome, in one statement, where the database can do that."""
    [common] = _group(settlements)
    values = dict(zip(_COMMON, common, strict=True))
    jobs = Counter(job_of(s.id) for s in settlements)
    apart = all(job in large for job in jobs)
    name = "settle_few_apart" if apart else "settle_few"
    rows = yield Ask(name, values, [(*_own_of(s), *(s.attempt or _NO_ATTEMPT)) for s in settlements])
    applied, lost = _split_by_lease(settlements, [FencedItem(row["id"], row["fence"]) for row in rows])
    if apart:
        large.note_apart(jobs)
        return Settled(applied, lost, [])
    counted = {row["job_id"]: (row["items_left"], JobState(row["state"])) for row in rows if row["state"] is not None}
    large.note_left((job, *found) for job, found in counted.items())
    return Settled(applied, lost, [(job, state) for job, (_, state) in counted.items() if state in JOB_ENDED])


def _split_by_lease(
    settlements: Sequence[Settlement], won: Sequence[FencedItem]
) -> tuple[list[Settlement], list[Settlement]]:
    """The applied settlements, and those whose lease was lost."""
    if len(won) == len(settlements):
        return list(settlements), []
    kept = set(won)  # by fence too: the old and the new holder of an item may settle together
    mine = [(s, FencedItem(s.id, s.fence) in kept) for s in settlements]
    return [s for s, is_kept in mine if is_kept], [s for s, is_kept in mine if not is_kept]


def are_few(settlements: Sequence[Settlement], large: LargeJobs) -> bool:
    """Whether one statement can settle them: few, alike, and with nothing else to store or to add up."""
    kinds = set(map(_common_of, settlements))
    if len(kinds) != 1 or len(settlements) > FEW_ROWS_MAX or any(map(_has_more, settlements)):
        return False
    return not any(large.was_large(job_of(s.id)) for s in settlements)


def _has_more(settlement: Settlement) -> bool:
    """Whether it has a rare act, money, a passed deadline, a flaw or a hint besides its state."""
    attempt = settlement.attempt
    used = attempt is not None and (attempt.input_tokens is not None or attempt.cost_micros is not None)
    rare = settlement.act is not None or settlement.freed != 0 or settlement.timed_out != 0  # or a late result
    return rare or used or settlement.state == ItemState.QUEUED or settlement.flaw is not None


def _group(settlements: Sequence[Settlement]) -> dict[tuple[object, ...], list[OwnFields]]:
    """Settlements grouped by their common fields, so that a group is one short statement."""
    groups: dict[tuple[object, ...], list[OwnFields]] = {}
    for s in settlements:
        groups.setdefault(_common_of(s), []).append(_own_of(s))
    return groups


@record
class LateJob(NamedTuple):
    """A job whose handler's time is over: its waiting items go to the next handler."""

    id: int
    handler: str
    handler_then: str


def moves_between_handlers(job: LateJob) -> Script[dict[str, str]]:
    """For each handler of a late job, the handler that gets its items. A job with several providers has two endpoints
    for each: the specs of both handlers list theirs in the same order."""
    endpoints = yield Ask("all_endpoints")
    names, specs = {row["spec"]: row["name"] for row in endpoints}, {row["name"]: row["spec"] for row in endpoints}
    before, after = (
        [first, *(names.get(spec, "") for spec in json.loads(specs.get(first, "{}")).get("beside", ()))]
        for first in (job.handler, job.handler_then)
    )
    return dict(zip(before, after, strict=False))


def _move_late(queued: Sequence[Settlement]) -> Script[bool]:
    """Items that come back after their job's `move_at`, or that move at once, go directly to the next handler. Returns
    whether there were such jobs."""
    jobs = sorted({job_of(s.id) for s in queued})
    late: list[LateJob] = (yield Ask("late_among", batch=[(job_id,) for job_id in jobs])) if jobs else []
    all_of = {job.id for job in late}
    if early := sorted({job_of(s.id) for s in queued if s.moves} - all_of):
        late += yield Ask("jobs_with_next", batch=[(job_id,) for job_id in early])
    for job in late:
        hands = yield from moves_between_handlers(job)
        mine = [s.id for s in queued if job_of(s.id) == job.id and (s.moves or job.id in all_of)]
        moved = yield Ask("hand_over", batch=[(item, *change) for item in mine for change in hands.items()])
        yield from widen_moved((yield Ask("join_queue", batch=[(row["id"], turn) for turn, row in enumerate(moved)])))
    return bool(late)


def widen_keys(job_id: int, keys: Sequence[int]) -> Script[None]:
    """Widens the key range of a job whose items got new places: a worker that runs one job looks only in that range."""
    if keys:
        yield Ask("widen_keys", {"job_id": job_id, "low": min(keys), "high": max(keys)})


def widen_moved(moved: Sequence[Mapping[str, int]]) -> Script[None]:
    """The same for items of several jobs, given by job_id and order_key."""
    keys: dict[int, list[int]] = {}
    for row in moved:
        keys.setdefault(row["job_id"], []).append(row["order_key"])
    for job_id in sorted(keys):
        yield from widen_keys(job_id, keys[job_id])


def write_attempts(attempts: Sequence[Attempt]) -> Script[None]:
    if attempts:
        yield Load("attempts", Attempt._fields, attempts)


def add_late(results: Sequence[tuple[int, int, str]]) -> Script[list[int]]:
    """For each: the item, the fence of its call, and the result as JSON text."""
    rows = []
    for item_id, fence, result in results:
        callback = Callback(Kind.SUCCEEDED, f'{{"status":"succeeded","result":{result}}}')
        rows.append((item_id, fence, callback.body, digest_of(callback, fence)))
    found = (yield Ask("add_late", batch=rows)) if rows else []
    return [row["item_id"] for row in found]


def set_late_flaw(items: Sequence[int]) -> Script[None]:
    """Stores the late results of these items."""
    if items:
        yield Ask("set_late_flaw", batch=[(item,) for item in items])


def _moves(settlements: Iterable[Settlement]) -> Iterable[Move]:
    for s in settlements:
        attempt, repeats = s.attempt, int(s.act is Act.REPEAT)
        if attempt is not None and (attempt.input_tokens is not None or attempt.cost_micros is not None):
            used = (attempt.cost_micros or 0, s.unknown, attempt.input_tokens or 0, attempt.output_tokens or 0)
            yield Move(job_of(s.id), s.was, s.state, repeats, s.freed, *used, s.flaw, s.payer)
        elif s.state != s.was or repeats:
            yield Move(job_of(s.id), s.was, s.state, repeats, s.freed, 0, s.unknown, 0, 0, s.flaw, s.payer)
