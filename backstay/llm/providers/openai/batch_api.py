"""The calls for files and batches that the lane `batch` needs. Their answers are untrusted input."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any, BinaryIO, Final, NamedTuple
from urllib.parse import quote

from backstay.core.errors import Permanent, Transient
from backstay.llm.batch_lookup import ASK_SECONDS, DOWNLOAD_BYTES_MAX, DOWNLOAD_SECONDS
from backstay.llm.bodies import dict_in, id_in, object_in, require_object, text_in, whole_in
from backstay.llm.provider import GONE, Channel, ProviderReply
from backstay.llm.shards import Shard

FILES: Final = "/v1/files"
BATCHES: Final = "/v1/batches"
MARK: Final = "backstay"  # the key in a batch's metadata, and the beginning of its file's name
WINDOW: Final = "24h"
PAGES_MAX: Final = 1_000
IN_PROGRESS: Final = "in_progress"
COMPLETED: Final = "completed"
FAILED: Final = "failed"
EXPIRED: Final = "expired"
CANCELLED: Final = "cancelled"
ENDED: Final = frozenset({COMPLETED, FAILED, EXPIRED, CANCELLED})
_OURS: Final = re.compile(rf"{MARK}-([0-9a-f]+)\.jsonl")
PROCESSED: Final = "processed"
UPLOADED: Final = "uploaded"
_PENDING: Final = frozenset({"pending", "running", "notrunning"})  # as Azure writes it
_BROKEN: Final = frozenset({"error", "failed", "canceled", "cancelled", "deleting", "deleted"})


class LineError(NamedTuple):
    """What is wrong with a batch as a whole, or with one line of it, counted from 1."""

    code: str
    message: str
    line: int | None


class FileView(NamedTuple):
    """A file as the provider shows it. Most providers report it as processed at once, or report nothing; Azure needs
    time."""

    id: str
    status: str | None
    details: str | None
    bytes: int | None

    @property
    def pending(self) -> bool:
        return self.status in _PENDING

    @property
    def broken(self) -> bool:
        return self.status in _BROKEN


class OurFile(NamedTuple):
    """A file with one of our names, which identifies its content."""

    id: str
    digest: str
    created_at: int | None


class OpenAiBatch(NamedTuple):
    """A batch as the provider shows it."""

    id: str
    status: str
    input_file_id: str | None
    output_file_id: str | None
    error_file_id: str | None
    created_at: int | None
    model: str | None
    total: int
    done: int
    errors: tuple[LineError, ...]
    marked: bool  # it is one of ours

    @property
    def running(self) -> bool:
        return self.status == IN_PROGRESS

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def percent(self) -> int | None:
        return min(self.done * 100 // self.total, 100) if self.total > 0 else None


class FilesAndBatches:
    def __init__(self, channel: Channel) -> None:
        self._wire = channel.wire
        self._require_answer = channel.require_answer

    def read_batch(self, said: dict[str, Any]) -> OpenAiBatch:
        return read_batch(said)

    def read_file(self, file_id: str, said: dict[str, Any]) -> FileView:
        return read_file(file_id, said)

    def line_middle(self, url: str) -> str:
        """What stands in a line between its custom_id and its body."""
        return f'","method":"POST","url":{json.dumps(url)},"body":'

    async def upload(self, name: str, lines: BinaryIO, seconds: float) -> ProviderReply:
        return await self._wire.upload(FILES, {"purpose": "batch"}, name, lines, seconds)

    async def create(self, file_id: str, shard: Shard, seconds: float) -> ProviderReply:
        asked = {"input_file_id": file_id, "endpoint": shard.key.url, "completion_window": WINDOW}
        return await self._wire.post(BATCHES, json.dumps({**asked, "metadata": {MARK: shard.digest}}), seconds)

    def created_id(self, reply: ProviderReply) -> str | None:
        return id_in(object_in(reply))

    async def show(self, batch_id: str) -> OpenAiBatch | None:
        """None if the provider answers that it does not exist."""
        reply = await self._wire.get(f"{BATCHES}/{quote(batch_id, safe='')}", timeout_seconds=ASK_SECONDS)
        if reply.status in GONE:
            return None
        found = self.read_batch(require_object(self._require_answer(reply)))
        if found.id != batch_id:
            raise Transient(f"the provider was asked about {batch_id} and answered about another batch")
        return found

    async def delete(self, file_id: str) -> None:
        await self._wire.delete(f"{FILES}/{quote(file_id, safe='')}", ASK_SECONDS)

    async def cancel(self, batch_id: str) -> None:
        reply = await self._wire.post(f"{BATCHES}/{quote(batch_id, safe='')}/cancel", "", ASK_SECONDS)
        if reply.status == 429 or reply.status >= 500:
            self._require_answer(reply)
        # Any other refusal means that there is nothing left to cancel.

    async def since(self, created_at: int) -> list[OpenAiBatch]:
        """The batches created since then. The provider lists the newest first, and has no filter."""
        found: list[OpenAiBatch] = []
        async for page in self._pages(BATCHES, {"limit": "100"}):
            found += map(self.read_batch, page)
            if found and found[-1].created_at is not None and found[-1].created_at < created_at:
                break
        return [batch for batch in found if batch.created_at is None or batch.created_at >= created_at]

    async def show_file(self, file_id: str) -> FileView | None:
        """None if the provider answers that it does not exist."""
        reply = await self._wire.get(f"{FILES}/{quote(file_id, safe='')}", timeout_seconds=ASK_SECONDS)
        if reply.status in GONE:
            return None
        return self.read_file(file_id, require_object(self._require_answer(reply)))

    async def our_files(self) -> list[OurFile]:
        found: list[OurFile] = []
        async for page in self._pages(FILES, {"limit": "10000", "purpose": "batch", "order": "desc"}):
            for file in page:
                if (digest := our_digest(file.get("filename"))) is not None:
                    found.append(OurFile(str(file.get("id")), digest, whole_in(file.get("created_at"))))
        return found

    async def download(self, file_id: str, into: BinaryIO) -> bool:
        """Whether the file existed and was read."""
        path = f"{FILES}/{quote(file_id, safe='')}"
        try:
            await self._wire.download(f"{path}/content", into, DOWNLOAD_BYTES_MAX, DOWNLOAD_SECONDS)
        except Permanent:
            reply = await self._wire.get(path, timeout_seconds=ASK_SECONDS)
            if reply.status in GONE:
                return False
            raise
        return True

    async def _pages(self, path: str, params: dict[str, str]) -> AsyncIterator[list[dict[str, Any]]]:
        """Every page of a list. A list that ends in an unexpected way is an error: it could hide entries."""
        seen: set[str] = set()
        for _ in range(PAGES_MAX):
            said = require_object(self._require_answer(await self._wire.get(path, params, ASK_SECONDS)))
            page = said.get("data")
            if not isinstance(page, list) or not all(isinstance(each, dict) and each.get("id") for each in page):
                raise Transient("the provider's list is not valid")
            ids = [str(each["id"]) for each in page]
            if seen.issuperset(ids):
                if said.get("has_more"):
                    raise Transient("the provider's list repeats itself")
                return
            yield page
            if said.get("has_more") is False:
                return
            seen.update(ids)
            params = {**params, "after": ids[-1]}
        raise Transient("the provider's list does not end")


def our_digest(filename: object) -> str | None:
    """The digest in the name of a file that we uploaded."""
    named = _OURS.fullmatch(str(filename))
    return None if named is None else named[1]


def read_file(file_id: str, said: dict[str, Any]) -> FileView:
    status = text_in(said.get("status"))
    return FileView(
        file_id, status and status.lower(), text_in(said.get("status_details")), whole_in(said.get("bytes"))
    )


def read_batch(said: dict[str, Any]) -> OpenAiBatch:
    batch_id, status = said.get("id"), said.get("status")
    if not isinstance(batch_id, str) or not isinstance(status, str):
        raise Transient("the provider's answer about a batch has no id or no status")
    counts, metadata = dict_in(said.get("request_counts")), dict_in(said.get("metadata"))
    return OpenAiBatch(
        id=batch_id,
        status=status,
        input_file_id=text_in(said.get("input_file_id")),
        output_file_id=text_in(said.get("output_file_id")),
        error_file_id=text_in(said.get("error_file_id")),
        created_at=whole_in(said.get("created_at")),
        model=text_in(said.get("model")),
        total=whole_in(counts.get("total")) or 0,
        done=(whole_in(counts.get("completed")) or 0) + (whole_in(counts.get("failed")) or 0),
        errors=tuple(_errors(dict_in(said.get("errors")).get("data"))),
        marked=MARK in metadata,
    )


def _errors(data: object) -> list[LineError]:
    found = [each for each in data if isinstance(each, dict)] if isinstance(data, list) else []
    return [LineError(str(each.get("code")), str(each.get("message")), whole_in(each.get("line"))) for each in found]
