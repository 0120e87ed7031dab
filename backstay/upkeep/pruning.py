"""Pruning: deletes old jobs of each owner by age and by number, with an archive before, in small steps."""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from backstay.artifacts import Artifacts, file_of
from backstay.clock import DAY_MS, Clock, new_id
from backstay.core.errors import BackstayError, DatabaseUnreachable, NotAllowed, UsageError
from backstay.core.ids import item_range, job_of, show_item
from backstay.core.states import ItemState
from backstay.settings import Settings
from backstay.store.archives import BEFORE_ALL, Letter, Place
from backstay.store.pruning import FinishedJob, ItemStory, JobArchive
from backstay.store.results import ROWS_FIRST, rows_next
from backstay.store.store import Store
from backstay.upkeep.archivist import JOBS_FOLDER, Archivist, line_of, read, without_item, write_lines, zstd

PAGE_JOBS: Final = 50  # of one owner before the next owner's turn
STEP_ITEMS: Final = 500  # deleted by one transaction
REST: Final = 4  # how many times as long as a step took the database then belongs to the others
QUIET_MS: Final = 3_600_000  # after its end a job's results may still be read
_HEAD: Final = {"format": "backstay job", "version": 1}
HELD: Final = "another job waits for it, or the results of its batch are being written"
_NO_PLACE: Final = "its dead letters are in archives, and BACKSTAY_DATA does not say where archives are"


class PruneRules(NamedTuple):
    """What each owner keeps; both rules name the oldest jobs. `owner`: only this one's jobs are touched."""

    age_ms: int | None
    keep: int | None
    archive: bool
    owner: str | None = None
    quiet_ms: int = QUIET_MS


class PrunedJob(NamedTuple):
    """A job that was deleted, or why it was not."""

    job_id: int
    owner: str
    items: int
    archive: str | None = None  # the file
    skipped: str | None = None
    held: bool = False  # skipped for a reason that passes by itself


def rules_of(settings: Settings) -> PruneRules | None:
    """None if every job is kept."""
    if settings.job_days is None and settings.job_count is None:
        return None
    age_ms = None if settings.job_days is None else int(settings.job_days * DAY_MS)
    return PruneRules(age_ms, settings.job_count, settings.job_archive)


class Pruner:
    """Any number of processes may prune at once; whatever stops one of them, the next run continues."""

    def __init__(self, store: Store, artifacts: Artifacts | None, clock: Clock, rules: PruneRules) -> None:
        if rules.archive:
            if artifacts is None:
                hint = "set BACKSTAY_DATA to a folder or s3://bucket/prefix, or delete jobs without an archive"
                raise UsageError("jobs cannot be archived: there is no place for files", hint=hint)
            zstd()  # says what to install
        self._store = store
        self._artifacts = artifacts
        self._clock = clock
        self._rules = rules
        self._last_owner = ""  # whose turn was last

    async def run(self, seconds: float | None = None) -> AsyncIterator[PrunedJob]:
        """Deletes what the rules name, and the rest of jobs whose deletion was interrupted. After `seconds` it begins
        with no further job."""
        end = None if seconds is None else self._clock.monotonic() + seconds
        for job_id in await self._store.jobs.disowned_jobs():
            if skipped := await self._finish_left(job_id):
                yield PrunedJob(job_id, "", 0, skipped=skipped)
        async for job in self.chosen_jobs():
            if end is not None and self._clock.monotonic() >= end:
                return
            yield await self._prune(job)

    async def chosen_jobs(self) -> AsyncIterator[FinishedJob]:
        """The jobs that the rules name: of each owner the oldest first, a page of each owner in turn."""
        rules, pruning = self._rules, self._store.pruning
        owners = await pruning.owners() if rules.owner is None else [rules.owner]
        owners.sort(key=lambda owner: (owner <= self._last_owner, owner))
        places: dict[str, Place] = dict.fromkeys(owners, BEFORE_ALL)
        until = {owner: await pruning.until(owner, rules.age_ms, rules.keep, rules.quiet_ms) for owner in owners}
        while places:
            for owner in list(places):
                page = await pruning.page(owner, places[owner], until[owner], PAGE_JOBS)
                self._last_owner = owner
                for job in page:
                    yield job
                if len(page) < PAGE_JOBS:
                    del places[owner]
                else:
                    places[owner] = page[-1].place

    async def _prune(self, job: FinishedJob) -> PrunedJob:
        """One job. Whatever keeps it from being deleted is its own matter: the others go on."""
        pruned = PrunedJob(job.id, job.owner, job.total)
        if job.held:
            return pruned._replace(skipped=HELD, held=True)
        if job.archived and self._artifacts is None:
            return pruned._replace(skipped=_NO_PLACE)
        try:
            archive = await self._remove(job)
            await self._finish(job.id)
        except DatabaseUnreachable:
            raise
        except BackstayError as error:
            return pruned._replace(skipped=error.message)
        return pruned._replace(archive=archive and archive.blob)

    async def _remove(self, job: FinishedJob) -> JobArchive | None:
        """The file first; then one transaction registers it and makes the job disappear. After a kill between the two
        the job is still there, and the file is deleted after a day."""
        archive = None
        if self._rules.archive and self._artifacts is not None:
            archive = await JobArchivist(self._store, self._artifacts, self._clock).write(job)
        try:
            await self._store.pruning.remove(job, archive)
        except BackstayError as error:
            if archive is not None and self._artifacts is not None and not isinstance(error, DatabaseUnreachable):
                await self._artifacts.delete(archive.blob)
            raise
        return archive

    async def _finish_left(self, job_id: int) -> str | None:
        """Goes on with what a process that is gone had begun; returns why it could not."""
        try:
            await self._finish(job_id)
        except DatabaseUnreachable:
            raise
        except BackstayError as error:
            return error.message
        return None

    async def _finish(self, job_id: int) -> None:
        """Deletes the rows of a job that has disappeared, in small steps with a rest after each."""
        if self._artifacts is not None:
            await delete_artifacts(self._store, self._artifacts, self._clock, job_id)
        elif await self._store.archives.of_job(job_id):
            raise NotAllowed(f"job {job_id} cannot be deleted completely: {_NO_PLACE}")
        while True:
            began = self._clock.monotonic()
            if not await self._store.jobs.purge_some(job_id, STEP_ITEMS):
                return
            await self._clock.sleep(REST * (self._clock.monotonic() - began))


async def delete_artifacts(store: Store, artifacts: Artifacts, clock: Clock, job_id: int) -> None:
    """Before the job's rows: while they exist, another process can find and delete the rest. Files of results that an
    archive names stay until they expire."""
    async for name in artifacts.names(f"logs/{job_id}"):
        await artifacts.delete(name)
    if await store.pruning.archive(job_id) is None:
        async for name in artifacts.names(f"results/{job_id}"):
            await store.files.drop(file_of(name))  # before its bytes, which tell of it
            await artifacts.delete(name)
    await Archivist(store.archives, artifacts, clock).forget(job_id)


class JobArchivist:
    """Writes a job with all its items, results and events to one file, in constant memory."""

    def __init__(self, store: Store, artifacts: Artifacts, clock: Clock) -> None:
        self._store = store
        self._artifacts = artifacts
        self._clock = clock

    async def write(self, job: FinishedJob) -> JobArchive:
        view = await self._store.job_views.get(job.id, job.owner)
        events = [without_item(one._asdict()) for one in await self._store.pruning.job_events(job.id)]
        # The time in its name gives the age of a file that was never registered.
        blob = f"{JOBS_FOLDER}/{self._clock.now_ms():015d}-{job.id}-{new_id()}.jsonl.zst"
        head = {**_HEAD, "owner": job.owner, "job": asdict(view), "events": events}
        items = 0

        async def counted() -> AsyncIterator[list[bytes]]:
            nonlocal items
            async for lines in self._lines(job.id):
                items += len(lines)
                yield lines

        sealed = await write_lines(self._artifacts, blob, head, counted(), bytes)
        if items != job.total:
            await self._artifacts.delete(blob)
            raise NotAllowed(f"job {job.id} has {job.total} items, but only {items} were found to archive")
        return JobArchive(job.id, job.owner, blob, items, *sealed, job.finished_at)

    async def _lines(self, job_id: int) -> AsyncIterator[list[bytes]]:
        """Items whose texts are in archives of dead letters come last."""
        archived = set[int]()
        cursor, n = item_range(job_id)[0] - 1, ROWS_FIRST
        while page := await self._store.pruning.items(job_id, cursor, n):
            archived.update(story.item.archive_id for story in page if story.item.archive_id is not None)
            yield [story_line(story) for story in page if story.item.archive_id is None]
            cursor, n = page[-1].item.id, rows_next(n, [story.characters for story in page])
        for number in sorted(archived):
            found = await self._store.archives.find(number)
            if found is None:
                raise NotAllowed(f"dead letters of job {job_id} are in archive {number}, which is gone")
            async for letters in read(self._artifacts, found):
                yield [_letter_line(letter) for letter in letters if job_of(letter.id) == job_id]


def story_line(story: ItemStory) -> bytes:
    """Texts are stored as texts, even if they are JSON, as in archives of dead letters."""
    item = story.item._asdict()
    said = {"item": show_item(story.item.id), **{name: item[name] for name in item if name not in _UNSAID}}
    said["request"] = story.item.body
    for name, parts in _parts(story):
        said[name] = [without_item(part) for part in parts]
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"


_UNSAID: Final = ("id", "body", "archive_id")


def _parts(story: ItemStory) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    yield "attempts", [one._asdict() for one in story.attempts]
    yield "inbox", [one._asdict() for one in story.inbox]
    yield "events", [one._asdict() for one in story.events]
    yield "copies", [one._asdict() for one in story.copies]


def _letter_line(letter: Letter) -> bytes:
    return line_of(letter).replace(b"{", f'{{"state":"{ItemState.FAILED}",'.encode(), 1)
