"""Files: uploads, and the input and output files of batches and jobs. The bytes are stored as artifacts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from backstay.core.errors import NotAllowed, NotFound
from backstay.store.databases.database import Database
from backstay.store.queries import Ask, Script, one, record

LATEST: Final = ((1 << 62), "~")  # sorts after every file
EARLIEST: Final = (-1, "")
BLOBS_MAX: Final = 100
EXPECTED_MS: Final = 86_400_000  # the longest time that an upload may take
_EXPECTED: Final = "expected:"

INPUT: Final = "input"
OUTPUT: Final = "output"
ERRORS: Final = "errors"


@record
@dataclass(frozen=True, slots=True)
class StoredFile:
    """`blob` is the artifact with its bytes; without one the file is read from a job: input, output or errors."""

    id: str
    owner: str
    filename: str
    purpose: str
    bytes: int
    created_at: int
    expires_at: int | None
    blob: str | None
    job_id: int | None
    part: str | None
    survey: str | None


@dataclass(frozen=True, slots=True)
class NewFile:
    id: str
    owner: str
    filename: str
    purpose: str
    bytes: int
    lives_ms: int | None = None
    blob: str | None = None
    job_id: int | None = None
    part: str | None = None
    survey: dict[str, Any] | None = None

    def values(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in NewFile.__slots__}
        return {**values, "survey": None if self.survey is None else json.dumps(self.survey)}


class Files:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def add(self, file: NewFile) -> bool:
        """Stores a file; returns whether it is new. The same id again changes nothing."""
        return await self._db.write(lambda: add_file(file))

    async def expect(self, blob: str, owner: str) -> None:
        """Announces that an artifact is about to be written under a name."""
        await self._db.write(one("expect_blob", {"blob": blob, "owner": owner, "lives_ms": EXPECTED_MS}))

    async def forget_expected(self, blob: str) -> None:
        await self._db.write(one("forget_expected", {"blob": blob}))

    async def find(self, file_id: str, owner: str) -> StoredFile | None:
        if not may_be_id(file_id):
            return None
        rows: list[StoredFile] = await self._db.read(one("file", {"id": file_id, "owner": owner}))
        return rows[0] if rows else None

    async def get(self, file_id: str, owner: str) -> StoredFile:
        found = await self.find(file_id, owner)
        if found is None:
            raise _file_not_found(file_id)
        return found

    async def source(self, file_id: str, owner: str) -> StoredFile | None:
        """The input file of a batch, while its bytes exist."""
        rows: list[StoredFile] = await self._db.read(one("file_source", {"id": file_id, "owner": owner}))
        return rows[0] if rows else None

    async def has_expired(self, file_id: str, owner: str) -> bool:
        """Whether the file existed and has expired."""
        values = {"id": file_id, "owner": owner}
        return may_be_id(file_id) and bool(await self._db.read(one("file_expired", values)))

    async def has_source(self, item_id: int, owner: str) -> bool:
        """Whether an item's source file still exists, or the item needs none."""
        return bool(await self._db.read(lambda: with_sources(owner, [item_id])))

    async def page(self, owner: str, after: str | None, n: int, oldest: bool, purpose: str | None) -> list[StoredFile]:
        created_at, last = EARLIEST if oldest else LATEST
        if after is not None:
            if not may_be_id(after):
                raise _file_not_found(after)
            rows = await self._db.read(one("file_place", {"id": after, "owner": owner}))
            if not rows:
                raise _file_not_found(after)
            created_at, last = rows[0]["created_at"], rows[0]["id"]
        values = {"owner": owner, "created_at": created_at, "id": last, "purpose": purpose, "n": n}
        return await self._db.read(one("files_oldest" if oldest else "files_newest", values))

    async def delete(self, file_id: str, owner: str) -> None:
        values = {"id": file_id, "owner": owner}
        if not may_be_id(file_id) or not await self._db.write(one("delete_file", values)):
            raise _file_not_found(file_id)

    async def drop(self, file_id: str) -> None:
        """Deletes a file that a job made, for its owner."""
        await self._db.write(one("purge_files", batch=[(file_id,)]))

    async def idle_blobs(self) -> list[tuple[str, str]]:
        """Files whose bytes can be deleted: (id, name of the artifact)."""
        return [(row["id"], row["blob"]) for row in await self._db.read(one("idle_blobs", {"n": BLOBS_MAX}))]

    async def forget_blob(self, file_id: str) -> None:
        if file_id.startswith(_EXPECTED):
            await self.forget_expected(file_id.removeprefix(_EXPECTED))
        else:
            await self._db.write(one("forget_blob", {"id": file_id}))

    async def count_bytes(self, file_id: str, size: int) -> None:
        await self._db.write(one("count_bytes", {"id": file_id, "bytes": size}))


def add_file(file: NewFile) -> Script[bool]:
    """Part of every transaction that creates a file; its bytes were announced and are stored."""
    if file.blob is not None and not (yield Ask("take_expected", {"blob": file.blob})):
        raise NotAllowed("the upload took more than a day", hint="send it again")
    return bool((yield Ask("add_file", file.values())))


def may_be_id(text: str) -> bool:
    """Whether a text can be an id: PostgreSQL fails on a text that it cannot store, so such an id is not looked up."""
    return text.isascii() and text.isprintable()


def _file_not_found(file_id: str) -> NotFound:
    return NotFound(f"No such File object: {file_id[:100]}")


def source_of(body: str) -> str | None:
    """The file that a payload names; None when it names none or cannot be read."""
    try:
        named = json.loads(body)
    except ValueError:
        return None
    file = named.get("file") if isinstance(named, dict) else None
    return file if isinstance(file, str) else None


def with_sources(owner: str, items: Sequence[int]) -> Script[set[int]]:
    """The items, of these, that need no source file, or whose source file still exists."""
    bodies = yield Ask("bodies_with_sources", batch=[(item,) for item in items])
    if not bodies:
        return set(items)
    sources = {row["id"]: source_of(row["body"]) for row in bodies}
    named = sorted({file for file in sources.values() if file is not None and may_be_id(file)})
    there = {row["id"] for row in (yield Ask("files_there", {"owner": owner}, [(file,) for file in named]))}
    return {item for item in items if item not in sources or sources[item] in there}
