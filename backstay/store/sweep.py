"""Scripts by which time and people end things."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from backstay.core.callbacks import Kind
from backstay.core.decide import LATE_POLL_MS
from backstay.core.errors import ErrorCode
from backstay.core.ids import item_range
from backstay.core.models import Attempt
from backstay.core.outcomes import ANSWER_FLAWS
from backstay.core.states import ItemState, JobState, StopReason
from backstay.store.claim import widen_keys
from backstay.store.queries import Ask, Script
from backstay.store.settle import Move, count, ended_attempt, flaw_counts, flaw_late, write_attempts

CHUNK_ITEMS = 1_000
JOBS_MAX = 100
STATE_AT, FLAW_AT = 7, 8  # their places in the rows of all statements here that end items


class Swept(NamedTuple):
    """What one bounded pass ended, and whether another pass would find more."""

    items: int
    ended_jobs: list[tuple[int, JobState]]
    more: bool


def expire() -> Script[Swept]:
    """Fails items past their deadline, whatever they wait for."""
    waiting = yield Ask("expire_waiting", {"n": CHUNK_ITEMS})
    processing = yield Ask("expire_processing", {"n": CHUNK_ITEMS, "late_poll_ms": LATE_POLL_MS})
    moves = [*_moves(waiting, None), *_moves(processing, ItemState.PROCESSING)]
    yield from _tell([*waiting, *processing], "the deadline passed")
    ended = yield from count(moves)
    return Swept(len(moves), ended, more=len(waiting) == CHUNK_ITEMS or len(processing) == CHUNK_ITEMS)


def stop_overdue() -> Script[list[int]]:
    """Marks the jobs that ran into their own time limit; their items are ended by `end_stopped`."""
    rows = yield Ask("stop_overdue_jobs", {"n": JOBS_MAX})
    if rows:
        detail = "the job exceeded its maximum runtime"
        yield Ask("write_events", batch=[(f"job:{row[0]}", "timed_out", detail) for row in rows])
    return [row[0] for row in rows]


def move_late(poll_ms: int) -> Script[int]:
    """Hands over a chunk of each job whose handler has had its time; returns how many items changed hands."""
    moved = 0
    for job_id, handler, handler_then in (yield Ask("late_jobs", {"n": JOBS_MAX})):
        first, after = item_range(job_id)
        values = {"first": first, "after": after, "handler": handler, "handler_then": handler_then, "n": CHUNK_ITEMS}
        rows = yield Ask("move_items", values)
        yield from widen_keys(job_id, [row[1] for row in rows])
        moved += len(rows)
        yield Ask("poll_soon", {**values, "poll_ms": poll_ms})  # its tasks at the provider are to be cancelled there
    return moved


def stopping(after: int) -> Script[list[tuple[int, StopReason]]]:
    rows = yield Ask("stopping_jobs", {"n": JOBS_MAX, "after": after})
    return [(row[0], StopReason(row[1])) for row in rows]


def end_stopped(job_id: int, reason: StopReason, poll_ms: int) -> Script[Swept]:
    """Ends a chunk of a stopped job's items. A cancelled job's running items are left to their holders."""
    first, after = item_range(job_id)
    span = {"first": first, "after": after, "n": CHUNK_ITEMS, "job_id": job_id, "reason": reason.value}
    yield Ask("seal_stopped", {"job_id": job_id})
    if reason is StopReason.CANCEL:
        rows = yield Ask("end_queued", {**span, "state": "cancelled", "error_code": None})
        yield Ask("poll_soon", {**span, "poll_ms": poll_ms})
        kept = [row for row in rows if row[STATE_AT] == ItemState.FAILED]
        yield from write_attempts([_kept_attempt(row) for row in kept])
        yield from _show_answers(kept)
        moves = _moves(rows, None)
    else:
        rows = yield Ask("end_queued", {**span, "state": "failed", "error_code": "GW_TIMEOUT"})
        held = yield Ask("end_submitting", span)
        tasks = yield Ask("end_processing", {**span, "late_poll_ms": LATE_POLL_MS})
        moves = [*_moves(rows, None), *_moves(held, None), *_moves(tasks, ItemState.PROCESSING)]
        yield from _tell([*rows, *held, *tasks], "the job exceeded its maximum runtime")
    ended = yield from count(moves)
    if not moves:
        over = yield Ask("end_if_over", {"job_id": job_id})
        ended = [(row[0], JobState(row[1])) for row in over]
    return Swept(len(moves), ended, more=bool(moves) and not ended)


def _moves(rows: Sequence[Any], old: ItemState | None) -> list[Move]:
    """What was set aside for a call that nobody waits for any more may have been paid."""
    return [Move(row[1], old, row[STATE_AT], 0, row[6], 0, row[6], 0, 0, *flaw_counts(row[FLAW_AT])) for row in rows]


def _kept_attempt(row: Any) -> Attempt:
    """Of an item that a cancel does not end as cancelled: a call may have been done, or was answered."""
    if row[FLAW_AT] in ANSWER_FLAWS:
        return ended_attempt(row, ItemState.FAILED, ErrorCode.GW_4XX, "the job was cancelled before it was tried again")
    message = "outcome unknown: the job was cancelled, and a call may have been done before"
    return ended_attempt(row, ItemState.FAILED, ErrorCode.UNKNOWN, message)


def _show_answers(rows: Sequence[Any]) -> Script[None]:
    if answered := [(row[0], row[2]) for row in rows if row[FLAW_AT] in ANSWER_FLAWS]:
        yield Ask("show_answers", batch=answered)


def _tell(rows: Sequence[Any], message: str) -> Script[None]:
    if rows:
        yield from write_attempts([ended_attempt(row, ItemState.FAILED, "GW_TIMEOUT", message) for row in rows])
        yield from _show_answers(rows)
        had_come = yield Ask("mark_late", batch=[(row[0],) for row in rows])
        yield from flaw_late([item for item, kind in had_come if kind == Kind.SUCCEEDED])
