"""Gemini's batches: a file of requests is uploaded, and a batch of one model is made of it.

A batch has a display name, which recognises ours. An uploaded file cannot be read again, so after a crash the requests
of a batch are known when it has ended, by the keys in its results.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Final

from backstay.clock import Tasks
from backstay.core.errors import ErrorCode, HandlerError, OutcomeUnknown, Throttled, Transient
from backstay.core.failures import Failure, FailureKind
from backstay.core.outcomes import Failed
from backstay.handlers.function import in_thread
from backstay.llm.batch_lookup import ListedBatchLookup
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
from backstay.llm.providers.gemini.batch_api import (
    ACTIVE,
    CANCELLED,
    EXPIRED,
    FAILED,
    FilesAndJobs,
    GeminiBatch,
    UploadedFile,
    display_name_of,
    read_file,
    reference_of,
)
from backstay.llm.providers.gemini.replies import STATUS_OF_NAME, failure_of_error, read_reply
from backstay.llm.providers.gemini.requests import model_of_url, url_of_model
from backstay.llm.rate_limits import NO_HINTS
from backstay.llm.shards import BATCH_REQUESTS_MAX, Shard, ShardBounds, ShardEntry

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
        told = 0 if file is None else len(file.keys())
        if batch.is_ours and batch.input_file is not None and 0 < batch.total <= told:
            with suppress(HandlerError):  # a file that is not deleted here expires in two days
                await self._api.delete_file(batch.input_file)
        reader = GeminiResultReader(batch, file is not None, told, self._channel.price_of)
        return BatchResults(batch, [] if file is None else [file], reader, self._channel.wire.veil)


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
