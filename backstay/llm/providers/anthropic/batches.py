"""Message batches: all requests are sent in the body that creates one. A batch has no name and no metadata, so it is
found again by the references of its requests, which it shows when it has ended. Answers are untrusted input."""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, BinaryIO, Final, NamedTuple
from urllib.parse import quote

from backstay.clock import Tasks
from backstay.core.errors import ErrorCode, OutcomeUnknown, Throttled, Transient
from backstay.core.failures import FailureKind
from backstay.core.models import Failed
from backstay.handlers.function import in_thread
from backstay.llm.batch_lookup import ASK_SECONDS, BatchReader, ListedBatchLookup
from backstay.llm.batch_results import (
    RESULT_MISSING,
    RESULTS_GONE,
    BatchResultFile,
    BatchResults,
    LineResult,
    line_failed,
    line_of_reply,
    reference_in,
)
from backstay.llm.bodies import dict_in, id_in, moment_ms, object_in, require_object
from backstay.llm.lines import LlmRequest, members
from backstay.llm.provider import Certainty, Channel, PriceOf, ProviderReply
from backstay.llm.providers.anthropic.calls import MESSAGES, STATUS_OF_TYPE, read_reply
from backstay.llm.rate_limits import NO_HINTS
from backstay.llm.shards import BATCH_REQUESTS_MAX, Shard, ShardBounds, ShardEntry, settle

BATCHES: Final = f"{MESSAGES}/batches"
MARK: Final = "backstay-"  # the beginning of every custom_id of ours; the reference follows
PAGE: Final = 100
PAGES_MAX: Final = 1_000
ENDED: Final = "ended"
_COUNTS: Final = ("processing", "succeeded", "errored", "canceled", "expired")
_HEAD: Final = re.compile(rb'\{"custom_id": ?"' + MARK.encode() + rb'([0-9a-f]{40})"')


class MessageBatch(NamedTuple):
    """A batch as Anthropic shows it. Before it has ended, it shows neither its requests nor its progress."""

    id: str
    status: str
    created_ms: int | None
    total: int
    archived: bool

    @property
    def running(self) -> bool:
        return not self.ended

    @property
    def ended(self) -> bool:
        return self.status == ENDED

    @property
    def percent(self) -> int | None:
        return None

    @property
    def model(self) -> str | None:
        return None


def custom_id_of(ref: str) -> str:
    return MARK + ref


def reference_of(line: bytes) -> str | None:
    return reference_in(line, _HEAD, "custom_id", MARK)


class MessageBatches(BatchReader):
    """Results are always read at their path below the base URL. The URL that a batch gives for them is never called: on
    another host it would be a place that the user did not name."""

    async def show(self, batch_id: str) -> MessageBatch | None:
        said = await self.look_at(_path(batch_id), batch_id)
        found = None if said is None else read_batch(said)
        if found is not None and found.id != batch_id:
            raise Transient(f"the provider was asked about {batch_id} and answered about another batch")
        return found

    async def cancel(self, batch_id: str) -> None:
        await self.cancel_at(f"{_path(batch_id)}/cancel")

    async def since(self, created_ms: int) -> list[MessageBatch]:
        """The batches created since then. The provider lists those of the whole workspace, the newest first, and has no
        filter."""
        found: list[MessageBatch] = []
        async for page in self._pages():
            found += map(read_batch, page)
            if found and found[-1].created_ms is not None and found[-1].created_ms < created_ms:
                break
        return [batch for batch in found if batch.created_ms is None or batch.created_ms >= created_ms]

    async def download(self, batch_id: str, into: BinaryIO) -> bool:
        return await self.download_from(f"{_path(batch_id)}/results", batch_id, into)

    async def peek(self, batch_id: str, into: BinaryIO) -> bool:
        return await self.peek_into(f"{_path(batch_id)}/results", into)

    async def _pages(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every page of the list. A list that ends in an unexpected way is an error: it could hide entries."""
        params, seen = {"limit": str(PAGE)}, set[str]()
        for _ in range(PAGES_MAX):
            said = require_object(self._require_answer(await self._wire.get(BATCHES, params, ASK_SECONDS)))
            page = said.get("data")
            if not isinstance(page, list) or not all(isinstance(each, dict) and each.get("id") for each in page):
                raise Transient("the provider's list of batches is not valid")
            yield page
            if said.get("has_more") is not True:
                return
            ids = [str(each["id"]) for each in page]
            if seen.issuperset(ids):
                raise Transient("the provider's list of batches repeats itself")
            seen.update(ids)
            params = {"limit": str(PAGE), "after_id": ids[-1]}
        raise Transient("the provider's list of batches does not end")


def read_batch(said: dict[str, Any]) -> MessageBatch:
    batch_id, status, counts = said.get("id"), said.get("processing_status"), said.get("request_counts")
    if not isinstance(batch_id, str) or not isinstance(status, str):
        raise Transient("the provider's answer about a batch has no id or no status")
    known = counts if isinstance(counts, dict) else {}
    numbers = [known.get(name) for name in _COUNTS]
    return MessageBatch(
        batch_id,
        status,
        moment_ms(said.get("created_at")),
        sum(number for number in numbers if type(number) is int and number > 0),
        said.get("archived_at") is not None,
    )


def _path(batch_id: str) -> str:
    return f"{BATCHES}/{quote(batch_id, safe='')}"


OVERLOADED: Final = 529
_JSON: Final = {"content-type": "application/json"}
_AT_FAULT: Final = re.compile(r"requests\.(\d{1,6})\.", re.ASCII)  # how a refusal names the requests that are wrong


class AnthropicBatches:
    # Anthropic accepts 100,000 requests and 256 MB. All are sent at once, within the time that a creation may take.
    bounds = ShardBounds(BATCH_REQUESTS_MAX, bytes_max=32 << 20)
    certainty = Certainty.IF_FOUND

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._api = MessageBatches(channel)
        self._lookup = MessageBatchLookup(self._api, channel, Tasks())

    async def close(self) -> None:
        await self._lookup.close()

    def group_of(self, request: LlmRequest, fields: Mapping[str, Any]) -> tuple[str | None, str]:
        """Any requests may share a batch."""
        return None, request.url

    async def find(self, ref: str, since_ms: int) -> str | None:
        return await self._lookup.find(ref, since_ms)

    async def show(self, batch_id: str) -> MessageBatch | None:
        return await self._api.show(batch_id)

    async def cancel(self, batch_id: str) -> None:
        await self._api.cancel(batch_id)

    async def stage(self, shard: Shard, seconds: float) -> "WrittenShard":
        entries = list(shard.entries.values())
        body: bytes = await in_thread(lambda: write_requests(entries))
        return WrittenShard(shard, entries, body, self._channel, self._lookup)

    async def read_results(self, batch: MessageBatch) -> BatchResults:
        """The results of an ended batch. A request that is not in them is distinguished from results that are gone."""
        if not batch.ended:
            raise Transient(f"{batch.id} has not ended")
        file = None
        if not batch.archived:
            file = await BatchResultFile.download(lambda into: self._api.download(batch.id, into), reference_of)
        files = [] if file is None else [file]
        if files:
            self._api.lag.require_whole(batch.id, files, batch.total)
        reader = AnthropicResultReader(file is not None, self._channel.price_of)
        return BatchResults(batch, files, reader, self._channel.wire.veil)


class WrittenShard:
    """A shard whose requests are written as the body that creates its batch."""

    def __init__(
        self,
        shard: Shard,
        entries: list[ShardEntry],
        body: bytes,
        channel: Channel,
        lookup: "MessageBatchLookup",
    ) -> None:
        self._shard = shard
        self._entries = entries  # in the order of the body
        self._body = body
        self._channel = channel
        self._lookup = lookup

    async def wait_ready(self, create_seconds: float) -> Failed | None:
        return None

    async def create(self, seconds: float) -> str | Failed:
        channel = self._channel
        expected = self._lookup.expect([entry.ref for entry in self._entries])
        reply = await channel.wire.exchange("POST", BATCHES, self._body, _JSON, timeout_seconds=seconds)
        if reply.status == 408 or (reply.status >= 500 and reply.status != OVERLOADED):
            # Often a gateway answers so while the batch is created behind it: the batch can be looked up.
            raise OutcomeUnknown(f"the provider answered {reply.status} to the creation of a batch")
        channel.count_answer(reply, len(expected))
        if not 200 <= reply.status <= 299:
            return self._refusal(channel.refusal(reply))
        if (batch_id := id_in(object_in(reply))) is None:
            raise OutcomeUnknown("the provider accepted a batch but gave no id for it")
        self._lookup.remember(batch_id, expected)
        return batch_id

    def _refusal(self, refused: Failed) -> Failed:
        """A batch with a wrong request is refused as a whole. If the refusal names the wrong ones, only these fail."""
        if refused.failure.kind is not FailureKind.BUSINESS:
            return refused
        named = {int(number) for number in _AT_FAULT.findall(refused.failure.message)}
        wrong = [entry for number, entry in enumerate(self._entries) if number in named]
        if not wrong or len(wrong) == len(self._entries):
            return refused
        for entry in wrong:
            self._shard.entries.pop(entry.ref, None)
        settle(wrong, refused)
        raise Throttled("another request of its batch is not valid, so none was run", retry_after_seconds=0)


def write_requests(entries: Sequence[ShardEntry]) -> bytes:
    lines = (f'{{"custom_id":"{custom_id_of(entry.ref)}","params":{entry.body}}}' for entry in entries)
    return f'{{"requests":[{",".join(lines)}]}}'.encode()


class AnthropicResultReader:
    too_many_tokens = False

    def __init__(self, whole: bool, price_of: PriceOf) -> None:
        self._whole = whole  # the results could be read
        self._price_of = price_of

    def read_line(self, text: str) -> LineResult | None:
        result = next((member for member in members(text) if member.key == "result"), None)
        if result is None or not isinstance(result.value, dict):
            return None
        match result.value.get("type"):
            case "succeeded":
                return self._read_message(text[result.start : result.end])
            case "errored":
                return self._read_error(result.value.get("error"))
            case "canceled":
                message = "the batch was cancelled at the provider before this request was run"
                return line_failed(ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE, message, cancelled=True)
            case "expired":
                message = "the batch expired before this request was run"
                return line_failed(ErrorCode.GW_TIMEOUT, FailureKind.INFRASTRUCTURE, message)
            case _:
                return None

    def read_missing(self, ref: str, wait_ms: int) -> LineResult:
        message = RESULT_MISSING if self._whole else RESULTS_GONE
        return line_failed(ErrorCode.UNKNOWN, FailureKind.UNKNOWN, message)

    def _read_message(self, text: str) -> LineResult:
        """Its body is kept byte for byte."""
        message = next((text[each.start : each.end] for each in members(text) if each.key == "message"), "")
        return line_of_reply(read_reply(ProviderReply(200, {}, message), NO_HINTS, self._price_of))

    def _read_error(self, error: object) -> LineResult:
        """The same as for a single reply with this error. Some write the error without what surrounds it."""
        body = dict_in(error)
        if not isinstance(body.get("error"), dict):
            body = {"type": "error", "error": body}
        kind, request_id = body["error"].get("type"), body.get("request_id")
        status = STATUS_OF_TYPE.get(kind, 500) if isinstance(kind, str) else 500
        headers = {"request-id": request_id} if isinstance(request_id, str) else {}
        return line_of_reply(read_reply(ProviderReply(status, headers, json.dumps(body)), NO_HINTS, self._price_of))


class MessageBatchLookup(ListedBatchLookup[MessageBatch]):
    reference_of = staticmethod(reference_of)
    member = b'"custom_id"'
