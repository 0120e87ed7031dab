"""Files and batches as OpenAI's clients know them, and the lines of their files."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from backstay.core.models import Flaw
from backstay.core.states import BatchStatus
from backstay.llm.lines import unseal
from backstay.llm.providers import CHAT, provider_of_url
from backstay.run.collector import row_in_chat
from backstay.run.result_file import CANCELLED, EndedRequest, ended_request, lines_of
from backstay.server.service import Service
from backstay.store.batches import Batch
from backstay.store.files import INPUT, OUTPUT, StoredFile
from backstay.store.results import Copy, ResultRow
from backstay.store.store import Store

MOMENTS = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")


def file_object(file: StoredFile) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_at // 1000,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }
    if file.expires_at is not None:
        shape["expires_at"] = file.expires_at // 1000
    return shape


def batch_object(batch: Batch) -> dict[str, Any]:
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model,
        "errors": None if batch.errors is None else {"object": "list", "data": json.loads(batch.errors)},
        "input_file_id": batch.input_file_id,
        "completion_window": batch.completion_window,
        "status": batch.status,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "created_at": batch.created_at // 1000,
        "expires_at": batch.expires_at // 1000,
        **{f"{moment}_at": _seconds(getattr(batch, f"{moment}_at")) for moment in MOMENTS},
        "request_counts": _counts(batch),
        "usage": _usage(batch),
        "metadata": None if batch.metadata is None else json.loads(batch.metadata),
    }


def page(objects: Sequence[dict[str, Any]], has_more: bool) -> dict[str, Any]:
    return {
        "object": "list",
        "data": objects,
        "first_id": objects[0]["id"] if objects else None,
        "last_id": objects[-1]["id"] if objects else None,
        "has_more": has_more,
    }


def _counts(batch: Batch) -> dict[str, int]:
    """While the requests are still coming in, the job has fewer than the batch will."""
    total = 0 if batch.status is BatchStatus.VALIDATING else max(batch.requests, batch.total or 0)
    left = (batch.cancelled or 0) if batch.status is BatchStatus.COMPLETED else 0  # there was no money for them
    return {"total": total, "completed": batch.succeeded or 0, "failed": (batch.failed or 0) + left}


def _usage(batch: Batch) -> dict[str, Any] | None:
    if batch.input_tokens is None or batch.output_tokens is None:
        return None
    return {
        "input_tokens": batch.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": batch.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": batch.input_tokens + batch.output_tokens,
    }


def _seconds(moment: int | None) -> int | None:
    return None if moment is None else moment // 1000


BATCH_EXPIRED: Final = "batch_expired"
BUDGET_EXCEEDED: Final = "budget_exceeded"
EXPIRED_WORDS: Final = "This request could not be executed before the completion window expired."
BUDGET_WORDS: Final = "The budget of the batch, or of its provider, was too small for this request."


async def content(service: Service, file: StoredFile, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
    """The bytes of a file; of a stored file only those from `start` up to `end`."""
    if file.blob is not None:
        async for chunk in service.artifacts.get(file.blob, start, end):
            yield chunk
    elif file.job_id is not None and file.part == INPUT:
        async for chunk in request_lines(service.store, file.job_id):
            yield chunk
    elif file.job_id is not None:
        async for chunk in result_lines(service.store, file.job_id, ok=file.part == OUTPUT, copies=True):
            yield chunk


async def result_lines(
    store: Store, job_id: int, *, ok: bool, copies: bool, out_of_money: bool = False, as_chat: bool = False
) -> AsyncIterator[bytes]:
    """The ended items in the Batch output format: those that succeeded (`ok`), or the others. `copies`: identical
    requests of a run share an item, and each gets a line. `out_of_money`: items were cancelled because of the budget.
    `as_chat`: the requests were translated from OpenAI's chat format, so the replies are translated back."""
    async for rows in store.batches.results(job_id, ok):
        names = await store.results.copies_of([row.id for row in rows]) if copies else {}
        shown = map(_reply_as_chat, rows) if as_chat else rows
        lines = (_result_of(row, names.get(row.id, ()), out_of_money) for row in shown)
        yield b"".join(lines_of(job_id, line) for line in lines)


def asks_chat(batch: Batch) -> bool:
    """Whether all its requests are in OpenAI's chat format. A run's results are shown as they came."""
    return not batch.adopted and batch.endpoint == CHAT


def _reply_as_chat(row: ResultRow) -> ResultRow:
    url = unseal(row.body).url
    api = None if url == CHAT else provider_of_url(url)
    return row if api is None else row_in_chat(row, api)


def _result_of(row: ResultRow, copies: Sequence[Copy], out_of_money: bool) -> EndedRequest:
    line = ended_request(row, copies)
    if out_of_money and line.code == CANCELLED:
        return line._replace(code=BUDGET_EXCEEDED, message=BUDGET_WORDS)
    if row.expired and row.flaw not in (Flaw.UNKNOWN, Flaw.LATE):  # these may have been paid
        return line._replace(response=None, code=BATCH_EXPIRED, message=EXPIRED_WORDS)
    return line


async def request_lines(store: Store, job_id: int) -> AsyncIterator[bytes]:
    """The requests of a job in the Batch format; their bodies are unchanged."""
    async for bodies in store.batches.requests(job_id):
        yield "".join(_request_line(body) for body in bodies).encode("utf-8", "backslashreplace")


def _request_line(stored: str) -> str:
    asked = unseal(stored)
    named = f'"custom_id":{json.dumps(asked.custom_id)},"method":"POST","url":{json.dumps(asked.url)}'
    return f'{{{named},"body":{asked.body}}}\n'
