"""Links between jobs: a job that waits for others starts when they have ended, once, in bounded steps."""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from backstay.core.errors import UsageError
from backstay.core.ids import item_range, show_items
from backstay.core.states import JOB_ENDED, TERMINAL, ItemState, JobState
from backstay.store.databases.database import Database, reads
from backstay.store.jobs import PARK_ITEMS
from backstay.store.queries import Ask, Script, record
from backstay.store.settle import widen_keys
from backstay.store.submissions import CHUNK_CHARACTERS, CHUNK_ITEMS, AfterItems, Chunk, OpenJob, add_items, waits_at

JOBS_MAX: Final = 100  # looked at by one page


@record
class WaitingJob(NamedTuple):
    """A job that waits for others, locked by the process that starts it."""

    id: int
    owner: str
    handler: str
    created_at: int
    total: int
    digest: str
    sealed: int
    priority: int
    deadline_at: int | None
    first_key: int


@record
class JobLink(NamedTuple):
    """One of the jobs that a job waits for; without a state it was deleted."""

    number: int
    after_id: int
    takes: AfterItems
    feeds: bool  # its results are the later job's items
    cursor: int | None  # how far they have been taken; of a job with its own items, how many were released
    state: JobState | None
    owner: str | None


@record
class FedResult(NamedTuple):
    """An ended item of an earlier job."""

    id: int
    state: ItemState
    error_code: str | None
    message: str | None
    result: str | None


class LinkStep(NamedTuple):
    """The result of one step towards a job's start."""

    job_id: int
    handler: str = ""
    items: int = 0
    more: bool = False  # another step would do more
    ended_jobs: Sequence[tuple[int, JobState]] = ()


class JobLinks:
    def __init__(self, database: Database) -> None:
        self._db = database

    @reads
    def ready(self, after: int = 0) -> Script[list[int]]:
        """The waiting jobs that can start, or that never will, a page behind the cursor."""
        return [row["job_id"] for row in (yield Ask("ready_links", {"after": after, "n": JOBS_MAX}))]

    async def advance(self, job_id: int) -> LinkStep:
        """One bounded step. After a crash, any process continues with the next."""
        try:
            return await self._db.write(lambda: _advance(job_id))
        except UsageError as error:  # the results do not fit into one job
            why = error.message
        return await self._db.write(lambda: _give_up(job_id, why))


def _advance(job_id: int) -> Script[LinkStep]:
    rows: list[WaitingJob] = yield Ask("lock_waiting", {"job_id": job_id})
    links: list[JobLink] = (yield Ask("links_of", {"job_id": job_id})) if rows else []
    if not links:
        return LinkStep(job_id)
    [job] = rows
    for link in links:
        if why := _why_never(link, job.owner):
            return (yield from _give_up(job_id, why))
    if any(link.state not in JOB_ENDED for link in links):
        return LinkStep(job_id)
    if links[0].cursor is None:
        job = yield from _begin(job, links)
    return (yield from _feed(job, links)) if links[0].feeds else (yield from _release(job, links[0]))


def _why_never(link: JobLink, owner: str) -> str | None:
    """Why a job that waits for this one never starts."""
    if link.owner != owner:
        return f"job {link.after_id}, which it waited for, was deleted"
    if link.state is JobState.CANCELLED:
        return f"job {link.after_id}, which it waited for, was cancelled"
    if link.state is JobState.FAILED and link.takes is AfterItems.SUCCEEDED:
        return f"job {link.after_id}, which it waited for, failed"
    return None


def _give_up(job_id: int, why: str) -> Script[LinkStep]:
    """Cancels the job; the sweep of stopped jobs ends it."""
    if (yield Ask("cancel_waiting", {"job_id": job_id})):
        yield Ask("write_events", batch=[(f"job:{job_id}", "cancelled", why)])
    yield Ask("drop_links", {"job_id": job_id})
    return LinkStep(job_id)


def _begin(job: WaitingJob, links: Sequence[JobLink]) -> Script[WaitingJob]:
    [begun] = yield Ask("begin_waiting", {"job_id": job.id})
    after = ", ".join(str(link.after_id) for link in links)
    yield Ask("write_events", batch=[(f"job:{job.id}", "started", f"after job {after}")])
    return job._replace(first_key=begun["first_key"])


def _feed(job: WaitingJob, links: Sequence[JobLink]) -> Script[LinkStep]:
    """Makes items of the next results. The position in the earlier job moves in the same transaction."""
    link = next(link for link in links if link.cursor is None or link.cursor < item_range(link.after_id)[1])
    first, after = item_range(link.after_id)
    cursor = first - 1 if link.cursor is None else link.cursor
    page = yield Ask("fed_page", {"cursor": cursor, "after": after, "n": CHUNK_ITEMS})
    taken = _within_size([(row["id"], row["characters"]) for row in page])
    wanted = {ItemState.SUCCEEDED} if link.takes is AfterItems.SUCCEEDED else TERMINAL
    ids = [(row["id"],) for row in page[:taken] if row["state"] in wanted]
    results: list[FedResult] = (yield Ask("fed_results", batch=ids)) if ids else []
    bodies = [_body(one, link.takes) for one in results]
    if bodies:
        yield from add_items(job.handler, _open(job), Chunk(job.total, bodies, job.digest, False), is_fed=True)
    over = taken == len(page) < CHUNK_ITEMS
    yield Ask(
        "move_link", {"job_id": job.id, "number": link.number, "cursor": after if over else page[taken - 1]["id"]}
    )
    if not over or link is not links[-1]:
        return LinkStep(job.id, job.handler, len(bodies), more=True)
    return (yield from _finish(job, len(bodies)))


def _within_size(sizes: Sequence[tuple[int, int]]) -> int:
    """How many of the results, in order, are held in memory at once: at least one."""
    characters = 0
    for taken, (_, size) in enumerate(sizes):
        characters += size
        if characters > CHUNK_CHARACTERS and taken:
            return taken
    return len(sizes)


def _body(one: FedResult, takes: AfterItems) -> str:
    """The payload that a result becomes. It stays the text that it is stored as: no number loses a digit."""
    value = one.result if one.result is not None and one.state is ItemState.SUCCEEDED else "null"
    if takes is AfterItems.SUCCEEDED:
        return value
    outcome = json.dumps({"state": one.state, "error_code": one.error_code, "message": one.message})
    return f'{outcome[:-1]}, "value": {value}}}'


def _open(job: WaitingJob) -> OpenJob:
    return OpenJob(
        job.id,
        job.created_at,
        job.total,
        job.digest,
        job.sealed,
        job.priority,
        job.deadline_at,
        job.first_key,
        new=False,
    )


def _finish(job: WaitingJob, items: int) -> Script[LinkStep]:
    """Completes the job: all results are taken."""
    if job.total + items == 0:
        return (yield from _give_up(job.id, "the jobs that it waited for have no results for it"))
    yield Ask("end_wait", {"job_id": job.id})
    yield Ask("drop_links", {"job_id": job.id})
    sealed = yield Ask("seal_job", {"job_id": job.id})
    yield Ask(
        "write_events", batch=[(f"job:{job.id}", "filled", f"{show_items(job.total + items)} from their results")]
    )
    ended = [(row["id"], JobState(row["state"])) for row in sealed if row["state"] in JOB_ENDED]
    return LinkStep(job.id, job.handler, items, ended_jobs=ended)


def _release(job: WaitingJob, link: JobLink) -> Script[LinkStep]:
    """Makes the next of the job's own items ready."""
    turns = link.cursor or 0
    values = {"job_id": job.id, "parked_at": waits_at(job.id), "turns": turns, "n": PARK_ITEMS}
    rows = yield Ask("unpark", values)
    yield from widen_keys(job.id, [row["order_key"] for row in rows])
    if len(rows) == PARK_ITEMS:
        yield Ask("move_link", {"job_id": job.id, "number": link.number, "cursor": turns + len(rows)})
        return LinkStep(job.id, more=True)
    yield Ask("end_wait", {"job_id": job.id})
    yield Ask("drop_links", {"job_id": job.id})
    return LinkStep(job.id)
