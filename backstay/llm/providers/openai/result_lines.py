"""The results of an ended batch, line by line, and how a batch is found again after a crash."""

import re
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

from backstay.clock import Clock, Tasks
from backstay.core.errors import ErrorCode, Transient
from backstay.core.failures import Failure, FailureKind, failure_of_status
from backstay.core.outcomes import Failed
from backstay.handlers.function import in_thread
from backstay.llm.batch_lookup import BatchSurvey
from backstay.llm.batch_results import (
    RESULT_MISSING,
    RESULTS_GONE,
    LineIndex,
    LineResult,
    line_failed,
    line_of_reply,
    reference_in,
    references_by_number,
)
from backstay.llm.lines import members, open_temporary
from backstay.llm.provider import PriceOf, ProviderReply
from backstay.llm.providers.openai.batch_api import (
    CANCELLED,
    COMPLETED,
    EXPIRED,
    FAILED,
    FilesAndBatches,
    OpenAiBatch,
    OurFile,
)
from backstay.llm.providers.openai.replies import failure_of_error, read_reply
from backstay.llm.rate_limits import NO_HINTS

# Codes of a line that was never run; its request was not paid for.
_LINE_CANCELLED: Final = "batch_cancelled"
_LINE_EXPIRED: Final = "batch_expired"
_NOT_RUN: Final = {_LINE_EXPIRED: ErrorCode.GW_TIMEOUT, _LINE_CANCELLED: ErrorCode.GW_5XX}
_TOKEN_LIMIT: Final = "token_limit"
# Nearly every line of a file that we wrote, or that a provider made of it, begins like this.
_HEAD: Final = re.compile(rb'\{(?:"id": ?"[^"\\]*", ?)?"custom_id": ?"([0-9a-f]{40})"')


def reference_of(line: bytes) -> str | None:
    return reference_in(line, _HEAD, "custom_id")


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
        return LineResult(_ended(failure_of_error(error)))

    def _not_run(self, code: str, message: str) -> LineResult:
        cancelled = code == _LINE_CANCELLED and self._batch.status == CANCELLED
        words = _sentence(code, message)
        return line_failed(_NOT_RUN[code], FailureKind.INFRASTRUCTURE, words, cancelled=cancelled)

    def _refusal(self, ref: str, wait_ms: int) -> Failed:
        """Nothing of the batch was run. The requests with errors are named; the others may be tried again."""
        errors = self._batch.errors
        if self.too_many_tokens:
            message = _sentence(*errors[0][:2])
            return _ended(Failure(ErrorCode.GW_4XX, FailureKind.THROTTLED, message, wait_ms))
        at_fault = {error.line: error for error in errors if error.line is not None} if self._named is not None else {}
        numbers = self._named.spots(ref) if self._named is not None else []
        if (own := next((at_fault[number] for number in numbers if number in at_fault), None)) is not None:
            return _ended(failure_of_status(400, _sentence(own.code, own.message)))
        if any(1 <= number <= len(self._named or ()) for number in at_fault):
            message = "another request of its batch is not valid, so none was run"
            return _ended(Failure(ErrorCode.GW_4XX, FailureKind.THROTTLED, message))
        words = _sentence(*errors[0][:2]) if errors else "without a reason"
        failure = Failure(ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE, f"the provider refused the batch: {words}")
        return _ended(failure)


def _sentence(code: str, message: str) -> str:
    return f"{message} ({code})"


def _ended(failure: Failure) -> Failed:
    return Failed(failure, task_ended=True)


CLOCKS_APART_SECONDS: Final = 86_400  # the provider's and the database's, at most
FILES_REMEMBERED_MAX: Final = 200


class BatchLookup:
    """Many references at a time are looked up together: each file is read once."""

    def __init__(self, api: FilesAndBatches, clock: Clock, tasks: Tasks) -> None:
        self._api = api
        self._clock = clock
        self._indexes: dict[str, LineIndex] = {}  # by file
        self._batches: dict[str, str] = {}  # by file
        self._unused: dict[str, str] = {}  # files without a batch, by the digests in their names
        self._gone: list[OpenAiBatch] = []  # those whose content is unknown
        self._survey = BatchSurvey(self._look, clock, tasks)

    def remember(self, file_id: str, refs: Sequence[str]) -> None:
        """Records the content of a file that we uploaded, so that it need not be downloaded."""
        self._indexes[file_id] = LineIndex((ref, number) for number, ref in enumerate(refs, start=1))
        while len(self._indexes) > FILES_REMEMBERED_MAX + len(self._batches):
            del self._indexes[next(file for file in self._indexes if file not in self._batches)]

    def find_unused(self, digest: str) -> str | None:
        """The file of these requests, if one was uploaded and no batch was made of it."""
        return self._unused.get(digest)

    def keep_unused(self, digest: str, file_id: str) -> None:
        self._unused[digest] = file_id
        while len(self._unused) > FILES_REMEMBERED_MAX:
            del self._unused[next(iter(self._unused))]

    def use(self, digest: str) -> None:
        """Forgets the file: a batch is about to be made of it, or it cannot be used."""
        self._unused.pop(digest, None)

    async def find(self, ref: str, since: int) -> str | None:
        """The batch of the request; None if it certainly does not exist. Raises if it is not certain.

        `since`: the second before which the request was certainly not sent, so no older batch has it.
        """
        asked_at = self._clock.monotonic()
        since -= CLOCKS_APART_SECONDS
        while (found := self._known(ref)) is None and not self._survey.covers(asked_at, since):
            await self._survey.wait(since)
        gone = next((batch for batch in self._gone if batch.created_at is None or batch.created_at >= since), None)
        if found is None and gone is not None:
            raise Transient(f"the file of {gone.id} was deleted at the provider, so its content is not known")
        return found

    def _known(self, ref: str) -> str | None:
        """The batch of a request, once known, does not change."""
        return next((batch for file, batch in self._batches.items() if ref in self._indexes[file]), None)

    async def index(self, file_id: str) -> LineIndex | None:
        """The references in a file and the numbers of their lines; None if the file is gone."""
        known = self._indexes.get(file_id)
        if known is not None:
            return known
        with open_temporary() as file:
            if not await self._api.download(file_id, file):
                return None
            self._indexes[file_id] = await in_thread(lambda: _read(file))
        return self._indexes[file_id]

    async def _look(self, since: int) -> None:
        files = await self._api.our_files()
        batches = await self._api.since(since)
        self._keep_those_without_batches(files, batches, since)
        ours = {file.id for file in files}
        kept: set[str] = set()
        gone: list[OpenAiBatch] = []
        for batch in batches:
            file_id = batch.input_file_id
            if file_id is None or not (batch.marked or file_id in ours):
                continue
            if await self.index(file_id) is None and not await self._index_results(batch, file_id):
                gone.append(batch)
                continue
            self._batches[file_id] = batch.id
            kept.add(file_id)
        for file_id in self._batches.keys() - kept:
            del self._batches[file_id], self._indexes[file_id]
        self._gone = gone

    def _keep_those_without_batches(self, files: Sequence[OurFile], batches: Sequence[OpenAiBatch], since: int) -> None:
        """A process that was killed between upload and batch leaves such a file. Older files may have batches that are
        not listed here."""
        used = {batch.input_file_id for batch in batches}
        for digest in [digest for digest, file_id in self._unused.items() if file_id in used]:
            del self._unused[digest]
        for file in files:
            if file.id not in used and file.created_at is not None and file.created_at >= since:
                self.keep_unused(file.digest, file.id)

    async def _index_results(self, batch: OpenAiBatch, file_id: str) -> bool:
        """Whether the results of a batch show the content of its file: there is one for each request."""
        if batch.status != COMPLETED:
            return False
        lines = LineIndex([*await self._lines(batch.output_file_id), *await self._lines(batch.error_file_id)])
        if not 0 < batch.total <= len(lines.keys()):
            return False
        self._indexes[file_id] = lines
        return True

    async def _lines(self, file_id: str | None) -> list[tuple[str, int]]:
        with open_temporary() as file:
            if file_id is None or not await self._api.download(file_id, file):
                return []
            return list(await in_thread(lambda: list(references_by_number(file, reference_of))))

    async def close(self) -> None:
        await self._survey.close()


def _read(file: BinaryIO) -> LineIndex:
    return LineIndex(references_by_number(file, reference_of))
