"""Batches: jobs as OpenAI's clients see them, from the file of requests to the files of results."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from backstay.core.errors import NotFound
from backstay.core.ids import POSITIONS_MAX, item_range
from backstay.core.states import JOB_ENDED, BatchStatus, JobState
from backstay.store.databases.database import Database
from backstay.store.files import INPUT, LATEST, NewFile, add_file, may_be_id
from backstay.store.queries import Ask, Row, Script, one, record
from backstay.store.results import ROWS_FIRST, ResultRow, rows_next

JOBS_MAX: Final = 1_000  # of an owner, checked for runs at once
SETTLED_MS: Final = 3_600_000  # no transaction takes this long
MODELS_MAX: Final = 1_000
MODELS_LOOKED_MAX: Final = 10_000  # batches, the newest


@dataclass(frozen=True, slots=True)
class NewBatch:
    id: str
    owner: str
    endpoint: str
    input_file_id: str
    completion_window: str
    window_ms: int
    metadata: str | None
    output_seconds: int | None


@record
@dataclass(frozen=True, slots=True)
class Batch:
    """A batch and the state of its job; the job's fields are None until there is a job."""

    id: str
    owner: str
    job_id: int | None
    status: BatchStatus
    endpoint: str
    input_file_id: str
    completion_window: str
    metadata: str | None
    model: str | None
    errors: str | None
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    expires_at: int
    output_seconds: int | None
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    requests: int
    adopted: int
    now: int
    job_state: JobState | None
    sealed: int | None
    total: int | None
    succeeded: int | None
    failed: int | None
    cancelled: int | None
    input_tokens: int | None
    output_tokens: int | None

    @property
    def job_ended(self) -> bool:
        """A deleted job counts as ended."""
        return self.job_id is not None and (self.job_state is None or self.job_state in JOB_ENDED)


@record
class Adoptable(NamedTuple):
    """A job that may be a run without a batch; only then is its first request given, as it is stored."""

    job_id: int
    created_at: int
    ends_at: int
    label: str | None
    now: int
    first: str
    adopted: int  # 2 if the run had already ended


class JobsPage(NamedTuple):
    """Some jobs of an owner: the runs among them that have no batch yet, which job is the last, and whether more
    follow.

    Up to `settled` nothing can change any more: all transactions from that time have ended.
    """

    runs: list[Adoptable]
    settled: int
    last: int
    more: bool


class Adopted(NamedTuple):
    """How a run is shown as a batch."""

    batch_id: str
    run: Adoptable
    file_id: str
    filename: str
    endpoint: str
    model: str | None

    def row(self) -> Row:
        span = f"{(self.run.ends_at - self.run.created_at) // 3_600_000}h"
        named = (self.batch_id, self.run.job_id, self.file_id, self.endpoint, span, self.model)
        return (*named, self.run.created_at, self.run.ends_at, self.run.adopted)


class Batches:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def create(self, new: NewBatch, replay_ms: int | None) -> tuple[str, bool]:
        """Stores a batch, or finds the same one of the last `replay_ms`; returns its id and whether it is new."""
        return await self._db.write(lambda: _create(new, replay_ms))

    async def get(self, batch_id: str, owner: str) -> Batch:
        found = batch_id, owner
        rows: list[Batch] = await self._db.read(one("batches_seen", batch=[found])) if may_be_id(batch_id) else []
        if not rows:
            raise batch_not_found(batch_id)
        return rows[0]

    async def page(self, owner: str, after: str | None, n: int) -> list[Batch]:
        created_at, last = await self._place(after, owner)
        values = {"owner": owner, "created_at": created_at, "id": last, "n": n}
        return await self._db.read(one("batches_page", values))

    async def _place(self, cursor: str | None, owner: str) -> tuple[int, str]:
        if cursor is None:
            return LATEST
        place = {"id": cursor, "owner": owner}
        rows = await self._db.read(one("batch_place", place)) if may_be_id(cursor) else []
        if not rows:
            raise batch_not_found(cursor)
        return rows[0]["created_at"], rows[0]["id"]

    async def cancel(self, batch_id: str, owner: str) -> bool:
        return bool(await self._db.write(one("cancel_batch", {"id": batch_id, "owner": owner})))

    # moving on

    async def claim(self, lease_ms: int) -> tuple[str, str] | None:
        """Claims a batch that can be moved on; returns it with its owner. No other process gets it before the lease
        ends."""
        rows = await self._db.write(one("claim_batch", {"lease_ms": lease_ms}))
        return (rows[0]["id"], rows[0]["owner"]) if rows else None

    async def extend(self, batch_id: str, lease_ms: int) -> None:
        await self._db.write(one("extend_batch", {"id": batch_id, "lease_ms": lease_ms}))

    async def release(self, batch_id: str, delay_ms: int = 0) -> None:
        await self._db.write(one("release_batch", {"id": batch_id, "delay_ms": delay_ms}))

    async def begin(self, batch_id: str, requests: int, model: str | None) -> bool:
        values = {"id": batch_id, "requests": requests, "model": model}
        return bool(await self._db.write(one("begin_batch", values)))

    async def count(self, batch_id: str, requests: int, model: str | None) -> None:
        """Stores the number of requests of a batch that was cancelled before it began."""
        await self._db.write(one("count_requests", {"id": batch_id, "requests": requests, "model": model}))

    async def fail(self, batch_id: str, errors: str) -> bool:
        return bool(await self._db.write(one("fail_batch", {"id": batch_id, "errors": errors})))

    async def attach(self, batch_id: str, job_id: int) -> BatchStatus:
        """Stores the job's id; returns the batch's current status."""
        rows = await self._db.write(one("attach_job", {"id": batch_id, "job_id": job_id}))
        return BatchStatus(rows[0]["status"])

    async def finalize(self, batch_id: str) -> bool:
        return bool(await self._db.write(one("finalize_batch", {"id": batch_id})))

    async def end(self, batch: Batch, status: BatchStatus, output: NewFile | None, errors: NewFile | None) -> bool:
        """Ends a batch, with its files. False: another process has claimed it."""
        return await self._db.write(lambda: _end(batch, status, output, errors))

    async def any_expired(self, job_id: int) -> bool:
        return bool(await self._db.read(one("any_expired", {"job_id": job_id})))

    # message batches

    async def messages(self, owner: str, cursor: str | None, newer: bool, n: int) -> list[Batch]:
        """The batches after a cursor, newest first; or those that are newer than it, the nearest first."""
        created_at, last = await self._place(cursor, owner)
        values = {"owner": owner, "created_at": created_at, "id": last, "n": n}
        return await self._db.read(one("messages_newer" if newer else "messages_older", values))

    async def same_messages(self, owner: str, digest: str, age_ms: int) -> str | None:
        """The batch of the same requests that is not older."""
        rows = await self._db.read(one("same_messages", {"owner": owner, "digest": digest, "age_ms": age_ms}))
        return str(rows[0]["id"]) if rows else None

    async def count_expired(self, job_id: int) -> int:
        """How many requests the deadline ended before they could have been paid."""
        return int((await self._db.read(one("count_expired", {"job_id": job_id})))[0]["n"])

    async def drop(self, batch_id: str, owner: str) -> None:
        """Deletes a batch that has ended without a job, with its files."""
        await self._db.write(lambda: _drop(batch_id, owner))

    # its items

    async def results(self, job_id: int, ok: bool) -> AsyncIterator[list[ResultRow]]:
        """The items of a job that succeeded, or those that ended in another state, in order, page by page. The caller
        has checked the owner."""
        first, after = item_range(job_id)
        cursor, n = first - 1, ROWS_FIRST
        name = "batch_output" if ok else "batch_errors"
        while rows := await self._db.read(one(name, {"cursor": cursor, "after": after, "n": n})):
            yield rows
            cursor, n = rows[-1].id, rows_next(n, [row.characters for row in rows])

    async def requests(self, job_id: int) -> AsyncIterator[list[str]]:
        """The requests of a job's items, as they are stored, page by page."""
        first, after = item_range(job_id)
        cursor, n = first - 1, ROWS_FIRST
        while rows := await self._db.read(one("batch_requests", {"cursor": cursor, "after": after, "n": n})):
            bodies = [row["body"] for row in rows]
            yield bodies
            cursor, n = rows[-1]["item_id"], rows_next(n, list(map(len, bodies)))

    async def models(self, owner: str) -> list[str]:
        most = {"n": MODELS_MAX, "looked": MODELS_LOOKED_MAX}
        return [row["model"] for row in await self._db.read(one("models_seen", {"owner": owner, **most}))]

    # runs that were started elsewhere

    async def adoptable(self, owner: str, after: int) -> JobsPage:
        values = {"owner": owner, "after": after, "n": JOBS_MAX, "items_max": POSITIONS_MAX}
        jobs: list[Adoptable] = await self._db.read(one("jobs_to_adopt", values))
        settled = max((job.job_id for job in jobs if job.created_at < job.now - SETTLED_MS), default=0)
        runs = [job for job in jobs if job.first]
        return JobsPage(runs, settled, jobs[-1].job_id if jobs else after, len(jobs) == JOBS_MAX)

    async def adopt(self, owner: str, runs: Sequence[Adopted]) -> None:
        if runs:
            await self._db.write(lambda: _adopt(owner, runs))

    async def many(self, asked: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Batch]:
        found: list[Batch] = await self._db.read(one("batches_seen", batch=asked))
        return {(batch.id, batch.owner): batch for batch in found}


def _create(new: NewBatch, replay_ms: int | None) -> Script[tuple[str, bool]]:
    values = asdict(new)
    if replay_ms is not None:
        yield Ask("lock_input", values)
        same = yield Ask("same_batch", {**values, "age_ms": replay_ms})
        if same:
            return str(same[0]["id"]), False
    added = yield Ask("add_batch", values)
    return new.id, bool(added)


def _end(batch: Batch, status: BatchStatus, output: NewFile | None, errors: NewFile | None) -> Script[bool]:
    values: dict[str, Any] = {
        "id": batch.id,
        "status": status,
        "output_file_id": output and output.id,
        "error_file_id": errors and errors.id,
    }
    rows: list[Row] = yield Ask("end_batch", values)
    if not rows:
        return False
    for file in (output, errors):
        if file is not None:
            yield from add_file(file)
    return True


def _drop(batch_id: str, owner: str) -> Script[None]:
    for files in (yield Ask("purge_unsent_batch", {"id": batch_id, "owner": owner})):
        yield Ask("purge_files", batch=[(file,) for file in tuple(files) if file is not None])


def _adopt(owner: str, runs: Sequence[Adopted]) -> Script[None]:
    taken = {row["job_id"] for row in (yield Ask("adopt", {"owner": owner}, [adopted.row() for adopted in runs]))}
    for adopted in runs:
        job_id = adopted.run.job_id
        if job_id in taken:  # otherwise another process has just adopted it
            made = NewFile(adopted.file_id, owner, adopted.filename, "batch", 0, job_id=job_id, part=INPUT)
            yield from add_file(made)


def batch_not_found(batch_id: str) -> NotFound:
    return NotFound(f"No batch found with id '{batch_id[:100]}'.")
