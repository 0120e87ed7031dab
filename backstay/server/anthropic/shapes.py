"""Message batches as Anthropic's clients know them, and the lines of their results."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import Request

from backstay.core.states import BatchStatus
from backstay.llm.formats import InputOptions, ParsedRequest
from backstay.llm.lines import Member, members, text_of
from backstay.run.result_file import CANCELLED
from backstay.server.openai.shapes import BATCH_EXPIRED, BUDGET_EXCEEDED, content
from backstay.server.openai.survey import LineCutter, entries_of
from backstay.server.problems import ANTHROPIC_TYPES, MESSAGES_PATH
from backstay.server.service import Service, root_of
from backstay.store.batches import Batch
from backstay.store.files import StoredFile

ENDED: Final = (BatchStatus.COMPLETED, BatchStatus.FAILED, BatchStatus.EXPIRED, BatchStatus.CANCELLED)
_ENDS: Final = ("completed_at", "failed_at", "expired_at", "cancelled_at")
_KNOWN: Final = frozenset(ANTHROPIC_TYPES.values()) - {"conflict_error", "request_too_large"}


async def message_batch(service: Service, request: Request, batch: Batch) -> dict[str, Any]:
    ended = batch.status in ENDED
    canceling = batch.status is BatchStatus.CANCELLING
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": "ended" if ended else "canceling" if canceling else "in_progress",
        "request_counts": await _counts(service, batch),
        "created_at": _time(batch.created_at),
        "expires_at": _time(batch.expires_at),
        "ended_at": _time(_ended_at(batch)) if ended else None,
        "cancel_initiated_at": None if batch.cancelling_at is None else _time(batch.cancelling_at),
        "archived_at": None,
        "results_url": f"{_base_url(service, request)}{MESSAGES_PATH}/batches/{batch.id}/results" if ended else None,
    }


def page_of(objects: list[dict[str, Any]], has_more: bool) -> dict[str, Any]:
    return {
        "data": objects,
        "has_more": has_more,
        "first_id": objects[0]["id"] if objects else None,
        "last_id": objects[-1]["id"] if objects else None,
    }


async def _counts(service: Service, batch: Batch) -> dict[str, int]:
    """As long as the batch runs, all its requests count as being processed; the sum is always the same."""
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    if batch.status not in ENDED:
        return {**counts, "processing": batch.requests}
    if batch.status is BatchStatus.FAILED:
        return {**counts, "errored": batch.requests}
    failed, cancelled = batch.failed or 0, batch.cancelled or 0
    expired = await service.store.batches.count_expired(batch.job_id) if batch.job_id is not None and failed else 0
    unsent = max(batch.requests - (batch.total or 0), 0)
    in_time = _ended_at(batch) < batch.expires_at
    out_of_money = batch.status is BatchStatus.COMPLETED  # then nobody has cancelled what is cancelled
    return {
        **counts,
        "succeeded": batch.succeeded or 0,
        "errored": failed - expired + (cancelled if out_of_money else 0),
        "canceled": (0 if out_of_money else cancelled) + (unsent if in_time else 0),
        "expired": expired + (0 if in_time else unsent),
    }


def _ended_at(batch: Batch) -> int:
    return next((at for name in _ENDS if (at := getattr(batch, name)) is not None), batch.created_at)


def _time(moment: int) -> str:
    return datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _base_url(service: Service, request: Request) -> str:
    """The address that the client itself used: it sends its key there. A proxy may have ended the encryption."""
    host = request.headers.get("host", "")
    public = urlsplit(service.backstay.settings.public_url or "")
    scheme = public.scheme if public.netloc == host else request.url.scheme
    return f"{scheme}://{host}{root_of(request)}"


async def result_stream(service: Service, batch: Batch, files: list[StoredFile]) -> AsyncIterator[bytes]:
    """Every request once, each with what came of it."""
    if batch.status is BatchStatus.FAILED:
        words = "; ".join(str(error["message"]) for error in json.loads(batch.errors or "[]")[:3])
        begun = "The batch failed while it was being sent; some requests may have been processed."
        said = "The batch was not sent." if batch.in_progress_at is None else begun
        failed = _errored("invalid_request_error", f"{said} {words}")
        async for _, entry in entries_of(service, batch, InputOptions()):
            if isinstance(entry, ParsedRequest):
                yield _line(json.dumps(entry.custom_id), failed)
    for file in files:
        lines = LineCutter()
        async for piece in content(service, file):
            if found := b"".join(map(result_line, lines.feed(piece))):
                yield found


def result_line(line: bytes) -> bytes:
    """A line of the Batch output format in Anthropic's."""
    text = text_of(line)
    named = {member.key: member for member in members(text)}
    return _line(_slice(text, named["custom_id"]), _result(text, named))


def _result(text: str, named: dict[str, Member]) -> str:
    response, error = named["response"], named["error"].value
    if error is not None:
        return _of_code(error["code"], error["message"])
    answer = _slice(text, response)
    body = next((member for member in members(answer) if member.key == "body"), None)
    status = int(response.value["status_code"])
    if status < 400 and body is not None:
        return f'{{"type":"succeeded","message":{_slice(answer, body)}}}'
    said: dict[str, Any] = body.value if body is not None and isinstance(body.value, dict) else {}
    inner = said.get("error")
    if isinstance(inner, dict) and inner.get("type") in _KNOWN and isinstance(inner.get("message"), str):
        return _errored(inner["type"], inner["message"], said.get("request_id"))
    kind = ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return _errored(kind if kind in _KNOWN else "invalid_request_error", f"the provider answered {status}")


def _of_code(code: str, message: str) -> str:
    if code == CANCELLED:
        return '{"type":"canceled"}'
    if code == BATCH_EXPIRED:
        return '{"type":"expired"}'
    return _errored("billing_error" if code == BUDGET_EXCEEDED else "api_error", f"{message} ({code})")


def _errored(kind: str, message: str, request_id: object = None) -> str:
    named = request_id if isinstance(request_id, str) else None
    error = {"type": "error", "error": {"type": kind, "message": message}, "request_id": named}
    return json.dumps({"type": "errored", "error": error})


def _line(custom_id: str, result: str) -> bytes:
    return f'{{"custom_id":{custom_id},"result":{result}}}\n'.encode("utf-8", "backslashreplace")


def _slice(text: str, member: Member) -> str:
    return text[member.start : member.end]
