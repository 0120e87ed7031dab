"""Archives of dead letters and of deleted jobs: first the file, then one transaction that records it. And back."""

import asyncio
import hashlib
import io
import json
import sys
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from typing import IO, Any, Final, NamedTuple, TypeVar

from backstay.artifacts import Artifacts
from backstay.clock import Clock, new_id
from backstay.core.errors import NotAllowed, NotFound, UsageError
from backstay.core.ids import item_range, job_of, read_item, show_item
from backstay.core.models import Attempt
from backstay.core.states import ItemState
from backstay.llm.lines import seal, unseal
from backstay.store.archives import (
    Archive,
    ArchiveFile,
    Archives,
    Candidate,
    ItemsLost,
    Leaving,
    Letter,
    LetterEvent,
    LetterHead,
    LetterMessage,
)
from backstay.store.jobs import FinishedJob, ItemStory, JobArchive
from backstay.store.results import ROWS_FIRST, rows_next
from backstay.store.store import Store

T = TypeVar("T")

LEVEL: Final = 9
READ_BYTES: Final = 1 << 20
PAGE_LINES: Final = 100
PAGE_BYTES: Final = 4 << 20  # held in memory at once, roughly
MESSAGE_CHARACTERS_MAX: Final = 200  # that stay in the database
GONE: Final = '{"archived":true}'  # in place of a body

_HEAD: Final = {"format": "backstay dead letters", "version": 1}


class WrittenFile(NamedTuple):
    """A file that was written whole."""

    bytes: int
    digest: str


def line_of(letter: Letter) -> bytes:
    """Texts are stored as texts, even if they are JSON, so that they come back byte for byte."""
    said = {
        "item": show_item(letter.id),
        "fence": letter.head.fence,
        "handler": letter.head.handler,
        "error_code": letter.head.error_code,
        "finished_at": letter.head.finished_at,
        "request": letter.head.body,
        "attempts": [without_item(attempt._asdict()) for attempt in letter.attempts],
        "inbox": [{"id": number, **without_item(one._asdict())} for number, one in letter.inbox.items()],
        "events": [{"id": number, **without_item(one._asdict())} for number, one in letter.events.items()],
    }
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"


def letter_of(line: bytes) -> Letter:
    said = json.loads(line)
    item = read_item(said["item"])
    told = {name: said[name] for name in ("fence", "handler", "error_code", "finished_at")}
    return Letter(
        LetterHead(item, **told, body=said["request"]),
        [Attempt(item, **one) for one in said["attempts"]],
        {one.pop("id"): LetterMessage(item, **one) for one in said["inbox"]},
        {one.pop("id"): LetterEvent(f"item:{item}", **one) for one in said["events"]},
    )


def without_item(said: dict[str, Any]) -> dict[str, Any]:
    """The line names its item only once."""
    return {name: value for name, value in said.items() if name not in ("item_id", "subject")}


def leaving_of(letter: Letter) -> Leaving:
    head = letter.head
    texts = [
        (one.fence, None if one.message is None else one.message[:MESSAGE_CHARACTERS_MAX])
        for one in letter.attempts
        if one.fence == head.fence or one.result is not None or len(one.message or "") > MESSAGE_CHARACTERS_MAX
    ]
    return Leaving(head.id, head.fence, stub_of(head.body or ""), texts, list(letter.inbox), list(letter.events))


def stub_of(body: str) -> str:
    """A request keeps its custom_id, its url and its metadata: they are part of its line in an error file."""
    if not body.startswith('{"custom_id":'):
        return GONE
    try:
        request = unseal(body)
    except (ValueError, KeyError, TypeError):
        return GONE
    if seal(request) != body:  # a user's own payload that only begins like one
        return GONE
    return seal(request._replace(body=GONE, chat=None))


async def write(artifacts: Artifacts, blob: str, owner: str, pages: AsyncIterable[Sequence[Letter]]) -> WrittenFile:
    return await write_lines(artifacts, blob, {**_HEAD, "owner": owner}, pages, line_of)


async def write_lines(
    artifacts: Artifacts,
    blob: str,
    head: Mapping[str, Any],
    pages: AsyncIterable[Sequence[T]],
    line: Callable[[T], bytes],
) -> WrittenFile:
    """Writes the file; it exists as a whole, or not at all."""
    digest = hashlib.sha256()

    async def counted() -> AsyncIterator[bytes]:
        async for piece in _compress(head, pages, line):
            digest.update(piece)
            yield piece

    return WrittenFile(await artifacts.put(blob, counted()), digest.hexdigest())


async def _compress(
    head: Mapping[str, Any], pages: AsyncIterable[Sequence[T]], line: Callable[[T], bytes]
) -> AsyncIterator[bytes]:
    press = zstd().ZstdCompressor(level=LEVEL)

    def squeeze(page: Sequence[T]) -> bytes:
        return b"".join(press.compress(line(one)) for one in page)

    yield press.compress(json.dumps(head).encode() + b"\n")
    async for page in pages:
        yield await asyncio.to_thread(squeeze, page)
    yield press.flush()


async def read(artifacts: Artifacts, archive: Archive) -> AsyncIterator[list[Letter]]:
    """The letters of an archive, page by page, after its checksum was verified."""
    with tempfile.TemporaryFile() as file:
        await _fetch(artifacts, archive, file)
        file.seek(0)
        lines = io.BufferedReader(zstd().ZstdFile(file), READ_BYTES)
        head = json.loads(await asyncio.to_thread(lines.readline))
        if {name: head.get(name) for name in _HEAD} != _HEAD:
            raise NotAllowed(f"archive {archive.id} was written by another version", hint="upgrade backstay")
        while page := await asyncio.to_thread(_page, lines):
            yield page


def _page(lines: "io.BufferedReader[Any]") -> list[Letter]:
    page, size = list[Letter](), 0
    while len(page) < PAGE_LINES and size < PAGE_BYTES and (line := lines.readline()):
        page.append(letter_of(line))
        size += len(line)
    return page


async def _fetch(artifacts: Artifacts, archive: Archive, file: IO[bytes]) -> None:
    """Copies it into a private file, so that the bytes that were checked are the bytes that are read."""
    digest = hashlib.sha256()
    try:
        async for piece in artifacts.get(archive.blob):
            digest.update(piece)
            file.write(piece)
    except NotFound:
        hint = f"look for {archive.blob} in BACKSTAY_DATA, or in a backup of it"
        raise NotAllowed(f"the file of archive {archive.id} is gone", hint=hint) from None
    if digest.hexdigest() != archive.digest:
        hint = f"nothing was changed; look for an older copy of {archive.blob}"
        raise NotAllowed(f"the file of archive {archive.id} is damaged: its checksum differs", hint=hint)


def zstd() -> Any:
    """zstd is part of Python from 3.14 on; before that the extra `service` installs it."""
    try:
        return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    except ImportError:
        raise UsageError(
            "archives need packages that are not installed", hint="pip install 'backstay[service]'"
        ) from None


FOLDER: Final = "archives"
JOBS_FOLDER: Final = "job-archives"  # of deleted jobs
ORPHAN_MS: Final = 86_400_000  # after this time a file without an archive is a leftover
SWEPT_AT_ONCE: Final = 500
ARCHIVE_BYTES_MAX: Final = 64 << 20  # of letters in one file, unless one alone has more
ARCHIVE_ITEMS_MAX: Final = 2_000


class Archivist:
    def __init__(self, archives: Archives, artifacts: Artifacts, clock: Clock) -> None:
        self._archives = archives
        self._artifacts = artifacts
        self._clock = clock

    def _new_blob(self) -> str:
        """The time in its name gives the age of a file without an archive."""
        return f"{FOLDER}/{self._clock.now_ms():015d}-{new_id()}.jsonl.zst"

    async def archive(self, chosen: Sequence[Candidate]) -> int:
        """Takes some items of one owner out of the database, in as many files as they need; returns how many items were
        archived. A crash before the transaction leaves only a file without an archive."""
        sizes = await self._archives.sizes([one.id for one in chosen])
        gone = 0
        for part in _parts(chosen, sizes):
            gone += await self._archive(part, sizes)
        return gone

    async def _archive(self, chosen: Sequence[Candidate], sizes: dict[int, int]) -> int:
        blob, owner, left = self._new_blob(), chosen[0].owner, list[Leaving]()

        async def pages() -> AsyncIterator[list[Letter]]:
            for some in _pages(chosen, sizes):
                letters = await self._archives.letters([one.id for one in some])
                left.extend(map(leaving_of, letters))
                yield letters

        sealed = await write(self._artifacts, blob, owner, pages())
        times = [one.finished_at for one in chosen]
        try:
            if left:
                await self._archives.add(ArchiveFile(owner, blob, *sealed, min(times), max(times)), left)
                return len(left)
        except ItemsLost:
            left.clear()  # another process changed them; the next pass finds the rest
        await self._artifacts.delete(blob)
        return 0

    async def restore(self, archive: Archive, keep_ms: int) -> int:
        """Restores what is still in an archive; a second call changes nothing."""
        if archive.restored_at is not None:
            return 0
        back = 0
        async for letters in read(self._artifacts, archive):
            back += await self._archives.restore(archive, letters, keep_ms)
        await self._archives.end_restore(archive.id)
        await self._artifacts.delete(archive.blob)
        return back

    async def forget(self, job_id: int) -> None:
        """Deletes a job's letters from archives; an archive without other letters is deleted completely."""
        for archive_id in await self._archives.of_job(job_id):
            archive = await self._archives.find(archive_id)
            if archive is not None:
                await self._without(archive, job_id)

    async def _without(self, archive: Archive, job_id: int) -> None:
        blob, kept = self._new_blob(), 0

        async def others() -> AsyncIterator[list[Letter]]:
            nonlocal kept
            async for letters in read(self._artifacts, archive):
                rest = [letter for letter in letters if job_of(letter.id) != job_id]
                kept += len(rest)
                yield rest

        try:
            sealed = await write(self._artifacts, blob, archive.owner, others())
        except NotAllowed:  # it is damaged or lost and can never be restored: nothing to delete from it
            return
        if kept:
            file = ArchiveFile(archive.owner, blob, *sealed, archive.first_at, archive.last_at)
            done = await self._archives.replace(archive, file, kept)
        else:
            done = await self._archives.drop(archive)
        if not (done and kept):
            await self._artifacts.delete(blob)
        if done:
            await self._artifacts.delete(archive.blob)

    async def sweep(self) -> int:
        """Deletes files that a crash left and that belong to no archive after a day; returns how many."""
        return await self._sweep_folder(FOLDER) + await self._sweep_folder(JOBS_FOLDER)

    async def _sweep_folder(self, folder: str) -> int:
        swept, old = 0, list[str]()
        async for name in self._artifacts.names(folder):
            stem = name.rpartition("/")[2].partition("-")[0]
            if stem.isdigit() and int(stem) < self._clock.now_ms() - ORPHAN_MS:
                old.append(name)
            if len(old) == SWEPT_AT_ONCE:
                swept, old = swept + await self._sweep(old), []
        return swept + (await self._sweep(old) if old else 0)

    async def _sweep(self, names: Sequence[str]) -> int:
        orphans = sorted(set(names) - await self._archives.find_kept(names))
        for name in orphans:
            await self._artifacts.delete(name)
        return len(orphans)


def _parts(chosen: Sequence[Candidate], sizes: dict[int, int]) -> Iterator[list[Candidate]]:
    return _cut(chosen, sizes, ARCHIVE_ITEMS_MAX, ARCHIVE_BYTES_MAX)


def _pages(chosen: Sequence[Candidate], sizes: dict[int, int]) -> Iterator[list[Candidate]]:
    return _cut(chosen, sizes, PAGE_LINES, PAGE_BYTES)


def _cut(
    chosen: Sequence[Candidate], sizes: dict[int, int], items_max: int, bytes_max: int
) -> Iterator[list[Candidate]]:
    part, size = list[Candidate](), 0
    for one in chosen:
        own = sizes.get(one.id, 0)
        if part and (len(part) == items_max or size + own > bytes_max):
            yield part
            part, size = [], 0
        part.append(one)
        size += own
    if part:
        yield part


_JOB_HEAD: Final = {"format": "backstay job", "version": 1}
_LEFT_OUT: Final = ("id", "body", "archive_id")


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
        head = {**_JOB_HEAD, "owner": job.owner, "job": asdict(view), "events": events}
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
    said = {"item": show_item(story.item.id), **{name: item[name] for name in item if name not in _LEFT_OUT}}
    said["request"] = story.item.body
    for name, parts in _lists_of(story):
        said[name] = [without_item(part) for part in parts]
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"


def _lists_of(story: ItemStory) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    yield "attempts", [one._asdict() for one in story.attempts]
    yield "inbox", [one._asdict() for one in story.inbox]
    yield "events", [one._asdict() for one in story.events]
    yield "copies", [one._asdict() for one in story.copies]


def _letter_line(letter: Letter) -> bytes:
    return line_of(letter).replace(b"{", f'{{"state":"{ItemState.FAILED}",'.encode(), 1)
