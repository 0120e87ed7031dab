"""Mistral: calls as at OpenAI, and batches with paths, names and statuses of their own."""

import json
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import quote

from backstay.core.errors import Transient
from backstay.llm.batch_lookup import ASK_SECONDS
from backstay.llm.bodies import require_object, text_in, whole_in
from backstay.llm.provider import GONE, LlmProvider, ProviderReply
from backstay.llm.providers.openai.batch_api import (
    CANCELLED,
    COMPLETED,
    EXPIRED,
    FAILED,
    FILES,
    IN_PROGRESS,
    MARK,
    PAGES_MAX,
    FilesAndBatches,
    LineError,
    OpenAiBatch,
    OurFile,
    our_digest,
)
from backstay.llm.providers.openai.batches import OpenAiBatches
from backstay.llm.providers.openai_compatible import preset
from backstay.llm.shards import Shard

_JOBS: Final = "/v1/batch/jobs"
_PAGE_ENTRIES: Final = 100
_TIMEOUT_HOURS: Final = 24
_STATUSES: Final = {
    "RUNNING": IN_PROGRESS,
    "SUCCESS": COMPLETED,
    "FAILED": FAILED,
    "TIMEOUT_EXCEEDED": EXPIRED,
    "CANCELLED": CANCELLED,
}
_MODELS: Final = ("mistral-", "ministral-", "codestral-", "devstral-", "magistral-", "pixtral-", "voxtral-", "open-mi")


class MistralFilesAndJobs(FilesAndBatches):
    def line_middle(self, url: str) -> str:
        """A line has no path: it is in the job."""
        return '","body":'

    async def create(self, file_id: str, shard: Shard, seconds: float) -> ProviderReply:
        asked: dict[str, Any] = {"input_files": [file_id], "endpoint": shard.key.url, "timeout_hours": _TIMEOUT_HOURS}
        if shard.key.model is not None:
            asked["model"] = shard.key.model
        return await self._wire.post(_JOBS, json.dumps({**asked, "metadata": {MARK: shard.digest}}), seconds)

    async def show(self, batch_id: str) -> OpenAiBatch | None:
        reply = await self._wire.get(f"{_JOBS}/{quote(batch_id, safe='')}", timeout_seconds=ASK_SECONDS)
        if reply.status in GONE:
            return None
        found = read_job(require_object(self._require_answer(reply)))
        if found.id != batch_id:
            raise Transient(f"the provider was asked about {batch_id} and answered about another job")
        return found

    async def cancel(self, batch_id: str) -> None:
        reply = await self._wire.post(f"{_JOBS}/{quote(batch_id, safe='')}/cancel", "", ASK_SECONDS)
        if reply.status == 429 or reply.status >= 500:
            self._require_answer(reply)

    async def since(self, created_at: int) -> list[OpenAiBatch]:
        """Without the provider's own filters: whether they include the second itself is not known."""
        found: list[OpenAiBatch] = []
        async for page in self._numbered_pages(_JOBS, {"order_by": "-created"}):
            found += map(read_job, page)
            if found and found[-1].created_at is not None and found[-1].created_at < created_at:
                break
        return [batch for batch in found if batch.created_at is None or batch.created_at >= created_at]

    async def our_files(self) -> list[OurFile]:
        found: list[OurFile] = []
        async for page in self._numbered_pages(FILES, {"purpose": "batch"}):
            for file in page:
                if (digest := our_digest(file.get("filename"))) is not None:
                    found.append(OurFile(str(file.get("id")), digest, whole_in(file.get("created_at"))))
        return found

    async def _numbered_pages(self, path: str, params: dict[str, str]) -> AsyncIterator[list[dict[str, Any]]]:
        """Every page of a list. A list that is shorter than its total is an error: it could hide entries."""
        seen: set[str] = set()
        for number in range(PAGES_MAX):
            asked = {**params, "page": str(number), "page_size": str(_PAGE_ENTRIES)}
            said = require_object(self._require_answer(await self._wire.get(path, asked, ASK_SECONDS)))
            page = said.get("data") or []
            if not isinstance(page, list) or not all(isinstance(each, dict) and each.get("id") for each in page):
                raise Transient("the provider's list is not valid")
            new = [each for each in page if str(each["id"]) not in seen]
            seen.update(str(each["id"]) for each in new)
            if new:
                yield new
            total = whole_in(said.get("total"))
            if total is not None and len(seen) >= total:
                return
            if not new:
                if total is not None:
                    raise Transient("the provider's list ends before its total")
                return
        raise Transient("the provider's list does not end")


def read_job(said: dict[str, Any]) -> OpenAiBatch:
    job_id, status = said.get("id"), said.get("status")
    if not isinstance(job_id, str) or not isinstance(status, str):
        raise Transient("the provider's answer about a job has no id or no status")
    files, metadata, errors = said.get("input_files"), said.get("metadata"), said.get("errors")
    named = [each for each in errors if isinstance(each, dict)] if isinstance(errors, list) else []
    return OpenAiBatch(
        id=job_id,
        status=_STATUSES.get(status, status.lower()),
        input_file_id=text_in(files[0]) if isinstance(files, list) and files else None,
        output_file_id=text_in(said.get("output_file")),
        error_file_id=text_in(said.get("error_file")),
        created_at=whole_in(said.get("created_at")),
        model=text_in(said.get("model")),
        total=whole_in(said.get("total_requests")) or 0,
        done=whole_in(said.get("completed_requests")) or 0,
        errors=tuple(LineError(status.lower(), str(each.get("message")), None) for each in named),
        marked=isinstance(metadata, dict) and MARK in metadata,
    )


class MistralBatches(OpenAiBatches):
    """Its list tells how many jobs there are, so a job that is not in it does not exist."""

    calls = MistralFilesAndJobs


PROVIDER: Final[LlmProvider] = preset(
    "mistral",
    "https://api.mistral.ai/v1",
    batches=MistralBatches,
    model_prefixes=_MODELS,
    price_list="mistral",
)
