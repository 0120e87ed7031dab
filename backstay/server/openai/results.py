"""The files of an ended batch: what succeeded, what did not, and the status that this makes it."""

from collections.abc import AsyncIterator

from backstay.clock import new_id
from backstay.core.states import BatchStatus, JobState
from backstay.files.stored_files import Deposit
from backstay.run.result_line import CANCELLED, Ended, lines_of
from backstay.server.openai.content import BATCH_EXPIRED, EXPIRED_WORDS, result_lines
from backstay.server.openai.reading import requests_of
from backstay.server.service import Service
from backstay.store.batches import Batch
from backstay.store.files import ERRORS, OUTPUT, NewFile

UNSENT_WORDS = "the batch was cancelled before this request was done"


class Results:
    def __init__(self, service: Service, batch: Batch) -> None:
        self._service = service
        self._batch = batch
        self._deposit = Deposit(service.store.files, service.artifacts, batch.owner)
        self._out_of_money = False

    async def write(self) -> bool:
        """Writes the files and ends the batch with them. False: someone else has."""
        batch = self._batch
        self._out_of_money = await self._is_out_of_money()
        failed = (batch.failed or 0) + (batch.cancelled or 0) + await self._unsent()
        output = await self._file(OUTPUT) if batch.succeeded else None
        errors = await self._file(ERRORS) if failed else None
        ended = await self._service.store.batches.end(batch, await self._status(), output, errors)
        if not ended:
            for file in (output, errors):
                if file is not None and file.blob is not None:
                    await self._deposit.delete(file.blob)
        return ended

    async def _is_out_of_money(self) -> bool:
        """Whether it was stopped because what was left did not fit under its ceiling, and not by a person."""
        batch = self._batch
        if batch.job_id is None or batch.job_state != JobState.CANCELLED or batch.status is BatchStatus.CANCELLING:
            return False
        return (await self._service.store.views.job(batch.job_id, batch.owner)).short

    async def _unsent(self) -> int:
        """How many requests never became items, because the batch was stopped before they were in."""
        batch = self._batch
        deleted = batch.job_state is None and (batch.job_id is not None or batch.status is not BatchStatus.CANCELLING)
        if batch.adopted or deleted or batch.requests <= (batch.total or 0):
            return 0
        source = await self._service.store.files.source(batch.input_file_id, batch.owner)
        return 0 if source is None else batch.requests - (batch.total or 0)

    async def _lines(self, part: str) -> AsyncIterator[bytes]:
        batch = self._batch
        if batch.job_id is not None:
            told = {"ok": part == OUTPUT, "copies": False, "out_of_money": self._out_of_money}
            async for lines in result_lines(self._service.store, batch.job_id, **told):
                yield lines
        if part == OUTPUT or not await self._unsent():
            return
        in_time = batch.now < batch.expires_at
        code, words = (CANCELLED, UNSENT_WORDS) if in_time else (BATCH_EXPIRED, EXPIRED_WORDS)
        position = 0
        async for _, parsed in requests_of(self._service, batch):
            if position >= (batch.total or 0):
                ended = Ended(position, parsed.custom_id, False, None, code, words)
                yield lines_of(batch.job_id or batch.id.removeprefix("batch_"), ended)
            position += 1

    async def _status(self) -> BatchStatus:
        batch = self._batch
        if batch.job_state == JobState.CANCELLED and not self._out_of_money:
            return BatchStatus.CANCELLED
        if batch.job_id is not None and batch.failed and await self._service.store.batches.any_expired(batch.job_id):
            return BatchStatus.EXPIRED
        return BatchStatus.COMPLETED

    async def _file(self, part: str) -> NewFile:
        """Of a run it is not written: it is read from its job, which its owner may go on with."""
        batch, settings = self._batch, self._service.backstay.settings
        blob, size = None, 0
        if not batch.adopted:
            blob = f"files/{new_id()}"
            size = await self._deposit.put(blob, self._lines(part))
        seconds = batch.output_seconds or settings.file_days * 86_400
        return NewFile(
            id=f"file-{new_id()}",
            owner=batch.owner,
            filename=f"{batch.id}_{'output' if part == OUTPUT else 'error'}.jsonl",
            purpose="batch_output",
            bytes=size,
            lives_ms=None if batch.adopted else int(seconds * 1000),
            blob=blob,
            job_id=batch.job_id,
            part=part,
        )
