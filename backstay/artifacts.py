"""Uploads, results, logs and archives: streams of bytes under names, in a folder or in S3."""

from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from backstay.core.errors import NotFound, UsageError

CHUNK_BYTES: Final = 1 << 20


class Artifacts:
    """What is put under a name is there as a whole, or not at all."""

    def __init__(self, store: Any) -> None:
        self._store = store

    async def put(self, name: str, chunks: AsyncIterable[bytes]) -> int:
        """Streams it in, in constant memory; returns its size. What breaks off leaves nothing behind."""
        import obstore

        size = 0
        async with obstore.open_writer_async(self._store, name, buffer_size=8 * CHUNK_BYTES) as writer:
            async for chunk in chunks:
                size += len(chunk)
                await writer.write(chunk)
        return size

    async def get(self, name: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Streams it out, whole or the bytes from `start` up to `end`."""
        import obstore
        from obstore.exceptions import NotFoundError

        options: Any = {"range": (start, end)} if end is not None else {"range": {"offset": start}} if start else None
        try:
            found = await obstore.get_async(self._store, name, options=options)
        except (NotFoundError, FileNotFoundError):
            raise NotFound(f"there is no {name}") from None
        async for chunk in found.stream(min_chunk_size=CHUNK_BYTES):
            yield bytes(chunk)

    async def size(self, name: str) -> int | None:
        """Its bytes; None when it is not there."""
        import obstore
        from obstore.exceptions import NotFoundError

        try:
            return int((await obstore.head_async(self._store, name))["size"])
        except (NotFoundError, FileNotFoundError):
            return None

    async def names(self, prefix: str) -> AsyncIterator[str]:
        """What is there under a prefix, in no promised order."""
        import obstore

        async for page in obstore.list(self._store, prefix):
            for found in page:
                yield found["path"]

    async def delete(self, name: str) -> None:
        """Gone, or never there: both are well."""
        import obstore
        from obstore.exceptions import NotFoundError

        try:
            await obstore.delete_async(self._store, name)
        except (NotFoundError, FileNotFoundError):
            return


def artifacts_at(place: str) -> Artifacts:
    """A folder, which is made, or s3://bucket/prefix with AWS's own variables for keys, region and endpoint."""
    if not place.startswith("s3://"):
        from obstore.store import LocalStore

        folder = Path(place)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise UsageError(f"cannot make the folder {place}: {error.strerror}", hint="set BACKSTAY_DATA") from None
        return Artifacts(LocalStore(folder.resolve()))
    from obstore.store import S3Store

    parts = urlsplit(place)
    if not parts.netloc or parts.query or "@" in parts.netloc:
        raise UsageError("the place of artifacts must be a folder or s3://bucket/prefix", hint="set BACKSTAY_DATA")
    return Artifacts(S3Store(parts.netloc, prefix=parts.path.strip("/") or None))
