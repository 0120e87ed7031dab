"""The calls for files and batches that the lane `batch` needs. Their answers are untrusted input."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any, BinaryIO, Final, NamedTuple
from urllib.parse import quote, urlsplit

from backstay.core.errors import Transient
from backstay.handlers.function import in_thread
from backstay.llm.batch_lookup import ASK_SECONDS, BatchReader
from backstay.llm.batch_results import reference_in
from backstay.llm.bodies import dict_in, id_in, moment_ms, require_object, text_in
from backstay.llm.provider import Channel, ProviderReply
from backstay.llm.providers.gemini.replies import count_in
from backstay.llm.providers.gemini.requests import GENERATE, VERSION

BATCHES: Final = f"{VERSION}/batches"
FILES: Final = f"{VERSION}/files"
UPLOAD: Final = f"/upload{VERSION}/files"
MARK: Final = "backstay-"  # the beginning of the display name of every batch of ours; its digest follows
PIECE_BYTES: Final = 8 << 20  # of an upload
PAGE: Final = 100
PAGES_MAX: Final = 1_000
OUTPUTS_REMEMBERED_MAX: Final = 10_000
PENDING: Final = "PENDING"
RUNNING: Final = "RUNNING"
FAILED: Final = "FAILED"
CANCELLED: Final = "CANCELLED"
EXPIRED: Final = "EXPIRED"
ENDED: Final = frozenset({"SUCCEEDED", FAILED, CANCELLED, EXPIRED})
ACTIVE: Final = "ACTIVE"
_JSON: Final = {"content-type": "application/json"}
_LINES: Final = "application/jsonl"
_STATE: Final = re.compile(r"(?:BATCH|JOB)_STATE_(\w+)")
_HEAD: Final = re.compile(rb'\{"key": ?"([0-9a-f]{40})"')


class GeminiBatch(NamedTuple):
    """A batch as Google shows it."""

    id: str
    state: str
    display_name: str | None
    model: str | None
    created_ms: int | None
    total: int
    succeeded: int
    failed: int
    input_file: str | None
    output_file: str | None
    error_code: int | None
    error: str | None
    ended: bool

    @property
    def running(self) -> bool:
        return self.state == RUNNING

    @property
    def percent(self) -> int | None:
        return min((self.succeeded + self.failed) * 100 // self.total, 100) if self.total > 0 else None

    @property
    def is_ours(self) -> bool:
        return (self.display_name or "").startswith(MARK)

    @property
    def archived(self) -> bool:
        """It has ended, and there are no results that would show its requests."""
        return self.ended and self.output_file is None


class UploadedFile(NamedTuple):
    name: str
    state: str


def display_name_of(digest: str) -> str:
    return MARK + digest


def reference_of(line: bytes) -> str | None:
    return reference_in(line, _HEAD, "key")


class FilesAndJobs(BatchReader):
    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._outputs: dict[str, str] = {}  # the files of results, by the ids of batches

    async def upload(self, name: str, lines: BinaryIO, size: int, seconds: float) -> ProviderReply:
        """Sends a file in pieces to the address that the first reply gives. Returns the last reply, or a refusal."""
        ends_at = self._channel.clock.monotonic() + seconds
        headers = {
            **_JSON,
            "x-goog-upload-protocol": "resumable",
            "x-goog-upload-command": "start",
            "x-goog-upload-header-content-length": str(size),
            "x-goog-upload-header-content-type": _LINES,
        }
        asked = json.dumps({"file": {"displayName": name, "mimeType": _LINES}}).encode()
        reply = await self._wire.exchange("POST", UPLOAD, asked, headers, timeout_seconds=min(seconds, ASK_SECONDS))
        if not 200 <= reply.status <= 299:
            return reply
        where = reply.headers.get("x-goog-upload-url", "")
        if urlsplit(where).scheme not in ("http", "https"):
            raise Transient("the provider accepted an upload but gave no address for it")
        for offset in range(0, size, PIECE_BYTES):
            piece = await in_thread(lambda: lines.read(PIECE_BYTES))
            command = "upload" if offset + PIECE_BYTES < size else "upload, finalize"
            told = {"x-goog-upload-command": command, "x-goog-upload-offset": str(offset)}
            left = max(ends_at - self._channel.clock.monotonic(), 1.0)
            reply = await self._wire.exchange("POST", where, piece, told, timeout_seconds=left)
            if not 200 <= reply.status <= 299:
                return reply
        return reply

    async def show_file(self, name: str) -> UploadedFile:
        reply = await self._wire.get(f"{VERSION}/{name}", timeout_seconds=ASK_SECONDS)
        return read_file(require_object(self._require_answer(reply)))

    async def delete_file(self, name: str) -> None:
        await self._wire.delete(f"{VERSION}/{name}", ASK_SECONDS)

    async def create(self, path: str, name: str, file: str, seconds: float) -> ProviderReply:
        asked = {"batch": {"displayName": name, "inputConfig": {"fileName": file}}}
        verb = f":batch{GENERATE[0].upper()}{GENERATE[1:]}"
        return await self._wire.post(path.removesuffix(f":{GENERATE}") + verb, json.dumps(asked), seconds)

    async def show(self, batch_id: str) -> GeminiBatch | None:
        said = await self.look_at(f"{BATCHES}/{quote(batch_id, safe='')}", batch_id)
        found = None if said is None else self._note(read_batch(said))
        if found is not None and found.id != batch_id:
            raise Transient(f"the provider was asked about {batch_id} and answered about another batch")
        return found

    async def cancel(self, batch_id: str) -> None:
        await self.cancel_at(f"{BATCHES}/{quote(batch_id, safe='')}:cancel")

    async def since(self, created_ms: int) -> list[GeminiBatch]:
        """Our batches created since then. The order of the list is not documented, so it is read to its end."""
        found = [self._note(read_batch(each)) async for page in self._pages() for each in page]
        return [
            batch for batch in found if batch.is_ours and (batch.created_ms is None or batch.created_ms >= created_ms)
        ]

    async def download(self, batch_id: str, into: BinaryIO) -> bool:
        name = self._outputs.get(batch_id)
        return name is not None and await self.download_from(_content(name), batch_id, into)

    async def peek(self, batch_id: str, into: BinaryIO) -> bool:
        return await self.peek_into(_content(self._outputs[batch_id]), into)

    def _note(self, batch: GeminiBatch) -> GeminiBatch:
        if batch.output_file is not None:
            if len(self._outputs) >= OUTPUTS_REMEMBERED_MAX:
                self._outputs.clear()
            self._outputs[batch.id] = batch.output_file
        return batch

    async def _pages(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every page of the list. A list that ends in an unexpected way is an error: it could hide entries."""
        params, seen = {"pageSize": str(PAGE)}, set[str]()
        for _ in range(PAGES_MAX):
            said = require_object(self._require_answer(await self._wire.get(BATCHES, params, ASK_SECONDS)))
            page = said.get("operations", [])
            if not isinstance(page, list) or not all(isinstance(each, dict) for each in page):
                raise Transient("the provider's list of batches is not valid")
            yield page
            token = said.get("nextPageToken")
            if token is None or token == "":
                return
            if not isinstance(token, str) or token in seen:
                raise Transient("the provider's list of batches repeats itself")
            seen.add(token)
            params = {"pageSize": str(PAGE), "pageToken": token}
        raise Transient("the provider's list of batches does not end")


def read_batch(said: dict[str, Any]) -> GeminiBatch:
    """Results are named twice, in the metadata and in the response. `done` is not there before the end."""
    name, metadata, error = id_in(said, "name"), dict_in(said.get("metadata")), dict_in(said.get("error"))
    state = _STATE.fullmatch(str(metadata.get("state")))
    if name is None or (state is None and said.get("done") is not True):
        raise Transient("the provider's answer about a batch has no name or no state")
    stats = dict_in(metadata.get("batchStats"))
    output = _file_in(dict_in(said.get("response"))) or _file_in(dict_in(metadata.get("output")))
    code = error.get("code")
    shown = state[1] if state is not None else FAILED if error else "SUCCEEDED"
    return GeminiBatch(
        id=name.removeprefix("batches/"),
        state=shown,
        display_name=text_in(metadata.get("displayName")),
        model=(text_in(metadata.get("model")) or "").removeprefix("models/") or None,
        created_ms=moment_ms(metadata.get("createTime")),
        total=count_in(stats.get("requestCount")) or 0,
        succeeded=count_in(stats.get("successfulRequestCount")) or 0,
        failed=count_in(stats.get("failedRequestCount")) or 0,
        input_file=_file_name(dict_in(metadata.get("inputConfig")).get("fileName")),
        output_file=output,
        error_code=code if type(code) is int else None,
        error=text_in(error.get("message")),
        ended=said.get("done") is True or shown in ENDED,
    )


def read_file(said: dict[str, Any]) -> UploadedFile:
    file = dict_in(said.get("file")) or said
    name = _file_name(file.get("name"))
    if name is None:
        raise Transient("the provider accepted a file but gave no name for it")
    return UploadedFile(name, text_in(file.get("state")) or ACTIVE)


def _file_in(output: dict[str, Any]) -> str | None:
    return _file_name(output.get("responsesFile"))


def _file_name(value: object) -> str | None:
    """A name that can be put into a path as it is."""
    return value if isinstance(value, str) and re.fullmatch(r"files/[\w-]{1,200}", value, re.ASCII) else None


def _content(file: str) -> str:
    """The results of a batch have a name that is too long to ask about, so they are downloaded directly."""
    return f"{VERSION}/{file}:download?alt=media"
