"""Sweeps: end items and jobs because of time limits or people, in bounded passes."""

from collections.abc import Sequence
from typing import NamedTuple

from backstay.core.callbacks import Kind
from backstay.core.decide import LATE_POLL_MS
from backstay.core.errors import ErrorCode
from backstay.core.ids import item_range
from backstay.core.models import Attempt
from backstay.core.outcomes import ANSWER_FLAWS
from backstay.core.states import ItemState, JobState, StopReason
from backstay.store.databases.database import Database, reads, writes
from backstay.store.items import widen_keys
from backstay.store.queries import Ask, Script, record
from backstay.store.settle import Held, Move, count, flaw_late, write_attempts

CHUNK_ITEMS = 1_000
JOBS_MAX = 100


@record
class EndedItem(NamedTuple):
    """An item that a time limit or a person ended."""

    id: int
    job_id: int
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
        told = (ItemState.FAILED, started_at, self.now, code, message)
        return Attempt(self.id, self.fence, self.calls, *told, None, None, None, None, None)


@record
class LateJob(NamedTuple):
    """A job whose handler's time is over."""

    id: int
    handler: str
    handler_then: str


class Swept(NamedTuple):
    """What one bounded pass ended, and whether another pass would find more."""

    items: int
    ended_jobs: list[tuple[int, JobState]]
    more: bool


class Sweeps:
    def __init__(self, database: Database) -> None:
        self._db = database

    @writes
    def expire(self) -> Script[Swept]:
        """Fails items past their deadline, in any state."""
        waiting = yield Ask("expire_waiting", {"n": CHUNK_ITEMS})
        processing = yield Ask("expire_processing", {"n": CHUNK_ITEMS, "late_poll_ms": LATE_POLL_MS})
        moves = [*_moves(waiting, None), *_moves(processing, ItemState.PROCESSING)]
        yield from _tell([*waiting, *processing], "the deadline passed")
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
            hands = {"handler": job.handler, "handler_then": job.handler_then}
            values = {"first": first, "after": after, **hands, "n": CHUNK_ITEMS}
            rows = yield Ask("move_items", values)
            yield from widen_keys(job.id, [row["order_key"] for row in rows])
            moved += len(rows)
            yield Ask(
                "poll_soon", {**values, "poll_ms": poll_ms}
            )  # its tasks at the provider are to be cancelled there
        return moved

    @reads
    def stopping(self, after: int = 0) -> Script[list[tuple[int, StopReason]]]:
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
            yield from _tell([*rows, *held, *tasks], "the job exceeded its maximum runtime")
        ended = yield from count(moves)
        if not moves:
            over = yield Ask("end_if_over", {"job_id": job_id})
            ended = [(row["id"], JobState(row["state"])) for row in over]
        return Swept(len(moves), ended, more=bool(moves) and not ended)


def _moves(items: Sequence[EndedItem], old: ItemState | None) -> list[Move]:
    """The money set aside for a call that is no longer awaited may have been paid."""
    return [
        Move(item.job_id, old, item.state, freed=item.reserved_micros, unknown=item.reserved_micros, flaw=item.flaw)
        for item in items
    ]


def _kept_attempt(item: EndedItem) -> Attempt:
    """The message for an item that a cancel does not end as cancelled: a call may have been processed, or was
    answered."""
    if item.flaw in ANSWER_FLAWS:
        return item.attempt(ErrorCode.GW_4XX, "the job was cancelled before it was tried again")
    return item.attempt(
        ErrorCode.UNKNOWN, "outcome unknown: the job was cancelled, and an earlier call may have been processed"
    )


def _show_answers(items: Sequence[EndedItem]) -> Script[None]:
    if answered := [Held(item.id, item.fence) for item in items if item.flaw in ANSWER_FLAWS]:
        yield Ask("show_answers", batch=answered)


def _tell(items: Sequence[EndedItem], message: str) -> Script[None]:
    if items:
        yield from write_attempts([item.attempt(ErrorCode.GW_TIMEOUT, message) for item in items])
        yield from _show_answers(items)
        had_come = yield Ask("mark_late", batch=[(item.id,) for item in items])
        yield from flaw_late([row["item_id"] for row in had_come if row["kind"] == Kind.SUCCEEDED])
