"""Scripts behind a person's buttons: pause, resume, cancel, retry. Each is guarded by owner and state."""

from backstay.core.errors import NotAllowed, NotFound
from backstay.core.ids import item_range, job_of, show_item
from backstay.core.states import JOB_ENDED, ItemState, JobState, StopReason
from backstay.store.claim import widen_keys
from backstay.store.outbox import hint_queued
from backstay.store.queries import Ask, Script
from backstay.store.settle import count_flaws
from backstay.store.sources import with_sources

CHUNK_ITEMS = 2_000
RETRIED = ("by hand", "by hand; an earlier call may have been done and paid")


def pause(job_id: int, owner: str) -> Script[None]:
    yield from _act("pause_job", job_id, owner, "paused")


def resume(job_id: int, owner: str) -> Script[None]:
    yield from _act("resume_job", job_id, owner, "resumed")


def cancel(job_id: int, owner: str) -> Script[None]:
    yield from _act("cancel_job", job_id, owner, "cancel_asked")


def _act(statement: str, job_id: int, owner: str, act: str) -> Script[None]:
    rows = yield Ask(statement, {"job_id": job_id, "owner": owner})
    if not rows:
        yield from _refuse(job_id, owner, act)
    yield Ask("write_events", batch=[(f"job:{job_id}", act, None)])


def _refuse(job_id: int, owner: str, act: str) -> Script[None]:
    """Says why nothing was changed; another owner's job does not exist."""
    rows = yield Ask("job_state", {"job_id": job_id, "owner": owner})
    if not rows:
        raise NotFound(f"no job {job_id}")
    state, stop_reason = rows[0][:2]
    done = "cancelled" if act == "cancel_asked" else act
    if stop_reason is not None and state not in JOB_ENDED:
        state = "being cancelled" if stop_reason == StopReason.CANCEL else "being stopped"
    if state in (done, f"being {done}"):
        raise NotAllowed(f"job {job_id} is {state} already")
    if done == "resumed":
        raise NotAllowed(f"job {job_id} is {state}: only a paused job can be resumed")
    raise NotAllowed(f"job {job_id} is {state}: it cannot be {done}")


def retry_items(job_id: int, owner: str, item: int | None, cursor: int, turns: int) -> Script[tuple[int, int | None]]:
    """Queues a chunk of a job's failed items (or the one item) behind the cursor afresh; returns how many, and the
    last that was looked at, if there was any: items whose sources are gone are passed over."""
    first, after = item_range(job_id) if item is None else (item, item + 1)
    values = {"job_id": job_id, "owner": owner, "first": max(first, cursor + 1), "after": after, "n": CHUNK_ITEMS}
    failed = yield Ask("failed_items", values)
    kept = (yield from with_sources(owner, failed)) if failed else []
    batch = [(*row[:3], 0, turns + n) for n, row in enumerate(kept)]
    rows = (yield Ask("retry_items", batch=batch)) if kept else []
    won = {row[0] for row in rows}
    retried = {row[0]: row[2] for row in kept if row[0] in won}
    if retried:
        flaws = count_flaws(row[3] for row in kept if row[0] in won)
        polled = sum(row[2] == ItemState.PROCESSING for row in rows)
        counts = {"retried": len(retried), "repeated": sum(retried.values()), "polled": polled, "wait_ms": 0}
        yield Ask("reopen_job", {"job_id": job_id, **counts, **flaws})
        yield from widen_keys(job_id, [row[1] for row in rows])
        yield Ask("write_events", batch=[(f"item:{one}", "retried", RETRIED[again]) for one, again in retried.items()])
        yield from hint_queued(sorted(retried))
    return len(retried), failed[-1][0] if failed else None


def why_no_retry(job_id: int, owner: str, item: int | None) -> Script[None]:
    rows = yield Ask("job_state", {"job_id": job_id, "owner": owner})
    if not rows:
        raise NotFound(f"no job {job_id}")
    if item is not None:
        found = yield Ask("item_state", {"item_id": item})
        if not found or job_of(item) != job_id:
            raise NotFound(f"no item {show_item(item)}")
        if found[0][1] is not None:
            raise archived(item, found[0][1])
        if found[0][0] == ItemState.FAILED and not (yield from with_sources(owner, [(item,)])):
            hint = "upload it again, and submit it anew"
            raise NotAllowed(f"item {show_item(item)} cannot be retried: its source is gone", hint=hint)
        raise NotAllowed(f"item {show_item(item)} is {found[0][0]}: only a failed item can be retried")
    if rows[0][2]:
        hint = "restore them first: `backstay deadletters archives` lists where they are"
        raise NotAllowed(f"the failed items of job {job_id} are archived", hint=hint)
    cancelled = rows[0][0] == JobState.CANCELLED
    raise NotAllowed(
        f"job {job_id} has no failed items to retry" + (", and what was cancelled stays so" if cancelled else "")
    )


def archived(item: int, archive: int) -> NotAllowed:
    hint = f"restore it first: `backstay deadletters restore {archive}`"
    return NotAllowed(f"item {show_item(item)} is in archive {archive}", hint=hint)
