"""Batches made of uploaded files, and the results of an ended batch, line by line. A file alone costs nothing, and a
batch is found again by the file it was made of."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Final

from backstay.clock import Tasks
from backstay.core.errors import HandlerError, OutcomeUnknown, Throttled, Transient
from backstay.core.failures import ErrorCode, Failure, FailureKind, failure_of_status
from backstay.core.models import Failed
from backstay.handlers.function import in_thread
from backstay.llm.batch_lookup import LagMemory
from backstay.llm.batch_results import (
    RESULT_MISSING,
    RESULTS_GONE,
    BatchResultFile,
    BatchResults,
    LineIndex,
    LineResult,
    line_failed,
    line_of_reply,
)
from backstay.llm.bodies import id_in, object_in
from backstay.llm.lines import LlmRequest, members, open_temporary
from backstay.llm.provider import Certainty, Channel, PriceOf, ProviderReply
from backstay.llm.providers.openai.batch_api import (
    CANCELLED,
    COMPLETED,
    EXPIRED,
    FAILED,
    MARK,
    PROCESSED,
    UPLOADED,
    BatchLookup,
    FilesAndBatches,
    FileView,
    OpenAiBatch,
    reference_of,
)
from backstay.llm.providers.openai.replies import failure_of_error, read_reply
from backstay.llm.rate_limits import NO_HINTS
from backstay.llm.shards import BATCH_REQUESTS_MAX, Shard, ShardBounds, ShardEntry

LOOK_SECONDS: Final = 0.5  # until the next look at a file that is still being processed; longer each time
LOOK_SECONDS_MAX: Final = 5.0

# Codes of a line that was never run; its request was not paid for.
_LINE_CANCELLED: Final = "batch_cancelled"
_LINE_EXPIRED: Final = "batch_expired"
_NOT_RUN: Final = {_LINE_EXPIRED: ErrorCode.GW_TIMEOUT, _LINE_CANCELLED: ErrorCode.GW_5XX}
_TOKEN_LIMIT: Final = "token_limit"


class OpenAiBatches:
    """Services with batches like OpenAI's differ in the calls alone: `calls`."""

    calls: type[FilesAndBatches] = FilesAndBatches
    bounds = ShardBounds(BATCH_REQUESTS_MAX, bytes_max=100 << 20)  # OpenAI accepts 50,000 requests and 200 MB
    certainty = Certainty.CERTAIN

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._api = self.calls(channel)
        self._lookup = BatchLookup(self._api, channel.clock, Tasks())
        self._lag = LagMemory(channel)

    async def close(self) -> None:
        await self._lookup.close()

    def group_of(self, request: LlmRequest, fields: Mapping[str, Any]) -> tuple[str | None, str]:
        """A batch has one model and one path."""
        model = fields.get("model")
        return model if isinstance(model, str) else None, request.url

    async def find(self, ref: str, since_ms: int) -> str | None:
        return await self._lookup.find(ref, since_ms // 1000)

    async def show(self, batch_id: str) -> OpenAiBatch | None:
        return await self._api.show(batch_id)

    async def cancel(self, batch_id: str) -> None:
        await self._api.cancel(batch_id)

    async def stage(self, shard: Shard, seconds: float) -> "UploadedShard | Failed":
        """The file of the shard: an existing one, even from a process that crashed; otherwise it is uploaded."""
        lines = open_temporary()
        try:
            entries = list(shard.entries.values())
            size = await in_thread(lambda: write_lines(lines, self._api.line_middle(shard.key.url), entries))
            if (known := await self._find_unused_file(shard, size)) is not None:
                return self._uploaded_shard(known, shard)
            name = f"{MARK}-{shard.digest}.jsonl"
            reply = await self._api.upload(name, lines, seconds)
        finally:
            lines.close()
        if not 200 <= reply.status <= 299:
            self._channel.count_answer(reply, len(shard.entries))
            return self._channel.refusal(reply)
        said = object_in(reply)
        if said is None or (file_id := id_in(said)) is None:
            raise Transient("the provider accepted a file but gave no id for it")
        self._lookup.remember(file_id, list(shard.entries))
        self._lookup.keep_unused(shard.digest, file_id)
        return self._uploaded_shard(self._api.read_file(file_id, said), shard)

    async def read_results(self, batch: OpenAiBatch) -> BatchResults:
        """Both files of an ended batch. A request that is in neither is distinguished from one whose file cannot be
        read any more."""
        if not batch.ended:
            raise Transient(f"{batch.id} has not ended")
        named: LineIndex | None = None
        if any(error.line is not None for error in batch.errors) and batch.input_file_id is not None:
            named = await self._lookup.index(batch.input_file_id)
        files: list[BatchResultFile] = []
        ids = [file_id for file_id in (batch.output_file_id, batch.error_file_id) if file_id is not None]
        try:
            for file_id in ids:
                if (file := await self._download(file_id)) is not None:
                    files.append(file)
        except BaseException:
            for file in files:
                file.close()
            raise
        whole = len(files) == len(ids)
        if files:
            self._lag.require_whole(batch.id, files, batch.done if whole else 0)
        if batch.marked and batch.input_file_id is not None and whole and tells_all(batch, files):
            with suppress(HandlerError):  # a file that is not deleted here expires at the provider
                await self._api.delete(batch.input_file_id)
        reader = OpenAiResultReader(batch, whole, named, self._channel.price_of)
        return BatchResults(batch, files, reader, self._channel.wire.veil)

    async def _find_unused_file(self, shard: Shard, size: int) -> FileView | None:
        file_id = self._lookup.find_unused(shard.digest)
        found = await self._api.show_file(file_id) if file_id is not None else None
        if found is None or found.broken or found.bytes != size:
            self._lookup.use(shard.digest)
            return None
        return found

    def _uploaded_shard(self, file: FileView, shard: Shard) -> "UploadedShard":
        return UploadedShard(file, shard, self._channel, self._api, self._lookup)

    async def _download(self, file_id: str) -> BatchResultFile | None:
        return await BatchResultFile.download(lambda into: self._api.download(file_id, into), reference_of)


class UploadedShard:
    """A shard whose lines are in a file at the provider. A file without a batch is used again for the same requests,
    also by the next process after a crash."""

    def __init__(
        self, file: FileView, shard: Shard, channel: Channel, api: FilesAndBatches, lookup: BatchLookup
    ) -> None:
        self._file = file
        self._shard = shard
        self._channel = channel
        self._api = api
        self._lookup = lookup

    async def wait_ready(self, create_seconds: float) -> Failed | None:
        """Most providers process a file at once. Claims that grow too old meanwhile come back to the same file."""
        shard, seconds = self._shard, LOOK_SECONDS
        while self._file.pending:
            left = shard.seconds_left - create_seconds
            if shard.broken or shard.is_stopped() or left <= 0:
                raise Throttled("the provider is still processing the file of the batch", LOOK_SECONDS_MAX)
            await self._channel.clock.sleep(min(seconds, left))
            seconds = min(2 * seconds, LOOK_SECONDS_MAX)
            self._file = await self._look()
        if not self._file.broken:
            return None
        self._lookup.use(shard.digest)
        message = f"the provider could not process the file of the batch: {self._file.details or self._file.status}"
        return Failed(Failure(ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE, message))

    async def create(self, seconds: float) -> str | Failed:
        shard = self._shard
        self._lookup.use(shard.digest)
        reply = await self._api.create(self._file.id, shard, seconds)
        if reply.status >= 500 or reply.status == 408:
            # Often a gateway answers so while the batch is created behind it: the batch can be looked up.
            raise OutcomeUnknown(f"the provider answered {reply.status} to the creation of a batch")
        self._channel.count_answer(reply, len(shard.entries))
        if not 200 <= reply.status <= 299:
            self._lookup.keep_unused(shard.digest, self._file.id)
            return await self._refusal(reply)
        if (batch_id := self._api.created_id(reply)) is None:
            raise OutcomeUnknown("the provider accepted a batch but gave no id for it")
        return batch_id

    async def _refusal(self, reply: ProviderReply) -> Failed:
        """If the file was not ready, the requests are not at fault."""
        refused = self._channel.refusal(reply)
        if self._file.status != PROCESSED and refused.failure.kind is FailureKind.BUSINESS:
            found = await self._look()
            if found.pending or found.status == UPLOADED:
                raise Transient(f"{refused.failure.message} (its file is {found.status})")
        return refused

    async def _look(self) -> FileView:
        try:
            found = await self._api.show_file(self._file.id)
        except (Transient, Throttled, OutcomeUnknown):
            return self._file  # it is looked at again
        if found is None:
            raise Transient("the provider no longer has the file of the batch")
        return found


def tells_all(batch: OpenAiBatch, files: Sequence[BatchResultFile]) -> bool:
    """Whether there is a result for every request, so that the input need not be kept."""
    told = set[int]().union(*(file.keys() for file in files))
    return batch.status == COMPLETED and 0 < batch.total <= len(told)


def write_lines(file: BinaryIO, middle: str, entries: Sequence[ShardEntry]) -> int:
    """Returns the number of bytes. `middle` stands between the reference and the body."""
    for entry in entries:
        file.write(f'{{"custom_id":"{entry.ref}{middle}{entry.body}}}\n'.encode())
    size = file.tell()
    file.seek(0)
    return size


class OpenAiResultReader:
    def __init__(self, batch: OpenAiBatch, whole: bool, named: LineIndex | None, price_of: PriceOf) -> None:
        self._batch = batch
        self._whole = whole  # every existing file could be read
        self._named = named  # the lines of its input, if errors name any
        self._price_of = price_of

    @property
    def too_many_tokens(self) -> bool:
        return self._batch.status == FAILED and any(_TOKEN_LIMIT in error.code for error in self._batch.errors)

    def read_line(self, text: str) -> LineResult | None:
        found = {member.key: member for member in members(text)}
        response, error = found.get("response"), found.get("error")
        if response is not None and isinstance(response.value, dict):
            return self._read_response(text[response.start : response.end], response.value)
        return self._read_error(error.value) if error is not None and error.value else None

    def read_missing(self, ref: str, wait_ms: int) -> LineResult:
        if self._batch.status == FAILED:
            return LineResult(self._refusal(ref, wait_ms))
        if self._batch.status == EXPIRED and self._whole:
            return self._not_run(_LINE_EXPIRED, "the batch expired before this request was run")
        if self._batch.status == CANCELLED and self._whole:
            return self._not_run(_LINE_CANCELLED, "the batch was cancelled at the provider")
        message = RESULT_MISSING if self._whole else RESULTS_GONE
        return line_failed(ErrorCode.UNKNOWN, FailureKind.UNKNOWN, message)

    def _read_response(self, text: str, response: dict[str, Any]) -> LineResult:
        """The same as for a single reply: its body is kept byte for byte."""
        status, request_id = response.get("status_code"), response.get("request_id")
        body = next((text[member.start : member.end] for member in members(text) if member.key == "body"), "")
        if type(status) is not int or not 100 <= status <= 599:
            message = "the provider's line has neither a status nor a result"
            return line_failed(ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE, message)
        headers = {"x-request-id": request_id} if isinstance(request_id, str) else {}
        return line_of_reply(read_reply(ProviderReply(status, headers, body), NO_HINTS, self._price_of))

    def _read_error(self, error: object) -> LineResult:
        code = error.get("code") if isinstance(error, dict) else None
        if isinstance(error, dict) and isinstance(code, str) and code in _NOT_RUN:
            return self._not_run(code, str(error.get("message")))
        return LineResult(_failed_task(failure_of_error(error)))

    def _not_run(self, code: str, message: str) -> LineResult:
        cancelled = code == _LINE_CANCELLED and self._batch.status == CANCELLED
        words = _sentence(code, message)
        return line_failed(_NOT_RUN[code], FailureKind.INFRASTRUCTURE, words, cancelled=cancelled)

    def _refusal(self, ref: str, wait_ms: int) -> Failed:
        """Nothing of the batch was run. The requests with errors are named; the others may be tried again."""
        errors = self._batch.errors
        if self.too_many_tokens:
            message = _sentence(*errors[0][:2])
            return _failed_task(Failure(ErrorCode.GW_4XX, FailureKind.THROTTLED, message, wait_ms))
        at_fault = {error.line: error for error in errors if error.line is not None} if self._named is not None else {}
        numbers = self._named.spots(ref) if self._named is not None else []
        if (own := next((at_fault[number] for number in numbers if number in at_fault), None)) is not None:
            return _failed_task(failure_of_status(400, _sentence(own.code, own.message)))
        if any(1 <= number <= len(self._named or ()) for number in at_fault):
            message = "another request of its batch is not valid, so none was run"
            return _failed_task(Failure(ErrorCode.GW_4XX, FailureKind.THROTTLED, message))
        words = _sentence(*errors[0][:2]) if errors else "without a reason"
        failure = Failure(ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE, f"the provider refused the batch: {words}")
        return _failed_task(failure)


def _sentence(code: str, message: str) -> str:
    return f"{message} ({code})"


def _failed_task(failure: Failure) -> Failed:
    return Failed(failure, task_ended=True)
