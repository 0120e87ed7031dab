"""The bytes of owners' files, stored so that leftovers of a crash are found, and the files of the converter."""

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

from backstay.clock import new_id
from backstay.core.errors import NotFound
from backstay.core.ids import job_of, position_of, read_item
from backstay.files.artifacts import Artifacts
from backstay.handlers.gateway import Source
from backstay.store.files import Files, NewFile

PURPOSE = "user_data"  # the purpose that OpenAI's Files API gives to files of other programs
DAY_MS = 86_400_000


def file_of(blob: str) -> str:
    """The file that a result's bytes belong to: their name ends in its mark."""
    return f"file-{blob.rpartition('-')[2]}"


class Deposit:
    """One owner's bytes. A row announces them before they are written, so that leftovers of a crash are found.
    `Files.add` makes a file of them; bytes without a file are deleted after a day."""

    def __init__(self, files: Files, artifacts: Artifacts, owner: str) -> None:
        self._files = files
        self._artifacts = artifacts
        self._owner = owner

    async def put(self, name: str, chunks: AsyncIterable[bytes]) -> int:
        await self._files.expect(name, self._owner)
        return await self._artifacts.put(name, chunks)

    async def delete(self, name: str) -> None:
        """The bytes first: while the row exists, another process can find and delete them."""
        await self._artifacts.delete(name)
        await self._files.forget_expected(name)


class ConverterFiles:
    """Sources are uploads; results are stored beside them until they expire."""

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
        """The bytes first: when the file's row exists, its bytes are complete."""
        number = read_item(item_id)
        mark = new_id()
        blob = f"results/{job_of(number)}/{position_of(number)}-{mark}"
        size = await Deposit(self._files, self._artifacts, owner).put(blob, chunks)
        file_id = file_of(blob)
        await self._files.add(NewFile(file_id, owner, filename, PURPOSE, size, self._keep_ms, blob))
        return {"file": file_id, "filename": filename, "bytes": size, "content_type": "application/xml"}
