"""Finds a request whose batch was created but never stored here: by the file that the batch was made of."""

import asyncio
from collections.abc import Sequence
from typing import BinaryIO, Final

from backstay.clock import Clock, Tasks
from backstay.core.errors import Transient
from backstay.handlers.function import in_thread
from backstay.llm.batch_results import LineIndex, references_by_number
from backstay.llm.openai.batch_api import COMPLETED, FilesAndBatches, OpenAiBatch, OurFile
from backstay.llm.openai.batch_results import reference_of
from backstay.llm.temporary_files import open_temporary

CLOCKS_APART_SECONDS: Final = 86_400  # the provider's and the database's, at most
FRESH_SECONDS: Final = 5.0  # how old a survey may be that found nothing: less than the margin before a look-up
WAIT_SECONDS: Final = 40.0
FILES_REMEMBERED_MAX: Final = 200


class BatchLookup:
    """Many references at a time are looked up together: each file is read once."""

    def __init__(self, api: FilesAndBatches, clock: Clock, tasks: Tasks) -> None:
        self._api = api
        self._clock = clock
        self._tasks = tasks
        self._indexes: dict[str, LineIndex] = {}  # by file
        self._batches: dict[str, str] = {}  # by file
        self._unused: dict[str, str] = {}  # files without a batch, by the digests in their names
        self._gone: list[OpenAiBatch] = []  # those whose content is unknown
        self._survey: asyncio.Task[None] | None = None
        self._began_at = float("-inf")  # of the survey that is under way, or was the last
        self._fresh_from = float("-inf")  # of the last completed survey
        self._covers_from = float("inf")  # the second from which it read the batches
        self._wanted_from = float("inf")

    def remember(self, file_id: str, refs: Sequence[str]) -> None:
        """Records the content of a file that we uploaded, so that it need not be downloaded."""
        self._indexes[file_id] = LineIndex((ref, number) for number, ref in enumerate(refs, start=1))
        while len(self._indexes) > FILES_REMEMBERED_MAX + len(self._batches):
            del self._indexes[next(file for file in self._indexes if file not in self._batches)]

    def unused(self, digest: str) -> str | None:
        """The file of these requests, if one was uploaded and no batch was made of it."""
        return self._unused.get(digest)

    def keep_unused(self, digest: str, file_id: str) -> None:
        self._unused[digest] = file_id
        while len(self._unused) > FILES_REMEMBERED_MAX:
            del self._unused[next(iter(self._unused))]

    def use(self, digest: str) -> None:
        """Forgets the file: a batch is about to be made of it, or it cannot be used."""
        self._unused.pop(digest, None)

    async def find(self, ref: str, since: int) -> str | None:
        """The batch of the request; None if there certainly is none. Raises if it is not certain.

        `since`: the second before which the request was certainly not sent, so no older batch has it.
        """
        asked_at = self._clock.monotonic()
        since -= CLOCKS_APART_SECONDS
        while (found := self._known(ref)) is None and not self._surveyed(asked_at, since):
            self._wanted_from = min(self._wanted_from, since)
            await self._wait_for_survey()
        gone = next((batch for batch in self._gone if batch.created_at is None or batch.created_at >= since), None)
        if found is None and gone is not None:
            raise Transient(f"the file of {gone.id} was deleted at the provider, so its content is not known")
        return found

    def _known(self, ref: str) -> str | None:
        """The batch of a request, once known, does not change."""
        return next((batch for file, batch in self._batches.items() if ref in self._indexes[file]), None)

    def _surveyed(self, asked_at: float, since: int) -> bool:
        return self._fresh_from >= asked_at - FRESH_SECONDS and self._covers_from <= since

    async def index(self, file_id: str) -> LineIndex | None:
        """The references in a file and the numbers of their lines; None if the file is gone."""
        known = self._indexes.get(file_id)
        if known is not None:
            return known
        with open_temporary() as file:
            if not await self._api.download(file_id, file):
                return None
            self._indexes[file_id] = await in_thread(lambda: _read(file))
        return self._indexes[file_id]

    async def _wait_for_survey(self) -> None:
        """A survey of many files may take longer than one question: it continues, and is asked for again."""
        if self._survey is None or self._survey.done():
            self._began_at = self._clock.monotonic()
            self._survey = self._tasks.spawn(self._look())
        survey = self._survey
        await asyncio.wait((survey,), timeout=WAIT_SECONDS)
        if not survey.done():
            raise Transient("the provider's batches are still being searched")
        survey.result()

    async def _look(self) -> None:
        began_at, since = self._began_at, int(self._wanted_from)
        files = await self._api.our_files()
        batches = await self._api.since(since)
        self._keep_those_without_batches(files, batches, since)
        ours = {file.id for file in files}
        kept: set[str] = set()
        gone: list[OpenAiBatch] = []
        for batch in batches:
            file_id = batch.input_file_id
            if file_id is None or not (batch.marked or file_id in ours):
                continue
            if await self.index(file_id) is None and not await self._index_results(batch, file_id):
                gone.append(batch)
                continue
            self._batches[file_id] = batch.id
            kept.add(file_id)
        for file_id in self._batches.keys() - kept:
            del self._batches[file_id], self._indexes[file_id]
        self._gone, self._fresh_from, self._covers_from = gone, began_at, since

    def _keep_those_without_batches(self, files: Sequence[OurFile], batches: Sequence[OpenAiBatch], since: int) -> None:
        """A process that was killed between upload and batch leaves such a file. Older files may have batches that are
        not listed here."""
        used = {batch.input_file_id for batch in batches}
        for digest in [digest for digest, file_id in self._unused.items() if file_id in used]:
            del self._unused[digest]
        for file in files:
            if file.id not in used and file.created_at is not None and file.created_at >= since:
                self.keep_unused(file.digest, file.id)

    async def _index_results(self, batch: OpenAiBatch, file_id: str) -> bool:
        """Whether the results of a batch show the content of its file: there is one for each request."""
        if batch.status != COMPLETED:
            return False
        lines = LineIndex([*await self._lines(batch.output_file_id), *await self._lines(batch.error_file_id)])
        if not 0 < batch.total <= len(lines.keys()):
            return False
        self._indexes[file_id] = lines
        return True

    async def _lines(self, file_id: str | None) -> list[tuple[str, int]]:
        with open_temporary() as file:
            if file_id is None or not await self._api.download(file_id, file):
                return []
            return list(await in_thread(lambda: list(references_by_number(file, reference_of))))

    async def close(self) -> None:
        if self._survey is not None:
            self._survey.cancel()
            await asyncio.gather(self._survey, return_exceptions=True)


def _read(file: BinaryIO) -> LineIndex:
    return LineIndex(references_by_number(file, reference_of))
