"""The files of an ended batch: what succeeded, what did not, and the status that this makes it."""

from backstay.clock import new_id
from backstay.core.states import JobState
from backstay.server.openai.content import result_lines
from backstay.server.service import Service
from backstay.store.batches import Batch
from backstay.store.files import ERRORS, OUTPUT, NewFile


class Results:
    def __init__(self, service: Service, batch: Batch) -> None:
        self._service = service
        self._batch = batch

    async def write(self) -> bool:
        """Writes the files and ends the batch with them. False: someone else has."""
        batch = self._batch
        failed = (batch.failed or 0) + (batch.cancelled or 0)
        output = await self._file(OUTPUT) if batch.succeeded else None
        errors = await self._file(ERRORS) if failed else None
        ended = await self._service.store.batches.end(batch, await self._status(), output, errors)
        if not ended:
            for file in (output, errors):
                if file is not None and file.blob is not None:
                    await self._service.artifacts.delete(file.blob)
        return ended

    async def _status(self) -> str:
        batch = self._batch
        if batch.job_state == JobState.CANCELLED:
            return "cancelled"
        if batch.job_id is not None and batch.failed and await self._service.store.batches.any_expired(batch.job_id):
            return "expired"
        return "completed"

    async def _file(self, part: str) -> NewFile:
        """Of a run it is not written: it is read from its job, which its owner may go on with."""
        batch, settings = self._batch, self._service.backstay.settings
        assert batch.job_id is not None
        blob, size = None, 0
        if not batch.adopted:
            blob = f"files/{new_id()}"
            lines = result_lines(self._service.store, batch.job_id, ok=part == OUTPUT, copies=False)
            size = await self._service.artifacts.put(blob, lines)
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
