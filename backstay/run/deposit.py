"""Where the bytes of files are put: a row tells of them before they are there, so that what a crash leaves is found."""

from collections.abc import AsyncIterable

from backstay.artifacts import Artifacts
from backstay.store.files import Files


class Deposit:
    """One owner's bytes. `Files.add` makes a file of them; what became none within a day is taken away."""

    def __init__(self, files: Files, artifacts: Artifacts, owner: str) -> None:
        self._files = files
        self._artifacts = artifacts
        self._owner = owner

    async def put(self, name: str, chunks: AsyncIterable[bytes]) -> int:
        await self._files.expect(name, self._owner)
        return await self._artifacts.put(name, chunks)

    async def delete(self, name: str) -> None:
        """The bytes first: while the row is there, whoever takes over knows of them."""
        await self._artifacts.delete(name)
        await self._files.forget_expected(name)
