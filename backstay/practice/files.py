"""Files: uploaded by clients, or made by batches; kept on disk for as long as the provider runs."""

import json
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from aiohttp import BodyPartReader, web

from backstay.clock import Clock
from backstay.practice.gate import Gate
from backstay.practice.pages import Paging, page
from backstay.practice.refusals import Refused, Reply, missing, not_found, reply_with

PURPOSES = ("assistants", "batch", "evals", "fine-tune", "user_data", "vision")
LIST_MAX = 10_000
EXPIRES_SECONDS_MIN, EXPIRES_SECONDS_MAX = 3_600, 2_592_000
BATCH_FILE_SECONDS = 30 * 86_400
_CHUNK_BYTES = 1 << 18
_FIELD_BYTES_MAX = 4_096
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class File:
    id: str
    path: Path
    filename: str
    purpose: str
    bytes: int
    created_at: int
    expires_at: int | None
    clock: Clock
    ready_at: float  # by the clock that only goes ahead
    mistake: str | None  # why it cannot be processed

    @property
    def status(self) -> str:
        if self.clock.monotonic() < self.ready_at:
            return "pending"
        return "error" if self.mistake else "processed"

    def dump(self) -> dict[str, Any]:
        shown = {name: getattr(self, name) for name in ("id", "bytes", "created_at", "filename", "purpose")}
        expires = {} if self.expires_at is None else {"expires_at": self.expires_at}
        details = self.mistake if self.status == "error" else None
        return {**shown, **expires, "object": "file", "status": self.status, "status_details": details}


class Files:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._folder: Path | None = None
        self._files: dict[str, File] = {}

    async def upload(self, request: web.Request) -> Reply:
        """The parts may come in any order."""
        path = self.new_path()
        try:
            filename, fields = await _receive(request, path)
        except (ValueError, AssertionError):  # what aiohttp raises when a form is not in order
            raise Refused(400, "A file is uploaded as multipart/form-data, and this is none.") from None
        if filename is None:
            raise missing("file")
        return reply_with(self._accept(path, filename, fields).dump())

    def _accept(self, path: Path, filename: str, fields: dict[str, str]) -> File:
        purpose = fields.get("purpose")
        if purpose is None:
            raise missing("purpose")
        if purpose not in PURPOSES:
            raise Refused(400, f"'{purpose}' is not one of {list(PURPOSES)}.", "invalid_value", "purpose")
        if purpose != "batch":
            return self.add(path, filename, purpose, _lifetime(fields))
        first = _first_line(path)
        if first is None:
            raise Refused(400, "Invalid file format for Batch API. Must be .jsonl", param="file")
        file = self.add(path, filename, purpose, _lifetime(fields) or BATCH_FILE_SECONDS)
        ready_at = self._gate.clock.monotonic() + self._gate.faults.file_seconds
        self._files[file.id] = replace(file, ready_at=ready_at, mistake=_mistake(first))
        return self._files[file.id]

    def new_path(self) -> Path:
        if self._folder is None:  # not before it is needed: a killed provider cannot clear it away
            self._folder = Path(tempfile.mkdtemp(prefix="backstay-practice-"))
        return self._folder / self._gate.mark()

    def add(self, path: Path, filename: str, purpose: str, lives_seconds: int | None) -> File:
        now = self._gate.clock.now_ms() // 1000
        expires_at = None if lives_seconds is None else now + lives_seconds
        size, clock = path.stat().st_size, self._gate.clock
        file = File(f"file-{path.name}", path, filename, purpose, size, now, expires_at, clock, 0.0, None)
        self._files[file.id] = file
        return file

    def find(self, name: str) -> File | None:
        return self._files.get(name)

    def close(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None

    async def list_(self, request: web.Request) -> Reply:
        purpose = request.query.get("purpose")
        chosen = [file for file in self._files.values() if purpose is None or file.purpose == purpose]
        return page(chosen, Paging.read(request.query, LIST_MAX, "desc", LIST_MAX))

    async def show(self, request: web.Request) -> Reply:
        return reply_with(self._found(request).dump())

    async def content(self, request: web.Request) -> Reply:
        return Reply(200, self._found(request).path.read_bytes(), {"Content-Type": "application/octet-stream"})

    async def remove(self, request: web.Request) -> Reply:
        file = self._found(request)
        del self._files[file.id]
        file.path.unlink()
        return reply_with({"id": file.id, "object": "file", "deleted": True})

    def _found(self, request: web.Request) -> File:
        name = request.match_info["id"]
        if (file := self._files.get(name)) is None:
            raise not_found("File object", name)
        return file


async def _receive(request: web.Request, path: Path) -> tuple[str | None, dict[str, str]]:
    """The file goes to the path; the other fields are short."""
    filename, fields = None, dict[str, str]()
    async for part in await request.multipart():
        if not isinstance(part, BodyPartReader):
            raise ValueError("a form within the form")
        if part.name == "file":
            filename = part.filename or "upload"
            await _save(part, path)
        elif part.name:
            fields[part.name] = (await part.read_chunk(_FIELD_BYTES_MAX)).decode("utf-8", "replace")
            await part.release()
    return filename, fields


async def _save(part: BodyPartReader, path: Path) -> None:
    with _create(path) as file:
        while chunk := await part.read_chunk(_CHUNK_BYTES):
            file.write(chunk)


def _create(path: Path) -> BinaryIO:
    return path.open("wb")


def _first_line(path: Path) -> dict[str, Any] | None:
    """Only the first line is looked at here; the others are checked with the batch."""
    with path.open("rb") as lines:
        first = lines.readline().removeprefix(BOM)
    try:
        said = json.loads(first)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _mistake(line: dict[str, Any]) -> str | None:
    body = line.get("body")
    if isinstance(body, dict) and body.get("model") == "practice-file-error":
        return "The practice provider was asked not to process this file."
    return None


def _lifetime(fields: dict[str, str]) -> int | None:
    given = fields.get("expires_after[seconds]")
    if given is None:
        return None
    if not given.isdecimal() or not EXPIRES_SECONDS_MIN <= int(given) <= EXPIRES_SECONDS_MAX:
        raise Refused(
            400, "Invalid 'expires_after.seconds': 3600 to 2592000.", "invalid_value", "expires_after.seconds"
        )
    return int(given)
