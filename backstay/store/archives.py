"""Archives of dead letters: items move from the database to a file in one transaction, and can be restored."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from backstay.core.display import NextCommand, Sentence
from backstay.core.errors import NotFound
from backstay.core.ids import job_of
from backstay.core.models import Attempt
from backstay.store.databases.database import Database
from backstay.store.queries import Ask, Script, one, read_row, record

LAST_ID: Final = (1 << 63) - 1

Place = tuple[int, int]  # when an item failed, and its id: the order of archiving
BEFORE_ALL: Final[Place] = (-1, -1)
AFTER_ALL: Final[Place] = (LAST_ID, LAST_ID)


@record
class Candidate(NamedTuple):
    id: int
    fence: int
    finished_at: int
    age_ms: int
    owner: str
    error_code: str | None
    job_id: int
    free: int  # can be archived: its job has ended, and it was not restored recently

    @property
    def place(self) -> Place:
        return self.finished_at, self.id


@record
class LetterHead(NamedTuple):
    """A failed item and its request."""

    id: int
    fence: int
    handler: str
    error_code: str | None
    finished_at: int
    body: str | None


@record
class LetterMessage(NamedTuple):
    """A remote worker's message about an item."""

    item_id: int
    owner: str
    fence: int
    kind: str
    received_at: int
    body: str
    is_late: int
    digest: str
    accepted_at: int | None
    accepted_by: str | None


@record
class LetterEvent(NamedTuple):
    """An act on an item's timeline."""

    subject: str
    at: int
    act: str
    detail: str | None


class Letter(NamedTuple):
    """A failed item with everything that belongs to it. Its messages and events are listed by their ids in the
    database."""

    head: LetterHead
    attempts: list[Attempt]
    inbox: dict[int, LetterMessage]
    events: dict[int, LetterEvent]

    @property
    def id(self) -> int:
        return self.head.id


class Leaving(NamedTuple):
    """A letter that has been written to a file, and the texts that stay in the database."""

    id: int
    fence: int
    body: str
    texts: list[tuple[int, str | None]]  # by the fence of each attempt: the part of its message that stays
    inbox: list[int]
    events: list[int]


class ArchiveFile(NamedTuple):
    owner: str
    blob: str
    bytes: int
    digest: str
    first_at: int
    last_at: int


@record
class Archive(NamedTuple):
    id: int
    owner: str
    blob: str
    items: int
    bytes: int
    digest: str
    first_at: int
    last_at: int
    created_at: int
    restored_at: int | None


class ItemsLost(Exception):
    """Some of the items were not available: they were retried, archived or deleted by another process."""


class Archives:
    def __init__(self, database: Database) -> None:
        self._db = database

    # reads

    async def oldest(self, after: Place, n: int, quiet_ms: int) -> list[Candidate]:
        """Failed items of all owners that are not archived, the oldest failures first."""
        finished_at, item = after
        values = {"finished_at": finished_at, "item_id": item, "n": n, "quiet_ms": quiet_ms}
        return await self._db.read(one("letters_oldest", values))

    async def newest(self, before: Place, n: int) -> list[tuple[Place, str]]:
        """The same, the newest failures first: the place of each in the order, and its owner."""
        finished_at, item = before
        rows = await self._db.read(one("letters_newest", {"finished_at": finished_at, "item_id": item, "n": n}))
        return [((row["finished_at"], row["id"]), row["owner"]) for row in rows]

    async def sizes(self, items: Sequence[int]) -> dict[int, int]:
        """The size of some items' texts in bytes."""
        rows = await self._db.read(one("letters_measured", batch=[(item,) for item in items]))
        return {row["id"]: row["bytes"] for row in rows}

    async def letters(self, items: Sequence[int]) -> list[Letter]:
        """Those of the given items that are failed and not archived, with everything that belongs to them."""
        return await self._db.read(lambda: _letters(items))

    # archive and restore

    async def add(self, file: ArchiveFile, leaving: Sequence[Leaving]) -> int:
        """Removes the items' bodies from the database, all of them or none; returns the archive's number."""
        return await self._db.write(lambda: _add(file, leaving))

    async def restore(self, archive: Archive, letters: Sequence[Letter], keep_ms: int) -> int:
        """Restores those of the letters that are still in the archive; they are not archived again for `keep_ms`."""
        return await self._db.write(lambda: _restore(archive, letters, keep_ms))

    async def end_restore(self, archive_id: int) -> None:
        await self._db.write(one("end_restore", {"archive_id": archive_id}))

    # the archives themselves

    async def page(self, owner: str, before: int | None, n: int) -> list[Archive]:
        """An owner's archives, the newest first."""
        values = {"owner": owner, "before": LAST_ID if before is None else before, "n": n}
        return await self._db.read(one("archives_page", values))

    async def archive(self, archive_id: int, owner: str) -> Archive:
        found = await self.find(archive_id)
        if found is None or found.owner != owner:
            raise NotFound(
                f"no archive {archive_id}",
                hint=Sentence("`", NextCommand("deadletters archives"), "` lists all archives"),
            )
        return found

    async def find(self, archive_id: int) -> Archive | None:
        """An archive of any owner."""
        rows: list[Archive] = await self._db.read(one("archive", {"archive_id": archive_id}))
        return rows[0] if rows else None

    async def of_job(self, job_id: int) -> list[int]:
        """The archives that hold any of a job's items."""
        return sorted(row["archive_id"] for row in await self._db.read(one("archives_of_job", {"job_id": job_id})))

    async def replace(self, archive: Archive, file: ArchiveFile, items: int) -> bool:
        """Points the archive to another file. False: another process has replaced it already."""
        values = {"blob": file.blob, "digest": file.digest, "bytes": file.bytes, "items": items}
        return bool(
            await self._db.write(one("replace_archive", {"archive_id": archive.id, "old": archive.blob, **values}))
        )

    async def drop(self, archive: Archive) -> bool:
        return bool(await self._db.write(one("drop_archive", {"archive_id": archive.id, "old": archive.blob})))

    async def find_kept(self, blobs: Sequence[str]) -> set[str]:
        """The files, of these, that hold the only copy of something."""
        return {row["blob"] for row in await self._db.read(one("blobs_kept", batch=[(blob,) for blob in blobs]))}


def _letters(items: Sequence[int]) -> Script[list[Letter]]:
    ids = [(item,) for item in items]
    heads = yield Ask("letters_of", batch=ids)
    found = {head.id: Letter(head, [], {}, {}) for head in heads}
    subjects = {f"item:{item}": item for item in found}
    attempts: list[Attempt] = yield Ask("attempts_of", batch=ids)
    for attempt in attempts:
        if attempt.item_id in found:
            found[attempt.item_id].attempts.append(attempt)
    for message in (yield Ask("inbox_of", batch=ids)):
        if message["item_id"] in found:
            found[message["item_id"]].inbox[message["id"]] = read_row(LetterMessage, message)
    for event in (yield Ask("events_of", batch=[(subject,) for subject in subjects])):
        found[subjects[event["subject"]]].events[event["id"]] = read_row(LetterEvent, event)
    return list(found.values())


def _add(file: ArchiveFile, leaving: Sequence[Leaving]) -> Script[int]:
    [added] = yield Ask("add_archive", {**file._asdict(), "items": len(leaving)})
    number: int = added["id"]
    won = yield Ask("archive_items", {"archive_id": number}, [(letter.id, letter.fence) for letter in leaving])
    jobs = sorted(Counter(job_of(letter.id) for letter in leaving).items())
    if len(won) < len(leaving) or len((yield Ask("archive_in_jobs", {"owner": file.owner}, jobs))) < len(jobs):
        raise ItemsLost
    yield Ask("write_bodies", batch=[(letter.id, letter.body) for letter in leaving])
    last = f"in archive {number}: backstay deadletters restore {number}"
    texts = [
        (letter.id, fence, " · ".join(filter(None, (kept, last))) if fence == letter.fence else kept, None)
        for letter in leaving
        for fence, kept in letter.texts
    ]
    yield from _some("write_texts", texts)
    yield from _some("archive_messages", [(one,) for letter in leaving for one in letter.inbox])
    yield from _some("archive_events", [(one,) for letter in leaving for one in letter.events])
    yield Ask("write_events", batch=[(f"item:{letter.id}", "archived", f"archive {number}") for letter in leaving])
    return number


def _restore(archive: Archive, letters: Sequence[Letter], keep_ms: int) -> Script[int]:
    values = {"archive_id": archive.id, "owner": archive.owner, "keep_ms": keep_ms}
    won = {row["id"] for row in (yield Ask("restore_items", values, [(letter.id,) for letter in letters]))}
    back = [letter for letter in letters if letter.id in won]
    if not back:
        return 0
    jobs = sorted(Counter(job_of(letter.id) for letter in back).items())
    yield Ask("archive_in_jobs", {"owner": archive.owner}, [(job_id, -items) for job_id, items in jobs])
    yield Ask("write_bodies", batch=[(letter.id, letter.head.body) for letter in back if letter.head.body is not None])
    tries = [attempt for letter in back for attempt in letter.attempts]
    yield from _some("write_texts", [(one.item_id, one.fence, one.message, one.result) for one in tries])
    yield from _some("restore_inbox", [message for letter in back for message in letter.inbox.values()])
    yield from _some("restore_events", [event for letter in back for event in letter.events.values()])
    detail = f"from archive {archive.id}"
    yield Ask("write_events", batch=[(f"item:{letter.id}", "restored", detail) for letter in back])
    return len(back)


def _some(name: str, rows: Sequence[Any]) -> Script[None]:
    if rows:
        yield Ask(name, batch=rows)
