"""OpenAI's files: clients upload them, and batches write them. They stay on disk for as long as the provider runs."""

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

from aiohttp import BodyPartReader, web

from backstay.practice.batch_jobs import ScratchFolder
from backstay.practice.faults import BatchFault, model_named_after
from backstay.practice.openai_shapes import OPENAI, OpenAiError, Paging, list_page, missing_parameter, not_found
from backstay.practice.pipeline import ApiFormat, Pipeline, ProviderState
from backstay.practice.replies import PracticeReply, json_reply

PURPOSES = ("assistants", "batch", "evals", "fine-tune", "user_data", "vision")
LIST_MAX = 10_000
EXPIRES_SECONDS_MIN, EXPIRES_SECONDS_MAX = 3_600, 2_592_000
BATCH_FILE_SECONDS = 30 * 86_400
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CHUNK_BYTES = 1 << 18
_FIELD_BYTES_MAX = 4_096


class OpenAiFileStatus(StrEnum):
    PENDING = "pending"
    PROCESSED = "processed"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class OpenAiFile:
    id: str
    path: Path
    filename: str
    purpose: str
    bytes: int
    created_at: int
    expires_at: int | None
    ready_at: float = 0.0  # by the monotonic clock
    mistake: str | None = None  # why it cannot be processed

    def status(self, now: float) -> OpenAiFileStatus:
        if now < self.ready_at:
            return OpenAiFileStatus.PENDING
        return OpenAiFileStatus.ERROR if self.mistake else OpenAiFileStatus.PROCESSED

    def dump(self, now: float) -> dict[str, Any]:
        status = self.status(now)
        shown = {name: getattr(self, name) for name in ("id", "bytes", "created_at", "filename", "purpose")}
        expires = {} if self.expires_at is None else {"expires_at": self.expires_at}
        details = self.mistake if status is OpenAiFileStatus.ERROR else None
        return {**shown, **expires, "object": "file", "status": status, "status_details": details}


class OpenAiFiles:
    format: ApiFormat = OPENAI

    def __init__(self, state: ProviderState, folder: ScratchFolder) -> None:
        self._state = state
        self._folder = folder
        self._files: dict[str, OpenAiFile] = {}

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        for method, path, work in (
            ("POST", "/v1/files", self.upload),
            ("GET", "/v1/files", self.list_),
            ("GET", "/v1/files/{id}", self.show),
            ("DELETE", "/v1/files/{id}", self.remove),
            ("GET", "/v1/files/{id}/content", self.content),
        ):
            router.add_route(method, path, pipeline.unpaid_route(self.format, work))

    async def upload(self, request: web.Request) -> PracticeReply:
        """The parts of the form may come in any order."""
        path = self.new_path()
        try:
            filename, fields = await _receive_form(request, path)
        except (ValueError, AssertionError):  # what aiohttp raises when a form is not valid
            message = "The body is not valid: upload a file as multipart/form-data."
            raise OpenAiError(400, message) from None
        if filename is None:
            raise missing_parameter("file")
        return json_reply(self._dump(self._accept(path, filename, fields)))

    def _accept(self, path: Path, filename: str, fields: dict[str, str]) -> OpenAiFile:
        purpose = fields.get("purpose")
        if purpose is None:
            raise missing_parameter("purpose")
        if purpose not in PURPOSES:
            raise OpenAiError(400, f"'{purpose}' is not one of {list(PURPOSES)}.", "invalid_value", "purpose")
        if purpose != "batch":
            return self.add(path, filename, purpose, _read_lifetime(fields))
        first = _read_first_line(path)
        if first is None:
            raise OpenAiError(400, "Invalid file format for Batch API. Must be .jsonl", param="file")
        file = self.add(path, filename, purpose, _read_lifetime(fields) or BATCH_FILE_SECONDS)
        ready_at = self._state.clock.monotonic() + self._state.faults.file_seconds
        self._files[file.id] = replace(file, ready_at=ready_at, mistake=_find_mistake(first))
        return self._files[file.id]

    def new_path(self) -> Path:
        return self._folder.new_path()

    def add(self, path: Path, filename: str, purpose: str, lives_seconds: int | None) -> OpenAiFile:
        now = self._state.now_seconds()
        expires_at = None if lives_seconds is None else now + lives_seconds
        file = OpenAiFile(f"file-{path.name}", path, filename, purpose, path.stat().st_size, now, expires_at)
        self._files[file.id] = file
        return file

    def all(self) -> list[OpenAiFile]:
        return list(self._files.values())

    def find(self, name: str) -> OpenAiFile | None:
        return self._files.get(name)

    def status(self, file: OpenAiFile) -> OpenAiFileStatus:
        return file.status(self._state.clock.monotonic())

    async def list_(self, request: web.Request) -> PracticeReply:
        purpose = request.query.get("purpose")
        chosen = [file for file in self._files.values() if purpose is None or file.purpose == purpose]
        return list_page(chosen, Paging.read(request.query, LIST_MAX, "desc", LIST_MAX), self._dump)

    async def show(self, request: web.Request) -> PracticeReply:
        return json_reply(self._dump(self._find(request)))

    async def content(self, request: web.Request) -> PracticeReply:
        content = self._find(request).path.read_bytes()
        return PracticeReply(200, content, {"Content-Type": "application/octet-stream"})

    async def remove(self, request: web.Request) -> PracticeReply:
        file = self._find(request)
        del self._files[file.id]
        file.path.unlink()
        return json_reply({"id": file.id, "object": "file", "deleted": True})

    def _dump(self, file: OpenAiFile) -> dict[str, Any]:
        return file.dump(self._state.clock.monotonic())

    def _find(self, request: web.Request) -> OpenAiFile:
        name = request.match_info["id"]
        if (file := self._files.get(name)) is None:
            raise not_found("File object", name)
        return file


async def _receive_form(request: web.Request, path: Path) -> tuple[str | None, dict[str, str]]:
    """Writes the file to the path; returns its name and the other fields, which are short."""
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


def _read_first_line(path: Path) -> dict[str, Any] | None:
    """An upload is checked by its first line only; the other lines are checked with the batch."""
    with path.open("rb") as lines:
        first = lines.readline().removeprefix(BYTE_ORDER_MARK)
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _find_mistake(line: dict[str, Any]) -> str | None:
    body = line.get("body")
    if isinstance(body, dict) and body.get("model") == model_named_after(BatchFault.FILE_ERROR):
        return "The practice provider was asked not to process this file."
    return None


def _read_lifetime(fields: dict[str, str]) -> int | None:
    given = fields.get("expires_after[seconds]")
    if given is None:
        return None
    if not given.isdecimal() or not EXPIRES_SECONDS_MIN <= int(given) <= EXPIRES_SECONDS_MAX:
        param = "expires_after.seconds"
        message = f"Invalid '{param}': {EXPIRES_SECONDS_MIN} to {EXPIRES_SECONDS_MAX}."
        raise OpenAiError(400, message, "invalid_value", param)
    return int(given)
