"""What an ended batch says about each of its requests, whatever its two files hold or leave out."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO, Final

from backstay.core.errors import ErrorCode, Transient
from backstay.core.failures import Failure, FailureKind, failure_of_status
from backstay.core.outcomes import Failed, Succeeded
from backstay.handlers.function import in_thread
from backstay.handlers.task import Answer
from backstay.llm.batch_api import BatchApi, BatchView
from backstay.llm.credentials import Veil
from backstay.llm.http.wire import ProviderReply
from backstay.llm.line_index import LINE_BYTES_MAX, LineIndex, refs_by_offset
from backstay.llm.lines import LineRefused, members, text_of
from backstay.llm.rate_limits import NO_HINTS
from backstay.llm.replies import failure_of_error, read_reply
from backstay.llm.temporary_files import open_temporary
from backstay.llm.usage import PriceOf

# A line that was never run; its request was not paid for.
_CANCELLED: Final = "batch_cancelled"
_UNDONE: Final = {
    "batch_expired": (ErrorCode.GW_TIMEOUT, FailureKind.INFRASTRUCTURE),
    _CANCELLED: (ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE),
}
_TOKEN_LIMIT: Final = "token_limit"


class BatchResultFile:
    """One downloaded file of results, and where its lines are. It has no name, so it ends with whoever holds it."""

    def __init__(self, file: BinaryIO, index: LineIndex) -> None:
        self._file = file
        self._index = index

    def lines(self, ref: str) -> Iterator[bytes]:
        for offset in self._index.spots(ref):
            self._file.seek(offset)
            yield self._file.readline(LINE_BYTES_MAX)

    def keys(self) -> set[int]:
        return self._index.keys()

    def close(self) -> None:
        self._file.close()


async def download(api: BatchApi, file_id: str) -> BatchResultFile | None:
    """The file, to be read line by line; None if it is gone."""
    file = open_temporary()
    try:
        if await api.download(file_id, file):
            return BatchResultFile(file, await in_thread(lambda: LineIndex(refs_by_offset(file))))
    except BaseException:
        file.close()
        raise
    file.close()
    return None


class BatchResults:
    """The answers of one ended batch."""

    def __init__(
        self,
        batch: BatchView,
        files: list[BatchResultFile],
        whole: bool,
        named: LineIndex | None,
        price_of: PriceOf,
        veil: Veil,
    ) -> None:
        self.batch = batch
        self._files = files
        self._whole = whole  # every file that there was could be read
        self._named = named  # the lines of its input, if errors name any
        self._price_of = price_of
        self._veil = veil  # a file is written to disk as it came, and may repeat a secret

    def answer(self, ref: str, wait_ms: int, cancelled_here: bool = False) -> Answer:
        """A success wins over all else that is said. `wait_ms`: until a batch that was refused is tried again.

        A batch that someone else cancelled costs an attempt, or it would be made and cancelled for ever.
        """
        said: Answer | None = None
        for line in self._lines(ref):
            answer = self._read(line)
            if isinstance(answer, Succeeded):
                return answer
            said = said or answer
        said = said or self._unanswered(ref, wait_ms)
        return _at_no_cost(said) if cancelled_here and self.batch.status == "cancelled" else said

    @property
    def tells_all(self) -> bool:
        """Whether there is a result for every request, so that what was asked need not be kept."""
        told = set[int]().union(*(file.keys() for file in self._files))
        return self._whole and self.batch.status == "completed" and 0 < self.batch.total <= len(told)

    @property
    def too_many_tokens(self) -> bool:
        return self.batch.status == "failed" and any(_TOKEN_LIMIT in error.code for error in self.batch.errors)

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _lines(self, ref: str) -> Iterator[bytes]:
        for file in self._files:
            yield from file.lines(ref)

    def _read(self, line: bytes) -> Answer | None:
        try:
            text = self._veil.over(text_of(line))
            found = {member.key: member for member in members(text)}
            response, error = found.get("response"), found.get("error")
            if response is not None and isinstance(response.value, dict):
                return self._responded(text[response.start : response.end], response.value)
        except LineRefused as refused:
            return _ended(Failure(ErrorCode.GW_5XX, FailureKind.UNKNOWN, f"its line in the results {refused}"))
        return _undone(error.value) if error is not None and error.value else None

    def _responded(self, text: str, response: dict[str, Any]) -> Answer:
        """The same as if the reply had come by itself: its body is kept byte for byte."""
        status, request_id = response.get("status_code"), response.get("request_id")
        body = next((text[member.start : member.end] for member in members(text) if member.key == "body"), "")
        if type(status) is not int or not 100 <= status <= 599:
            message = "the provider gave its line neither a status nor a result"
            return _ended(Failure(ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE, message))
        headers = {"x-request-id": request_id} if isinstance(request_id, str) else {}
        outcome = read_reply(ProviderReply(status, headers, body), NO_HINTS, self._price_of)
        return replace(outcome, task_ended=True) if isinstance(outcome, Failed) else outcome

    def _unanswered(self, ref: str, wait_ms: int) -> Failed:
        match self.batch.status:
            case "failed":
                return self._invalid(ref, wait_ms)
            case "expired" if self._whole:
                return _undone({"code": "batch_expired", "message": "the batch expired before this request was run"})
            case "cancelled" if self._whole:
                return _undone({"code": _CANCELLED, "message": "the batch was cancelled at the provider"})
        message = "the batch has ended without a word about this request, which may have been done and paid for"
        if not self._whole:
            message = "the provider no longer has the results of the batch, which were probably paid for"
        return _ended(Failure(ErrorCode.UNKNOWN, FailureKind.UNKNOWN, message))

    def _invalid(self, ref: str, wait_ms: int) -> Failed:
        """Nothing of the batch was run. The requests at fault are named; the others are free to try again."""
        errors = self.batch.errors
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


def _undone(error: object) -> Failed:
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(error, dict) and code in _UNDONE:
        message = _sentence(str(code), str(error.get("message")))
        return _ended(Failure(*_UNDONE[code], message))
    return _ended(failure_of_error(error))


def _at_no_cost(answer: Answer) -> Answer:
    if isinstance(answer, Failed) and answer.failure.message.endswith(f"({_CANCELLED})"):
        return replace(answer, failure=replace(answer.failure, kind=FailureKind.THROTTLED))
    return answer


def _sentence(code: str, message: str) -> str:
    return f"{message} ({code})"


def _ended(failure: Failure) -> Failed:
    return Failed(failure, task_ended=True)


async def reap(api: BatchApi, batch: BatchView, named: LineIndex | None, price_of: PriceOf) -> BatchResults:
    """Downloads both files of an ended batch. What is in neither is told from what can no longer be read."""
    if not batch.ended:
        raise Transient(f"{batch.id} has not ended")
    files: list[BatchResultFile] = []
    ids = [file_id for file_id in (batch.output_file_id, batch.error_file_id) if file_id is not None]
    try:
        for file_id in ids:
            if (file := await download(api, file_id)) is not None:
                files.append(file)
    except BaseException:
        for file in files:
            file.close()
        raise
    return BatchResults(batch, files, len(files) == len(ids), named, price_of, api.veil)
