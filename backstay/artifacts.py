"""Streams of bytes under names, in a folder or in S3; and owners' files among them."""

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from backstay.clock import DAY_MS, new_id
from backstay.core.errors import FilesUnreachable, NotFound, UsageError
from backstay.core.ids import job_of, position_of, read_item
from backstay.handlers.gateway import Source
from backstay.settings import Settings
from backstay.store.databases.database import is_postgres
from backstay.store.files import Files, NewFile

CHUNK_BYTES: Final = 1 << 20
_WHERE: Final = "choose another with --data or BACKSTAY_DATA"
PART_BYTES: Final = 8 * CHUNK_BYTES  # of an upload to S3, which accepts 10,000 of them


class Artifacts:
    """An artifact exists as a whole, or not at all."""

    def __init__(self, store: Any, folder: Path | None = None, own: "Mapping[str, Artifacts] | None" = None) -> None:
        """`own`: separate places for names with a certain first part."""
        self._store = store
        self._folder = folder
        self._own = own or {}

    def _place_of(self, name: str) -> "Artifacts":
        return self._own.get(name.partition("/")[0], self)

    async def put(self, name: str, chunks: AsyncIterable[bytes]) -> int:
        """Stores a stream, in constant memory; returns its size. An interrupted stream leaves nothing behind."""
        import obstore

        size, place = 0, self._place_of(name)
        async with AsyncExitStack() as stack:
            opened = obstore.open_writer_async(place._store, name, buffer_size=PART_BYTES)
            writer = await stack.enter_async_context(opened)
            async for chunk in chunks:  # an error of the stream is not the storage's fault, and is passed on unchanged
                size += len(chunk)
                with _replace_errors():
                    await writer.write(chunk)
            with _replace_errors():
                await stack.aclose()
        if place._folder is not None:
            with _replace_errors():
                await asyncio.to_thread(_settle_on_disk, place._folder / name)
        return size

    async def get(self, name: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Streams an artifact, all of it or the bytes from `start` up to `end`, as far as they exist."""
        import obstore

        size = await self.size(name)
        if size is None:
            raise NotFound(f"there is no {name}")
        end = size if end is None else min(end, size)
        if start >= end:
            return
        whole = start == 0 and end == size
        with _replace_errors(name):
            found = await obstore.get_async(
                self._place_of(name)._store, name, options=None if whole else {"range": (start, end)}
            )
            pieces = found.stream(min_chunk_size=CHUNK_BYTES).__aiter__()
        while True:
            with _replace_errors(name):
                piece = await anext(pieces, None)
            if piece is None:
                return
            yield bytes(piece)

    async def size(self, name: str) -> int | None:
        """Its bytes; None when it is not there."""
        import obstore

        try:
            with _replace_errors(name):
                return int((await obstore.head_async(self._place_of(name)._store, name))["size"])
        except NotFound:
            return None

    async def names(self, prefix: str) -> AsyncIterator[str]:
        """The artifacts under a prefix of whole parts (`logs/12`; `logs/1` would not match it), in any order."""
        import obstore

        pages = obstore.list(self._place_of(prefix)._store, prefix).__aiter__()
        while True:
            with _replace_errors():
                page = await anext(pages, None)
            if page is None:
                return
            for found in page:
                yield found["path"]

    async def delete(self, name: str) -> None:
        """Deletes an artifact; a missing one is no error. Parts that a killed process left are deleted, too."""
        import obstore

        place = self._place_of(name)
        if place._folder is not None:
            with _replace_errors():
                await asyncio.to_thread(_drop_halves, place._folder / name)
        try:
            with _replace_errors(name):
                await obstore.delete_async(place._store, name)
        except NotFound:
            return


@contextmanager
def _replace_errors(name: str = "") -> Iterator[None]:
    """Replaces the messages of the storage library, which contain buckets, paths and addresses."""
    from obstore.exceptions import BaseError, NotFoundError

    try:
        yield
    except (NotFoundError, FileNotFoundError):
        raise NotFound(f"there is no {name}") from None
    except (BaseError, OSError) as error:
        raise FilesUnreachable() from error


def _settle_on_disk(path: Path) -> None:
    """A file that the database knows must also exist after a power cut."""
    for each in (path, path.parent):
        handle = os.open(each, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _drop_halves(path: Path) -> None:
    """The storage library writes to NAME#1, or the next number that is free, until a file is whole."""
    number = 1
    while (half := path.with_name(f"{path.name}#{number}")).exists():
        half.unlink(missing_ok=True)
        number += 1


def artifacts_at(place: str, own: Mapping[str, str] | None = None) -> Artifacts:
    """A folder, which is created, or s3://bucket/prefix with AWS's own variables for keys, region and endpoint.

    `own` gives names with a certain first part, such as `results`, a separate place.
    """
    if find_spec("obstore") is None:
        raise UsageError(
            "a place for files needs packages that are not installed", hint="pip install 'backstay[service]'"
        )
    apart = {first: artifacts_at(elsewhere) for first, elsewhere in (own or {}).items()}
    if not place.startswith("s3://"):
        from obstore.store import LocalStore

        folder = Path(place)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise UsageError(f"cannot create the folder {place}: {error.strerror}", hint=_WHERE) from None
        return Artifacts(LocalStore(folder.resolve()), folder.resolve(), apart)
    from obstore.store import S3Store

    parts = urlsplit(place)
    if not parts.netloc or parts.query or "@" in parts.netloc:
        raise UsageError("the place for files must be a folder or s3://bucket/prefix", hint=_WHERE)
    # An endpoint URL without TLS is a choice of the user: there is no second switch for it.
    plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    return Artifacts(
        S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            client_options={"allow_http": plain},
            retry_config={"max_retries": 5},
        ),
        own=apart,
    )


def default_folder(url: str) -> Path:
    """Beside the database's file; a database on a server has no such place."""
    if is_postgres(url):
        raise UsageError(
            "the service needs a place for files",
            hint="give a folder or s3://bucket/prefix with --data or BACKSTAY_DATA",
        )
    return Path(url.removeprefix("sqlite:///")).resolve().with_suffix(".data")


def artifacts_of(url: str, settings: Settings) -> Artifacts | None:
    """The place for files of a worker; None if none is set and none is needed."""
    place = settings.data
    if place is None and (settings.gateway_url or not is_postgres(url)):
        folder = default_folder(url)
        needed = settings.gateway_url or settings.job_archive
        place = str(folder) if needed or folder.is_dir() else None
    return None if place is None else files_at(place, settings)


def files_at(place: str, settings: Settings) -> Artifacts:
    """One place for all, except uploads and results with folders of their own."""
    own = {"files": settings.uploads_dir, "results": settings.results_dir}
    return artifacts_at(place, {first: folder for first, folder in own.items() if folder is not None})


PURPOSE = "user_data"  # the purpose that OpenAI's Files API gives to files of other programs


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
