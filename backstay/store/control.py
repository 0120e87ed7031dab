"""Scripts behind a person's buttons: pause, resume, cancel, retry. Each is guarded by owner and state."""

from typing import NamedTuple

from backstay.core.errors import NotAllowed, NotFound
from backstay.core.ids import item_range, job_of, show_item
from backstay.core.states import JOB_ENDED, ItemState, JobState, StopReason
from backstay.store.claim import widen_keys
from backstay.store.outbox import hint_queued
from backstay.store.queries import Ask, Script
from backstay.store.rows import record
from backstay.store.settle import count_flaws
from backstay.store.sources import with_sources

CHUNK_ITEMS = 2_000
RETRIED = ("by hand", "by hand; an earlier call may have been done and paid")


@record
class JobStanding(NamedTuple):
    """What decides whether a person may change a job."""

    state: JobState
    stop_reason: StopReason | None
    archived: int  # items in archives


@record
class FailedItem(NamedTuple):
    """A failed item, and whether another call may pay again for what was done."""

    id: int
    fence: int
    repeat: int
    flaw: str | None


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
    job = yield from standing(job_id, owner)
    state: str = job.state
    done = "cancelled" if act == "cancel_asked" else act
    if job.stop_reason is not None and job.state not in JOB_ENDED:
        state = "being cancelled" if job.stop_reason is StopReason.CANCEL else "being stopped"
    if state in (done, f"being {done}"):
        raise NotAllowed(f"job {job_id} is {state} already")
    if done == "resumed":
        raise NotAllowed(f"job {job_id} is {state}: only a paused job can be resumed")
    raise NotAllowed(f"job {job_id} is {state}: it cannot be {done}")


def standing(job_id: int, owner: str) -> Script[JobStanding]:
    rows: list[JobStanding] = yield Ask("job_state", {"job_id": job_id, "owner": owner})
    if not rows:
        raise NotFound(f"no job {job_id}")
    return rows[0]


def retry_items(job_id: int, owner: str, item: int | None, cursor: int, turns: int) -> Script[tuple[int, int | None]]:
    """Queues a chunk of a job's failed items (or the one item) behind the cursor afresh; returns how many, and the
    last that was looked at, if there was any: items whose sources are gone are passed over."""
    first, after = item_range(job_id) if item is None else (item, item + 1)
    values = {"job_id": job_id, "owner": owner, "first": max(first, cursor + 1), "after": after, "n": CHUNK_ITEMS}
    failed: list[FailedItem] = yield Ask("failed_items", values)
    there = (yield from with_sources(owner, [item.id for item in failed])) if failed else set()
    kept = [item for item in failed if item.id in there]
    batch = [(item.id, item.fence, item.repeat, 0, turns + n) for n, item in enumerate(kept)]
    rows = (yield Ask("retry_items", batch=batch)) if kept else []
    won = {row["id"] for row in rows}
    retried = {item.id: item.repeat for item in kept if item.id in won}
    if retried:
        flaws = count_flaws(item.flaw for item in kept if item.id in won)
        polled = sum(row["state"] == ItemState.PROCESSING for row in rows)
        counts = {"retried": len(retried), "repeated": sum(retried.values()), "polled": polled, "wait_ms": 0}
        yield Ask("reopen_job", {"job_id": job_id, **counts, **flaws})
        yield from widen_keys(job_id, [row["order_key"] for row in rows])
        yield Ask("write_events", batch=[(f"item:{one}", "retried", RETRIED[again]) for one, again in retried.items()])
        yield from hint_queued(sorted(retried))
    return len(retried), failed[-1].id if failed else None


def why_no_retry(job_id: int, owner: str, item: int | None) -> Script[None]:
    job = yield from standing(job_id, owner)
    if item is not None:
        found = yield Ask("item_state", {"item_id": item})
        if not found or job_of(item) != job_id:
            raise NotFound(f"no item {show_item(item)}")
        state, archive = found[0]["state"], found[0]["archive_id"]
        if archive is not None:
            raise archived(item, archive)
        if state == ItemState.FAILED and not (yield from with_sources(owner, [item])):
            hint = "upload it again, and submit it anew"
            raise NotAllowed(f"item {show_item(item)} cannot be retried: its source is gone", hint=hint)
        raise NotAllowed(f"item {show_item(item)} is {state}: only a failed item can be retried")
    if job.archived:
        hint = "restore them first: `backstay deadletters archives` lists where they are"
        raise NotAllowed(f"the failed items of job {job_id} are archived", hint=hint)
    cancelled = job.state is JobState.CANCELLED
    raise NotAllowed(
        f"job {job_id} has no failed items to retry" + (", and what was cancelled stays so" if cancelled else "")
    )


def archived(item: int, archive: int) -> NotAllowed:
    hint = f"restore it first: `backstay deadletters restore {archive}`"
    return NotAllowed(f"item {show_item(item)} is in archive {archive}", hint=hint)
