"""The meaning of the lines of an ended batch, and of a missing line."""

import json
import re
from dataclasses import replace
from typing import Any, Final

from backstay.core.errors import ErrorCode
from backstay.core.failures import Failure, FailureKind, failure_of_status
from backstay.core.outcomes import Failed
from backstay.llm.batch_results import LineIndex, LineResult, is_reference
from backstay.llm.lines import members
from backstay.llm.openai.batch_api import CANCELLED, EXPIRED, FAILED, OpenAiBatch
from backstay.llm.openai.replies import failure_of_error, read_reply
from backstay.llm.provider import PriceOf, ProviderReply
from backstay.llm.rate_limits import NO_HINTS

# Codes of a line that was never run; its request was not paid for.
_LINE_CANCELLED: Final = "batch_cancelled"
_LINE_EXPIRED: Final = "batch_expired"
_NOT_RUN: Final = {_LINE_EXPIRED: ErrorCode.GW_TIMEOUT, _LINE_CANCELLED: ErrorCode.GW_5XX}
_TOKEN_LIMIT: Final = "token_limit"
# Nearly every line of a file that we wrote, or that a provider made of it, begins like this.
_HEAD: Final = re.compile(rb'\{(?:"id": ?"[^"\\]*", ?)?"custom_id": ?"([0-9a-f]{40})"')


def reference_of(line: bytes) -> str | None:
    """The reference in a line of requests or results. A line without one counts as no answer for its request."""
    head = _HEAD.match(line)
    if head is not None:
        return head[1].decode()
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    named = value.get("custom_id") if isinstance(value, dict) else None
    return named if is_reference(named) else None


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
            return LineResult(self._read_response(text[response.start : response.end], response.value))
        return self._read_error(error.value) if error is not None and error.value else None

    def read_missing(self, ref: str, wait_ms: int) -> LineResult:
        if self._batch.status == FAILED:
            return LineResult(self._refusal(ref, wait_ms))
        if self._batch.status == EXPIRED and self._whole:
            return self._not_run(_LINE_EXPIRED, "the batch expired before this request was run")
        if self._batch.status == CANCELLED and self._whole:
            return self._not_run(_LINE_CANCELLED, "the batch was cancelled at the provider")
        message = "the batch ended without a result for this request, which may have been processed and paid"
        if not self._whole:
            message = "the provider no longer has the results of the batch, which were probably paid for"
        return LineResult(_ended(Failure(ErrorCode.UNKNOWN, FailureKind.UNKNOWN, message)))

    def _read_response(self, text: str, response: dict[str, Any]) -> Any:
        """The same as for a single reply: its body is kept byte for byte."""
        status, request_id = response.get("status_code"), response.get("request_id")
        body = next((text[member.start : member.end] for member in members(text) if member.key == "body"), "")
        if type(status) is not int or not 100 <= status <= 599:
            message = "the provider's line has neither a status nor a result"
            return _ended(Failure(ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE, message))
        headers = {"x-request-id": request_id} if isinstance(request_id, str) else {}
        outcome = read_reply(ProviderReply(status, headers, body), NO_HINTS, self._price_of)
        return replace(outcome, task_ended=True) if isinstance(outcome, Failed) else outcome

    def _read_error(self, error: object) -> LineResult:
        code = error.get("code") if isinstance(error, dict) else None
        if isinstance(error, dict) and isinstance(code, str) and code in _NOT_RUN:
            return self._not_run(code, str(error.get("message")))
        return LineResult(_ended(failure_of_error(error)))

    def _not_run(self, code: str, message: str) -> LineResult:
        failure = Failure(_NOT_RUN[code], FailureKind.INFRASTRUCTURE, _sentence(code, message))
        return LineResult(_ended(failure), code == _LINE_CANCELLED and self._batch.status == CANCELLED)

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
