"""The calls for files and batches that the lane `batch` needs, and how a batch is found again after a crash. The
answers are untrusted input."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, BinaryIO, Final, NamedTuple
from urllib.parse import quote

from backstay.clock import Clock, Tasks
from backstay.core.errors import Permanent, Transient
from backstay.handlers.function import in_thread
from backstay.llm.batch_lookup import ASK_SECONDS, DOWNLOAD_BYTES_MAX, DOWNLOAD_SECONDS, BatchSurvey
from backstay.llm.batch_results import LineIndex, ends_whole, reference_in, references_by_number
from backstay.llm.bodies import dict_in, id_in, object_in, object_of, require_object, text_in, whole_in
from backstay.llm.lines import open_temporary
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
CLOCKS_APART_SECONDS: Final = 86_400  # the provider's and the database's, at most
FILES_REMEMBERED_MAX: Final = 200
# Nearly every line of a file that we wrote, or that a provider made of it, begins like this.
_HEAD: Final = re.compile(rb'\{(?:"id": ?"[^"\\]*", ?)?"custom_id": ?"([0-9a-f]{40})"')


class LineError(NamedTuple):
    """An error of a batch as a whole, or of one line, counted from 1."""

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
        """The text between the custom_id and the body of a line."""
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


def reference_of(line: bytes) -> str | None:
    return reference_in(line, _HEAD, "custom_id")


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
        while (found := self._find_known(ref)) is None and not self._survey.covers(asked_at, since):
            await self._survey.wait(since)
        gone = next((batch for batch in self._gone if batch.created_at is None or batch.created_at >= since), None)
        if found is None and gone is not None:
            raise Transient(f"the file of {gone.id} was deleted at the provider, so its content is not known")
        return found

    def _find_known(self, ref: str) -> str | None:
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
    index = LineIndex(references_by_number(file, reference_of))
    if not (len(index) or _has_request(file)) or not ends_whole(file):
        raise Transient("the input file of a batch was not received as a whole")
    return index


def _has_request(file: BinaryIO) -> bool:
    """Whether it begins with a request, which may be of somebody who names files as we do."""
    file.seek(0)
    return text_in((object_of(file.readline(DOWNLOAD_BYTES_MAX)) or {}).get("custom_id")) is not None
