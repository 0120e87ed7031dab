"""Puts dead letters into archives and takes them out again: the file first, then one transaction that records it."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from backstay.clock import Clock, new_id
from backstay.core.errors import NotAllowed
from backstay.core.ids import job_of
from backstay.files.artifacts import Artifacts
from backstay.store.archives import Archive, ArchiveFile, Archives, Candidate, ItemsLost, Leaving, Letter
from backstay.upkeep import archive_file

FOLDER: Final = "archives"
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
                left.extend(map(archive_file.leaving, letters))
                yield letters

        sealed = await archive_file.write(self._artifacts, blob, owner, pages())
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
        async for letters in archive_file.read(self._artifacts, archive):
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
            async for letters in archive_file.read(self._artifacts, archive):
                rest = [letter for letter in letters if job_of(letter.id) != job_id]
                kept += len(rest)
                yield rest

        try:
            sealed = await archive_file.write(self._artifacts, blob, archive.owner, others())
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
        swept, old = 0, list[str]()
        async for name in self._artifacts.names(FOLDER):
            stem = name.rpartition("/")[2].partition("-")[0]
            if stem.isdigit() and int(stem) < self._clock.now_ms() - ORPHAN_MS:
                old.append(name)
            if len(old) == SWEPT_AT_ONCE:
                swept, old = swept + await self._sweep(old), []
        return swept + (await self._sweep(old) if old else 0)

    async def _sweep(self, names: Sequence[str]) -> int:
        orphans = sorted(set(names) - await self._archives.kept(names))
        for name in orphans:
            await self._artifacts.delete(name)
        return len(orphans)


def _parts(chosen: Sequence[Candidate], sizes: dict[int, int]) -> Iterator[list[Candidate]]:
    return _cut(chosen, sizes, ARCHIVE_ITEMS_MAX, ARCHIVE_BYTES_MAX)


def _pages(chosen: Sequence[Candidate], sizes: dict[int, int]) -> Iterator[list[Candidate]]:
    return _cut(chosen, sizes, archive_file.PAGE_LINES, archive_file.PAGE_BYTES)


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
