"""Pruning: finds old ended jobs, reads everything that belongs to one, and deletes it, with or without an archive."""

from typing import Final, NamedTuple

from backstay.core.errors import NotAllowed
from backstay.core.ids import item_range
from backstay.core.models import Attempt
from backstay.core.states import ItemState
from backstay.store.archives import BEFORE_ALL, LAST_ID, LetterEvent, LetterMessage, Place
from backstay.store.databases.database import Database, reads, writes
from backstay.store.jobs import disown_job
from backstay.store.queries import Ask, Script, one, read_row, record
from backstay.store.results import Copy

OWNERS_MAX: Final = 10_000  # by one pass


@record
class FinishedJob(NamedTuple):
    """An ended job. The fields from `finished_at` on change if its items or results change."""

    id: int
    owner: str
    total: int
    finished_at: int
    succeeded: int
    failed: int
    archived: int  # items in archives of dead letters
    held: int  # another job waits for it, or its batch is being written

    @property
    def place(self) -> Place:
        return self.finished_at, self.id


@record
class KeptItem(NamedTuple):
    """An item as an archive keeps it, and its request."""

    id: int
    state: ItemState
    handler: str
    fence: int
    attempt_count: int
    error_code: str | None
    flaw: str | None
    finished_at: int | None
    archive_id: int | None  # the archive of dead letters that has its texts
    body: str | None


class ItemStory(NamedTuple):
    """An item with everything that belongs to it."""

    item: KeptItem
    attempts: list[Attempt]
    inbox: list[LetterMessage]
    events: list[LetterEvent]
    copies: list[Copy]

    @property
    def characters(self) -> int:
        return len(self.item.body or "") + sum(len(one.result or "") for one in self.attempts)


@record
class JobArchive(NamedTuple):
    """The file that holds a deleted job."""

    job_id: int
    owner: str
    blob: str
    items: int
    bytes: int
    digest: str
    finished_at: int


class Pruning:
    def __init__(self, database: Database) -> None:
        self._db = database

    @reads
    def owners(self) -> Script[list[str]]:
        """The owners who have ended jobs, found by one probe of the index for each."""
        found = list[str]()
        while len(found) < OWNERS_MAX:
            [row] = yield Ask("owner_after", {"after": found[-1] if found else ""})
            if row["owner"] is None:
                break
            found.append(row["owner"])
        return found

    @reads
    def until(self, owner: str, age_ms: int | None, keep: int | None, quiet_ms: int) -> Script[Place]:
        """Jobs of an owner up to this place, in the order of their ends, are deleted: those that ended more than
        `age_ms` ago, and all but the newest `keep`. Jobs that ended within `quiet_ms` stay."""
        [row] = yield Ask("now")
        until = BEFORE_ALL if age_ms is None else (row["now"] - age_ms, LAST_ID)
        if keep is not None:
            beyond = yield Ask("newest_beyond", {"owner": owner, "keep": keep})
            until = max([until, *((one["finished_at"], one["id"]) for one in beyond)])
        return min(until, (row["now"] - quiet_ms, LAST_ID))

    @reads
    def page(self, owner: str, after: Place, until: Place, n: int) -> Script[list[FinishedJob]]:
        """An owner's ended jobs behind a place and up to another, the oldest first."""
        (finished_at, job_id), (until_at, until_id) = after, until
        span = {"finished_at": finished_at, "job_id": job_id, "until_at": until_at, "until_id": until_id}
        return (yield Ask("finished_page", {"owner": owner, **span, "n": n}))

    @reads
    def items(self, job_id: int, cursor: int, n: int) -> Script[list[ItemStory]]:
        """The next items of a job behind the cursor, with everything that belongs to them."""
        after = item_range(job_id)[1]
        rows: list[KeptItem] = yield Ask("kept_items_page", {"cursor": cursor, "after": after, "n": n})
        found = {row.id: ItemStory(row, [], [], [], []) for row in rows}
        if not found:
            return []
        ids, subjects = [(item,) for item in found], {f"item:{item}": item for item in found}
        attempts: list[Attempt] = yield Ask("attempts_of", batch=ids)
        for attempt in attempts:
            found[attempt.item_id].attempts.append(attempt)
        for message in (yield Ask("inbox_of", batch=ids)):
            found[message["item_id"]].inbox.append(read_row(LetterMessage, message))
        for event in (yield Ask("events_of", batch=[(subject,) for subject in subjects])):
            found[subjects[event["subject"]]].events.append(read_row(LetterEvent, event))
        copies: list[Copy] = yield Ask("copies_of", batch=ids)
        for copy in copies:
            found[copy.item_id].copies.append(copy)
        return list(found.values())

    @reads
    def job_events(self, job_id: int) -> Script[list[LetterEvent]]:
        return [read_row(LetterEvent, row) for row in (yield Ask("events_of", batch=[(f"job:{job_id}",)]))]

    @writes
    def remove(self, job: FinishedJob, archive: JobArchive | None) -> Script[None]:
        """Registers the archive and makes the job disappear, both or neither; its rows are deleted afterwards. A job
        that has changed since it was read stays."""
        gone = yield from disown_job(job.id, job.owner)
        if any(gone[name] != getattr(job, name) for name in ("finished_at", "succeeded", "failed", "archived")):
            raise NotAllowed(f"job {job.id} has changed meanwhile", hint="the next run deletes it")
        if archive is not None:
            yield Ask("add_job_archive", archive._asdict())

    async def archive(self, job_id: int) -> JobArchive | None:
        """The archive of a deleted job."""
        rows: list[JobArchive] = await self._db.read(one("job_archive", {"job_id": job_id}))
        return rows[0] if rows else None
