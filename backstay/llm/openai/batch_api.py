"""The calls for files and batches that the lane `batch` needs. Their answers are untrusted input."""

import re
from collections.abc import AsyncIterator
from typing import Any, BinaryIO, Final, NamedTuple
from urllib.parse import quote

from backstay.core.errors import Permanent, Transient
from backstay.llm.channel import GONE, Channel, object_in
from backstay.llm.provider import ProviderReply

FILES: Final = "/v1/files"
BATCHES: Final = "/v1/batches"
MARK: Final = "backstay"  # the key in a batch's metadata, and the beginning of its file's name
PAGES_MAX: Final = 1_000
ASK_SECONDS: Final = 30.0
DOWNLOAD_SECONDS: Final = 1_800.0
DOWNLOAD_BYTES_MAX: Final = 8 << 30
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

    async def show(self, batch_id: str) -> OpenAiBatch | None:
        """None if the provider answers that it does not exist."""
        reply = await self._wire.get(f"{BATCHES}/{quote(batch_id, safe='')}", timeout_seconds=ASK_SECONDS)
        if reply.status in GONE:
            return None
        found = read_batch(_object_in_reply(self._require_answer(reply)))
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
            found += map(read_batch, page)
            if found and found[-1].created_at is not None and found[-1].created_at < created_at:
                break
        return [batch for batch in found if batch.created_at is None or batch.created_at >= created_at]

    async def show_file(self, file_id: str) -> FileView | None:
        """None if the provider answers that it does not exist."""
        reply = await self._wire.get(f"{FILES}/{quote(file_id, safe='')}", timeout_seconds=ASK_SECONDS)
        if reply.status in GONE:
            return None
        return read_file(file_id, _object_in_reply(self._require_answer(reply)))

    async def our_files(self) -> list[OurFile]:
        found: list[OurFile] = []
        async for page in self._pages(FILES, {"limit": "10000", "purpose": "batch", "order": "desc"}):
            for file in page:
                if (named := _OURS.fullmatch(str(file.get("filename")))) is not None:
                    found.append(OurFile(str(file.get("id")), named[1], _whole(file.get("created_at"))))
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
            said = _object_in_reply(self._require_answer(await self._wire.get(path, params, ASK_SECONDS)))
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


def read_file(file_id: str, said: dict[str, Any]) -> FileView:
    status = _text(said.get("status"))
    return FileView(file_id, status and status.lower(), _text(said.get("status_details")), _whole(said.get("bytes")))


def read_batch(said: dict[str, Any]) -> OpenAiBatch:
    batch_id, status = said.get("id"), said.get("status")
    if not isinstance(batch_id, str) or not isinstance(status, str):
        raise Transient("the provider's answer about a batch has no id or no status")
    counts, metadata = _dict(said.get("request_counts")), _dict(said.get("metadata"))
    return OpenAiBatch(
        id=batch_id,
        status=status,
        input_file_id=_text(said.get("input_file_id")),
        output_file_id=_text(said.get("output_file_id")),
        error_file_id=_text(said.get("error_file_id")),
        created_at=_whole(said.get("created_at")),
        model=_text(said.get("model")),
        total=_whole(counts.get("total")) or 0,
        done=(_whole(counts.get("completed")) or 0) + (_whole(counts.get("failed")) or 0),
        errors=tuple(_errors(_dict(said.get("errors")).get("data"))),
        marked=MARK in metadata,
    )


def _errors(data: object) -> list[LineError]:
    found = [each for each in data if isinstance(each, dict)] if isinstance(data, list) else []
    return [LineError(str(each.get("code")), str(each.get("message")), _whole(each.get("line"))) for each in found]


def _object_in_reply(reply: ProviderReply) -> dict[str, Any]:
    said = object_in(reply)
    if said is None:
        raise Transient("the provider's answer is not a JSON object")
    return said


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    """Some providers write an empty text instead of null."""
    return value if isinstance(value, str) and value else None


def _whole(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
