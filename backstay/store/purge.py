"""Deleting a job that has ended: at once for everyone who looks, and then row by row.

Every read names an owner, and none has an empty name; so a job that gets it is seen by nobody any more.
"""

from typing import Final

from backstay.core.errors import NotAllowed
from backstay.core.ids import item_range
from backstay.core.states import JOB_ENDED
from backstay.store.control import standing
from backstay.store.database import Database
from backstay.store.queries import Ask, Script, one

CHUNK_ITEMS: Final = 2_000
LEFT_MAX: Final = 100
_TABLES: Final = ("copies", "inbox", "attempts", "requests", "items")


class Purge:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def disown(self, job_id: int, owner: str) -> int:
        """From here on there is no such job, nor its batch; returns how many items are to be deleted with it."""
        return await self._db.write(lambda: _disown(job_id, owner))

    async def left(self) -> list[int]:
        """Jobs that nobody owns any more and that are not all deleted."""
        return [row["id"] for row in await self._db.read(one("disowned_jobs", {"n": LEFT_MAX}))]

    async def drop_file(self, file_id: str) -> None:
        """A file that a job made is gone for its owner."""
        await self._db.write(one("purge_files", batch=[(file_id,)]))

    async def finish(self, job_id: int) -> None:
        """Deletes what is left of a disowned job, chunk by chunk; who is stopped half-way goes on where it was."""
        while await self._db.write(lambda: _purge(job_id)):
            pass


def _disown(job_id: int, owner: str) -> Script[int]:
    rows = yield Ask("disown_job", {"job_id": job_id, "owner": owner})
    if rows:
        for files in (yield Ask("purge_batch", {"job_id": job_id})):
            yield Ask("purge_files", batch=[(file,) for file in tuple(files) if file is not None])
        return int(rows[0]["total"])
    job = yield from standing(job_id, owner)
    if job.state in JOB_ENDED:
        raise NotAllowed(f"the results of job {job_id} are being written out", hint="try again when its batch is over")
    raise NotAllowed(f"job {job_id} is {job.state}: only a job that has ended can be deleted", hint="cancel it first")


def _purge(job_id: int) -> Script[bool]:
    """A chunk of items with all that belongs to them; with the last one the job itself. True while there is more."""
    if not (yield Ask("disowned_job", {"job_id": job_id})):
        return False
    first, after = item_range(job_id)
    [left] = yield Ask("first_item", {"first": first, "after": after})
    found = left["first"]
    if found is None:
        yield Ask("purge_events", batch=[(f"job:{job_id}",)])
        yield Ask("purge_job", {"job_id": job_id})
        return False
    span = {"first": found, "after": min(found + CHUNK_ITEMS, after)}
    for table in _TABLES:
        yield Ask(f"purge_{table}", span)
    yield Ask("purge_events", batch=[(f"item:{item}",) for item in range(span["first"], span["after"])])
    return True
