"""Sweeps: end items and jobs because of time limits or people, in bounded passes."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from backstay.core.callbacks import Kind
from backstay.core.decide import LATE_POLL_MS
from backstay.core.errors import ErrorCode
from backstay.core.ids import item_range
from backstay.core.models import ANSWERED, Act, Attempt, AttemptOutcome
from backstay.core.states import ItemState, JobState, StopReason
from backstay.store.databases.database import TIME_HEAD_SECONDS, Database, Front, reads, writes
from backstay.store.job_counts import Move, count
from backstay.store.queries import Ask, Script, record
from backstay.store.settle import (
    FencedItem,
    LateJob,
    moves_between_handlers,
    set_late_flaw,
    widen_keys,
    widen_moved,
    write_attempts,
)

CHUNK_ITEMS = 1_000
JOBS_MAX = 100
KEY_MAX = (1 << 63) - 1


@record
class EndedItem(NamedTuple):
    """An item that a time limit or a person ended."""

    id: int
    job_id: int
    handler: str
    fence: int
    last_attempt_at: int | None
    calls: int
    now: int
    reserved_micros: int
    state: str
    flaw: str | None

    def attempt(self, code: str | None, message: str) -> Attempt:
        """The attempt that records why the item ended without a worker."""
        started_at = self.last_attempt_at or self.now
        end = (AttemptOutcome.FAILED, started_at, self.now, code, message)
        return Attempt(self.id, self.fence, self.calls, *end, None, None, None, None, None)


class Relief(NamedTuple):
    """Waiting items of a handler go to its fallback, which makes the same requests elsewhere."""

    handler: str
    handler_next: str
    detail: str  # why, for the timelines
    time_shares: int = 0  # only items whose first share of the time is over, of this number of shares; 0: all items
    only_job: int | None = None  # only items of this job


class Swept(NamedTuple):
    """The items and jobs that one bounded pass ended, and whether another pass would find more."""

    items: int
    ended_jobs: list[tuple[int, JobState]]
    more: bool


class Sweeps:
    def __init__(self, database: Database) -> None:
        self._db = database
        self._waiting, self._processing = Front(database, TIME_HEAD_SECONDS), Front(database, TIME_HEAD_SECONDS)

    @writes
    def expire(self) -> Script[Swept]:
        """Fails items past their deadline, in any state."""
        waiting = yield from self._waiting.look_back(partial(_ask_expired, "expire_waiting"), CHUNK_ITEMS)
        processing = yield from self._processing.look_back(partial(_ask_expired, "expire_processing"), CHUNK_ITEMS)
        moves = [*_moves(waiting, None), *_moves(processing, ItemState.PROCESSING)]
        yield from _write_timeouts([*waiting, *processing], "the deadline passed")
        ended = yield from count(moves)
        return Swept(len(moves), ended, more=len(waiting) == CHUNK_ITEMS or len(processing) == CHUNK_ITEMS)

    @writes
    def stop_overdue(self) -> Script[list[int]]:
        """Marks the jobs that exceeded their own time limit; their items are ended by `end_stopped`."""
        rows = yield Ask("stop_overdue_jobs", {"n": JOBS_MAX})
        if rows:
            detail = "the job exceeded its maximum runtime"
            yield Ask("write_events", batch=[(f"job:{row['id']}", "timed_out", detail) for row in rows])
        return [row["id"] for row in rows]

    @writes
    def move_late(self, poll_ms: int = 0) -> Script[int]:
        """Moves a chunk of each job whose handler's time is over to the next handler; returns how many items were
        moved."""
        moved = 0
        jobs: list[LateJob] = yield Ask("late_jobs", {"n": JOBS_MAX})
        for job in jobs:
            first, after = item_range(job.id)
            values = {"first": first, "after": after, "n": CHUNK_ITEMS}
            for handler, handler_then in (yield from moves_between_handlers(job)).items():
                rows = yield Ask("move_items", {**values, "handler": handler, "handler_then": handler_then})
                yield from widen_keys(job.id, [row["order_key"] for row in rows])
                moved += len(rows)
            # its tasks at the provider must be cancelled there
            yield Ask("poll_soon", {**values, "poll_ms": poll_ms})
        return moved

    @writes
    def move_on(self, move: Relief, n: int) -> Script[int]:
        """Moves the next ready items of a handler to its fallback, until the fallback has `n` ready items; returns how
        many were moved."""
        [there] = yield Ask("waiting_up_to", {"handler": move.handler_next, "n": n})
        left = n - there["items"]
        if left <= 0:
            return 0
        span = {"low": 0, "high": KEY_MAX, "first": 0, "after": KEY_MAX}
        if move.only_job is not None:
            [edges] = yield Ask("job_edges", {"job_id": move.only_job})
            first, after = item_range(move.only_job)
            span = {"low": edges["low"], "high": edges["high"], "first": first, "after": after}
        values = {"handler": move.handler, "handler_next": move.handler_next, "time_shares": max(move.time_shares, 1)}
        rows = yield Ask("move_on", {**values, **span, "n": left})
        if rows:
            yield Ask("write_events", batch=[(f"item:{row['id']}", Act.FALLBACK, move.detail) for row in rows])
            yield Ask("lock_moved", batch=[(job_id,) for job_id in sorted({row["job_id"] for row in rows})])
            yield from widen_moved(rows)
        return len(rows)

    @reads
    def stopped_jobs(self, after: int = 0) -> Script[list[tuple[int, StopReason]]]:
        """Jobs that were stopped and still have items to end, a page behind the cursor."""
        rows = yield Ask("stopping_jobs", {"n": JOBS_MAX, "after": after})
        return [(row["id"], StopReason(row["stop_reason"])) for row in rows]

    @writes
    def end_stopped(self, job_id: int, reason: StopReason, poll_ms: int = 0) -> Script[Swept]:
        """Ends a chunk of a stopped job's items. A cancelled job's running items are left to their
        holders; tasks that are not polled within `poll_ms` are polled now."""
        first, after = item_range(job_id)
        span = {"first": first, "after": after, "n": CHUNK_ITEMS, "job_id": job_id, "reason": reason.value}
        yield Ask("seal_stopped", {"job_id": job_id})
        if reason is StopReason.CANCEL:
            rows = yield Ask("end_queued", {**span, "state": "cancelled", "error_code": None})
            yield Ask("poll_soon", {**span, "poll_ms": poll_ms})
            kept = [item for item in rows if item.state == ItemState.FAILED]
            yield from write_attempts([_kept_attempt(item) for item in kept])
            yield from _show_answers(kept)
            moves = _moves(rows, None)
        else:
            rows = yield Ask("end_queued", {**span, "state": "failed", "error_code": "GW_TIMEOUT"})
            held = yield Ask("end_submitting", span)
            tasks = yield Ask("end_processing", {**span, "late_poll_ms": LATE_POLL_MS})
            moves = [*_moves(rows, None), *_moves(held, None), *_moves(tasks, ItemState.PROCESSING)]
            yield from _write_timeouts([*rows, *held, *tasks], "the job exceeded its maximum runtime")
        ended = yield from count(moves)
        if not moves:
            over = yield Ask("end_if_over", {"job_id": job_id})
            ended = [(row["id"], JobState(row["state"])) for row in over]
        return Swept(len(moves), ended, more=bool(moves) and not ended)


def _ask_expired(name: str, back_ms: int) -> Ask:
    return Ask(name, {"n": CHUNK_ITEMS, "late_poll_ms": LATE_POLL_MS, "back_ms": back_ms})


def _moves(items: Sequence[EndedItem], old: ItemState | None) -> list[Move]:
    """The changes of the jobs' counters. Money that was set aside for a call may have been paid."""
    return [
        Move(
            each.job_id,
            old,
            each.state,
            0,
            each.reserved_micros,
            0,
            each.reserved_micros,
            0,
            0,
            each.flaw,
            each.handler,
        )
        for each in items
    ]


def _kept_attempt(item: EndedItem) -> Attempt:
    """The attempt of an item that a cancel does not end as cancelled: a call may have been processed, or was
    answered."""
    if item.flaw in ANSWERED:
        return item.attempt(ErrorCode.GW_4XX, "the job was cancelled before it was tried again")
    return item.attempt(
        ErrorCode.UNKNOWN, "outcome unknown: the job was cancelled, and an earlier call may have been processed"
    )


def _show_answers(items: Sequence[EndedItem]) -> Script[None]:
    if answered := [FencedItem(item.id, item.fence) for item in items if item.flaw in ANSWERED]:
        yield Ask("show_answers", batch=answered)


def _write_timeouts(items: Sequence[EndedItem], message: str) -> Script[None]:
    if items:
        yield from write_attempts([item.attempt(ErrorCode.GW_TIMEOUT, message) for item in items])
        yield from _show_answers(items)
        late = yield Ask("mark_late", batch=[(item.id,) for item in items])
        yield from set_late_flaw([row["item_id"] for row in late if row["kind"] == Kind.SUCCEEDED])
