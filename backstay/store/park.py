"""Scripts that move a paused job's waiting items out of the claim's way, and back.

The claim passes over items of paused jobs, but row by row: a million of them at its head would make every claim slow.
So the sweep gives them a due time that never comes, one per job, and resuming takes it away again. Nothing depends on
it: an item that is not parked yet is passed over all the same, and one left parked by a crash is found by the sweep.
"""

from backstay.core.ids import item_range
from backstay.store.claim import widen_keys
from backstay.store.queries import Ask, Script

NEVER_MS = 1 << 52  # a due time of some 140,000 years from now; a job's own is this plus its id
CHUNK_ITEMS = 5_000


def parked_at(job_id: int) -> int:
    return NEVER_MS + job_id


def park(job_id: int, cursor: int | None) -> Script[int | None]:
    """Parks a chunk of a paused job's ready items; returns where to go on, None when all are parked."""
    first, after = item_range(job_id)
    span = {"cursor": first - 1 if cursor is None else cursor, "after": after, "n": CHUNK_ITEMS}
    rows = yield Ask("park", {"job_id": job_id, "parked_at": parked_at(job_id), **span})
    return max(row["id"] for row in rows) if rows else None


def unpark(job_id: int, turns: int) -> Script[int]:
    """Makes a chunk of a job's parked items ready again, unless it is paused; chunks before it have taken `turns`."""
    values = {"job_id": job_id, "parked_at": parked_at(job_id), "turns": turns, "n": CHUNK_ITEMS}
    rows = yield Ask("unpark", values)
    yield from widen_keys(job_id, [row["order_key"] for row in rows])
    return len(rows)


def paused_jobs() -> Script[list[int]]:
    return [row["id"] for row in (yield Ask("paused_jobs"))]


def parked_jobs() -> Script[list[int]]:
    """The jobs that have parked items, found by one probe of the index for each."""
    jobs: list[int] = []
    while True:
        [found] = yield Ask("next_parked", {"after": parked_at(jobs[-1] if jobs else 0)})
        if found["parked_at"] is None:
            return jobs
        jobs.append(found["parked_at"] - NEVER_MS)
