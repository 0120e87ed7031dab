"""Scripts by which workers take items and keep them."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from backstay.core.models import Claimed, JobTerms
from backstay.store.queries import Ask, Script

PROMOTE_ITEMS_MAX = 5_000


class Want(NamedTuple):
    """How many items of a handler a worker can start now."""

    handler: str
    items: int
    reconcile_ms: int  # how long after the claim a request of a lost holder may still arrive at the provider


class Taken(NamedTuple):
    items: list[Claimed]
    jobs: list[JobTerms]  # the terms of the jobs that the worker had not met
    more: bool = False  # a limit was reached: there may be more where these came from


def promote() -> Script[int]:
    rows = yield Ask("promote", {"n": PROMOTE_ITEMS_MAX})
    return len(rows)


def claim(
    wants: Sequence[Want], worker: str, lease_ms: int, met: Collection[int], promoting: bool, room: int | None = None
) -> Script[Taken]:
    """Takes what each handler wants; within `room` for all of them, what one has no items for goes to the next."""
    if promoting:
        yield from promote()
    items: list[Claimed] = []
    more = False
    for index, want in enumerate(wants):
        share = want.items if room is None else min(want.items, -(-(room - len(items)) // (len(wants) - index)))
        if share <= 0:
            break
        values = {"handler": want.handler, "n": share, "reconcile_ms": want.reconcile_ms}
        rows = yield Ask("claim", {**values, "worker": worker, "lease_ms": lease_ms})
        items += map(Claimed._make, rows)
        more = more or len(rows) == share
    items.sort(key=_by_id)
    return Taken(items, (yield from _meet_jobs(items, met)), more)


def _by_id(item: Claimed) -> int:
    return item.id


def _meet_jobs(items: Sequence[Claimed], met: Collection[int]) -> Script[list[JobTerms]]:
    new = sorted({item.job_id for item in items}.difference(met))
    if not new:
        return []
    rows = yield Ask("start_jobs", batch=[(job_id,) for job_id in new])
    return [JobTerms(*row) for row in rows]


def poll(
    handler: str, account: str | None, items: int, worker: str, lease_ms: int, met: Collection[int]
) -> Script[Taken]:
    values = {"handler": handler, "account": account or "", "n": items, "worker": worker, "lease_ms": lease_ms}
    rows = yield Ask("poll", values)
    taken = sorted(map(Claimed._make, rows), key=_by_id)
    return Taken(taken, (yield from _meet_jobs(taken, met)))


def rescue(handler: str, askable: bool, items: int, worker: str, lease_ms: int, met: Collection[int]) -> Script[Taken]:
    values = {"handler": handler, "askable": int(askable), "n": items, "worker": worker, "lease_ms": lease_ms}
    rows = yield Ask("rescue", values)
    taken = sorted(map(Claimed._make, rows), key=_by_id)
    return Taken(taken, (yield from _meet_jobs(taken, met)))


def disown(claimed_as: str) -> Script[None]:
    yield Ask("disown", {"worker": claimed_as})


def extend(held: Sequence[tuple[int, int]], lease_ms: int, worker: str) -> Script[set[tuple[int, int]]]:
    """Extends the leases given as (item, fence); returns those that were lost."""
    yield Ask("see_worker", {"id": worker})
    if not held:
        return set()
    rows = yield Ask("extend", {"lease_ms": lease_ms}, held)
    return set(held) - {(row[0], row[1]) for row in rows}


def report_progress(progress: Sequence[tuple[int, int, int]]) -> Script[None]:
    yield Ask("report_progress", batch=progress)
