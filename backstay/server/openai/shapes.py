"""Files and batches as OpenAI's clients know them: every field, null where there is nothing to say."""

import json
from collections.abc import Sequence
from typing import Any

from backstay.core.states import BatchStatus
from backstay.store.batches import Batch
from backstay.store.files import StoredFile

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
