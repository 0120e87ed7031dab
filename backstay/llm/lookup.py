"""Finds a request again whose batch was created and never written down: by the file that the batch was made of."""

import asyncio
import tempfile
from collections.abc import Sequence
from typing import BinaryIO, Final

from backstay.clock import Clock, Tasks
from backstay.core.errors import Transient
from backstay.handlers.function import in_thread
from backstay.llm.batch_api import BatchApi
from backstay.llm.line_index import LineIndex, refs_by_number

DAYS_BACK: Final = 15  # no request lives so long
FRESH_SECONDS: Final = 5.0  # how old a survey may be that says no: less than the margin before anyone asks
WAIT_SECONDS: Final = 40.0
FILES_REMEMBERED_MAX: Final = 200


class Lookup:
    """Asked about many references at a time, it looks once for all of them, and reads each file once."""

    def __init__(self, api: BatchApi, clock: Clock, tasks: Tasks) -> None:
        self._api = api
        self._clock = clock
        self._tasks = tasks
        self._indexes: dict[str, LineIndex] = {}  # by file
        self._batches: dict[str, str] = {}  # by file
        self._survey: asyncio.Task[None] | None = None
        self._began_at = float("-inf")  # of the survey that is under way, or was the last
        self._fresh_from = float("-inf")  # of the last survey that came to its end

    def remember(self, file_id: str, refs: Sequence[str]) -> None:
        """A file of our own need not be downloaded to be known."""
        self._indexes[file_id] = LineIndex((ref, number) for number, ref in enumerate(refs, start=1))
        while len(self._indexes) > FILES_REMEMBERED_MAX + len(self._batches):
            del self._indexes[next(file for file in self._indexes if file not in self._batches)]

    async def find(self, ref: str) -> str | None:
        """The batch that the request is in; None if there certainly is none. Whatever is not certain is raised."""
        asked_at = self._clock.monotonic()
        while (found := self._known(ref)) is None and self._fresh_from < asked_at - FRESH_SECONDS:
            await self._wait_for_survey()
        return found

    def _known(self, ref: str) -> str | None:
        """Once it is known which batch a request is in, that stays so."""
        return next((batch for file, batch in self._batches.items() if ref in self._indexes[file]), None)

    async def index(self, file_id: str) -> LineIndex | None:
        """The references in a file and the numbers of their lines; None if the file is gone."""
        known = self._indexes.get(file_id)
        if known is not None:
            return known
        with tempfile.TemporaryFile(prefix="backstay-") as file:
            if not await self._api.download(file_id, file):
                return None
            self._indexes[file_id] = await in_thread(lambda: _read(file))
        return self._indexes[file_id]

    async def _wait_for_survey(self) -> None:
        """A survey of many files may take longer than one question may: it goes on, and is asked for again."""
        if self._survey is None or self._survey.done():
            self._began_at = self._clock.monotonic()
            self._survey = self._tasks.spawn(self._look())
        survey = self._survey
        await asyncio.wait((survey,), timeout=WAIT_SECONDS)
        if not survey.done():
            raise Transient("the batches are still being looked through")
        survey.result()

    async def _look(self) -> None:
        began_at = self._began_at
        horizon = self._clock.now_ms() // 1000 - DAYS_BACK * 86_400
        ours = await self._api.our_files()
        kept: set[str] = set()
        for batch in await self._api.since(horizon):
            file_id = batch.input_file_id
            if file_id is None or not (batch.marked or file_id in ours):
                continue
            if await self.index(file_id) is None:
                raise Transient(f"the file of {batch.id} is gone, so what was in it is not certain")
            self._batches[file_id] = batch.id
            kept.add(file_id)
        for file_id in self._batches.keys() - kept:
            del self._batches[file_id], self._indexes[file_id]
        self._fresh_from = began_at

    async def close(self) -> None:
        if self._survey is not None:
            self._survey.cancel()
            await asyncio.gather(self._survey, return_exceptions=True)


def _read(file: BinaryIO) -> LineIndex:
    return LineIndex(refs_by_number(file))
