"""The files of the converter: sources among the uploads, results beside them until they expire."""

from collections.abc import AsyncIterator
from typing import Any

from backstay.artifacts import Artifacts
from backstay.clock import new_id
from backstay.core.errors import NotFound
from backstay.core.ids import job_of, position_of, read_item
from backstay.handlers.gateway import Source
from backstay.run.deposit import Deposit
from backstay.store.files import Files, NewFile

PURPOSE = "user_data"  # as OpenAI's Files API, where they are seen too, calls what is for nothing of its own
DAY_MS = 86_400_000


def file_of(blob: str) -> str:
    """The file that a result's bytes belong to: their name ends in its mark."""
    return f"file-{blob.rpartition('-')[2]}"


class Shelf:
    def __init__(self, files: Files, artifacts: Artifacts, keep_days: float) -> None:
        self._files = files
        self._artifacts = artifacts
        self._keep_ms = int(keep_days * DAY_MS)

    async def open(self, owner: str, file_id: str) -> Source:
        found = await self._files.get(file_id, owner)
        if found.blob is None:
            raise NotFound(f"there is no file {file_id}")
        size = await self._artifacts.size(found.blob)
        if size is None:
            raise NotFound(f"there is no file {file_id}")
        return Source(found.filename, size, self._artifacts.get(found.blob))

    async def keep(self, owner: str, item_id: str, filename: str, chunks: AsyncIterator[bytes]) -> dict[str, Any]:
        """The bytes first: whoever finds the file's row finds them, whole."""
        number = read_item(item_id)
        mark = new_id()
        blob = f"results/{job_of(number)}/{position_of(number)}-{mark}"
        size = await Deposit(self._files, self._artifacts, owner).put(blob, chunks)
        file_id = file_of(blob)
        await self._files.add(NewFile(file_id, owner, filename, PURPOSE, size, self._keep_ms, blob))
        return {"file": file_id, "filename": filename, "bytes": size, "content_type": "application/xml"}
