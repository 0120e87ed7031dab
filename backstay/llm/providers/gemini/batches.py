"""Gemini's batches: a file of requests is uploaded, and a batch of one model is made of it.

A batch has a display name, which recognises ours. An uploaded file cannot be read again, so after a crash the requests
of a batch are known when it has ended, by the keys in its results.

The answers to its calls are untrusted input.
"""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Final, NamedTuple
from urllib.parse import quote, urlsplit

from backstay.clock import Tasks
from backstay.core.errors import ErrorCode, HandlerError, OutcomeUnknown, Throttled, Transient
from backstay.core.failures import Failure, FailureKind
from backstay.core.models import Failed
from backstay.handlers.function import in_thread
from backstay.llm.batch_lookup import ASK_SECONDS, BatchReader, ListedBatchLookup
from backstay.llm.batch_results import (
    RESULT_MISSING,
    RESULTS_GONE,
    BatchResultFile,
    BatchResults,
    LineIndex,
    LineResult,
    line_failed,
    line_of_reply,
    reference_in,
)
from backstay.llm.bodies import dict_in, id_in, moment_ms, object_in, require_object, text_in
from backstay.llm.lines import LlmRequest, members, open_temporary
from backstay.llm.provider import Certainty, Channel, PriceOf, ProviderReply
from backstay.llm.providers.gemini.calls import (
    GENERATE,
    STATUS_OF_NAME,
    VERSION,
    count_in,
    failure_of_error,
    model_of_url,
    read_reply,
    url_of_model,
)
from backstay.llm.rate_limits import NO_HINTS
from backstay.llm.shards import BATCH_REQUESTS_MAX, Shard, ShardBounds, ShardEntry

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


LOOK_SECONDS: Final = 0.5  # until the next look at a file that is still being processed; longer each time
LOOK_SECONDS_MAX: Final = 5.0
SENT_REMEMBERED_MAX: Final = 100
_EXHAUSTED: Final = 8  # as gRPC numbers it
_PROCESSING: Final = "PROCESSING"


class GeminiBatches:
    # Google accepts files of 2 GB. A batch that is not done in two days has no results at all, so it is kept small.
    bounds = ShardBounds(BATCH_REQUESTS_MAX, bytes_max=64 << 20)
    certainty = Certainty.IF_FOUND

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._api = FilesAndJobs(channel)
        self._lookup = GeminiBatchLookup(self._api, channel, Tasks())

    async def close(self) -> None:
        await self._lookup.close()

    def group_of(self, request: LlmRequest, fields: Mapping[str, Any]) -> tuple[str | None, str]:
        """A batch has one model, whatever version of the API a request names."""
        model = model_of_url(request.url)
        return model, url_of_model(model)

    async def find(self, ref: str, since_ms: int) -> str | None:
        return await self._lookup.find(ref, since_ms)

    async def show(self, batch_id: str) -> GeminiBatch | None:
        return await self._api.show(batch_id)

    async def cancel(self, batch_id: str) -> None:
        await self._api.cancel(batch_id)

    async def stage(self, shard: Shard, seconds: float) -> "UploadedLines | Failed":
        with open_temporary() as lines:
            entries = list(shard.entries.values())
            size = await in_thread(lambda: write_lines(lines, entries))
            reply = await self._api.upload(display_name_of(shard.digest), lines, size, seconds)
        if not 200 <= reply.status <= 299:
            self._channel.count_answer(reply, len(shard.entries))
            return self._channel.refusal(reply)
        file = read_file(object_in(reply) or {})
        return UploadedLines(file, shard, self._api, self._channel, self._lookup)

    async def read_results(self, batch: GeminiBatch) -> BatchResults:
        """The results of an ended batch. A request that is not in them is distinguished from results that are gone."""
        if not batch.ended:
            raise Transient(f"{batch.id} has not ended")
        file = None
        if batch.output_file is not None:
            file = await BatchResultFile.download(lambda into: self._api.download(batch.id, into), reference_of)
        files = [] if file is None else [file]
        if files:
            self._api.lag.require_whole(batch.id, files, batch.succeeded + batch.failed)
        told = 0 if file is None else len(file.keys())
        if batch.is_ours and batch.input_file is not None and 0 < batch.total <= told:
            with suppress(HandlerError):  # a file that is not deleted here expires in two days
                await self._api.delete_file(batch.input_file)
        reader = GeminiResultReader(batch, file is not None, told, self._channel.price_of)
        return BatchResults(batch, files, reader, self._channel.wire.veil)


class UploadedLines:
    """A shard whose requests are a file at the provider. It has cost nothing yet."""

    def __init__(
        self, file: UploadedFile, shard: Shard, api: FilesAndJobs, channel: Channel, lookup: "GeminiBatchLookup"
    ) -> None:
        self._file = file
        self._shard = shard
        self._api = api
        self._channel = channel
        self._lookup = lookup

    async def wait_ready(self, create_seconds: float) -> Failed | None:
        seconds = LOOK_SECONDS
        while self._file.state == _PROCESSING:
            if self._shard.seconds_left < create_seconds + seconds:
                raise Transient("the provider is still processing the file of the batch")
            await self._channel.clock.sleep(seconds)
            seconds = min(seconds * 2, LOOK_SECONDS_MAX)
            with suppress(Transient, Throttled, OutcomeUnknown):  # it is looked at again
                self._file = await self._api.show_file(self._file.name)
        if self._file.state != ACTIVE:
            message = f"the provider could not process the file of the batch: {self._file.state}"
            return Failed(Failure(ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE, message))
        return None

    async def create(self, seconds: float) -> str | Failed:
        name = display_name_of(self._shard.digest)
        expected = self._lookup.expect_named(name, list(self._shard.entries))
        reply = await self._api.create(self._shard.key.url, name, self._file.name, seconds)
        if reply.status == 408 or reply.status >= 500:
            # Often a gateway answers so while the batch is created behind it: the batch can be looked up.
            raise OutcomeUnknown(f"the provider answered {reply.status} to the creation of a batch")
        self._channel.count_answer(reply, len(expected))
        if not 200 <= reply.status <= 299:
            return self._channel.refusal(reply)
        if (made := id_in(object_in(reply), "name")) is None:
            raise OutcomeUnknown("the provider accepted a batch but gave no name for it")
        batch_id = made.removeprefix("batches/")
        self._lookup.remember(batch_id, expected)
        return batch_id


def write_lines(file: BinaryIO, entries: Sequence[ShardEntry]) -> int:
    """Returns the number of bytes."""
    for entry in entries:
        file.write(f'{{"key":"{entry.ref}","request":{entry.body}}}\n'.encode())
    size = file.tell()
    file.seek(0)
    return size


class GeminiResultReader:
    def __init__(self, batch: GeminiBatch, whole: bool, told: int, price_of: PriceOf) -> None:
        self._batch = batch
        self._whole = whole  # the results could be read
        self._told = told  # how many requests have a line
        self._price_of = price_of

    @property
    def too_many_tokens(self) -> bool:
        return self._batch.state == FAILED and self._batch.error_code == _EXHAUSTED

    def read_line(self, text: str) -> LineResult | None:
        found = {member.key: member for member in members(text)}
        response, error = found.get("response"), found.get("error")
        if response is not None and isinstance(response.value, dict):
            reply = ProviderReply(200, {}, text[response.start : response.end])  # kept byte for byte
            return line_of_reply(read_reply(reply, NO_HINTS, self._price_of))
        if error is None or not error.value:
            return None
        failure = failure_of_error(error.value)
        cancelled = failure.provider_status == STATUS_OF_NAME["CANCELLED"] and self._batch.state == CANCELLED
        reply = ProviderReply(failure.provider_status or 500, {}, json.dumps({"error": error.value}))
        return line_of_reply(read_reply(reply, NO_HINTS, self._price_of), cancelled)

    def read_missing(self, ref: str, wait_ms: int) -> LineResult:
        batch = self._batch
        if batch.state == FAILED and batch.succeeded == 0:
            return self._refusal(wait_ms)
        # It is not known which of the requests without a line were run.
        all_told = self._told >= batch.succeeded + batch.failed
        if batch.state == EXPIRED and all_told:
            return line_failed(ErrorCode.GW_TIMEOUT, FailureKind.INFRASTRUCTURE, "the batch expired")
        if batch.state == CANCELLED and all_told:
            message = "the batch was cancelled at the provider before this request was run"
            return line_failed(ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE, message, cancelled=True)
        message = RESULTS_GONE if batch.output_file is not None and not self._whole else RESULT_MISSING
        return line_failed(ErrorCode.UNKNOWN, FailureKind.UNKNOWN, message)

    def _refusal(self, wait_ms: int) -> LineResult:
        """Nothing of the batch was run."""
        words = self._batch.error or "without a reason"
        if self.too_many_tokens:
            failure = Failure(ErrorCode.GW_4XX, FailureKind.THROTTLED, words, wait_ms)
            return LineResult(Failed(failure, task_ended=True))
        return line_failed(ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE, f"the provider refused the batch: {words}")


class GeminiBatchLookup(ListedBatchLookup[GeminiBatch]):
    """The list has the display names, so a batch whose creation began here is known while it runs. Others of ours show
    their requests when they have ended."""

    reference_of = staticmethod(reference_of)
    member = b'"key"'

    def __init__(self, api: FilesAndJobs, channel: Channel, tasks: Tasks) -> None:
        super().__init__(api, channel, tasks)
        self._named: dict[str, LineIndex] = {}

    def expect_named(self, name: str, refs: Sequence[str]) -> LineIndex:
        """Records that a batch of this name is about to be created."""
        index = self._named[name] = self.expect(refs)
        while len(self._named) > SENT_REMEMBERED_MAX:
            del self._named[next(iter(self._named))]
        return index

    def _find_known(self, ref: str) -> str | None:
        running = (batch.id for batch in self._open if ref in self._named.get(batch.display_name or "", ()))
        return super()._find_known(ref) or next(running, None)
