"""Batches: records in an object of the user's bucket, a job that reads it, and objects with the results."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from backstay.clock import new_id
from backstay.core.errors import ErrorCode, HandlerError, OutcomeUnknown, Transient
from backstay.core.failures import FailureKind
from backstay.core.models import Failed
from backstay.handlers.function import in_thread
from backstay.llm.batch_lookup import LagMemory
from backstay.llm.batch_results import (
    BatchResultFile,
    BatchResults,
    LineIndex,
    LineResult,
    ends_whole,
    line_failed,
    line_of_reply,
    references_by_number,
)
from backstay.llm.bodies import object_in
from backstay.llm.lines import LlmRequest, members, open_temporary
from backstay.llm.provider import Certainty, Channel, PriceOf, ProviderReply
from backstay.llm.providers.bedrock.aws import AwsSigner, records_min, require_s3
from backstay.llm.providers.bedrock.batch_api import (
    EXPIRED,
    FAILED,
    INPUT,
    MARK,
    PARTIAL,
    STOPPED,
    Bucket,
    InvocationJob,
    InvocationJobs,
    job_id_in,
    reference_of,
)
from backstay.llm.providers.bedrock.calls import (
    CONVERSE,
    INVOKE,
    failure_of_error,
    is_converse,
    model_in,
    path_to,
    read_reply,
)
from backstay.llm.rate_limits import NO_HINTS
from backstay.llm.shards import BATCH_REQUESTS_MAX, Shard, ShardBounds, ShardEntry

TIMEOUT_HOURS: Final = 24
REQUESTS_MAX: Final = BATCH_REQUESTS_MAX * 9 // 10
_TYPES: Final = {CONVERSE: "Converse", INVOKE: "InvokeModel"}


class BedrockBatches:
    certainty = Certainty.CERTAIN

    def __init__(self, channel: Channel) -> None:
        signer = channel.wire.signer
        assert isinstance(signer, AwsSigner), "Bedrock has one"
        require_s3(signer.base)
        self._channel = channel
        self._api = InvocationJobs(channel)
        self._bucket = Bucket(channel, signer)
        self._lookup = JobLookup(self._api, self._bucket, channel)
        self._lag = LagMemory(channel)
        # Bedrock accepts 50,000 records in a file and 1 GB. A shard is in memory while it is uploaded. It is smaller
        # than what is held at once, so that the beginning of the next one is known before this one is sent.
        self.bounds = ShardBounds(REQUESTS_MAX, bytes_max=64 << 20, requests_min=records_min())

    async def close(self) -> None:
        """Nothing runs in the background."""

    def group_of(self, request: LlmRequest, fields: Mapping[str, Any]) -> tuple[str | None, str]:
        """A job has one model, and one kind of bodies."""
        return model_in(request.url), request.url

    async def find(self, ref: str, since_ms: int) -> str | None:
        return await self._lookup.find(ref, since_ms)

    async def show(self, batch_id: str) -> InvocationJob | None:
        return await self._api.show(batch_id)

    async def cancel(self, batch_id: str) -> None:
        await self._api.stop(batch_id)

    async def stage(self, shard: Shard, seconds: float) -> "StoredShard | Failed":
        entries = list(shard.entries.values())
        name = f"{MARK}{new_id()}"  # another one each time: the same requests may be sent again after a failure
        records: bytes = await in_thread(lambda: write_records(entries))
        await self._bucket.put(f"{self._bucket.folder}{name}/{INPUT}", records, seconds)
        return StoredShard(name, shard, self._channel, self._api, self._bucket, self._lookup)

    async def read_results(self, batch: InvocationJob) -> BatchResults:
        """The results of an ended job, as far as there are any."""
        if not batch.ended:
            raise Transient(f"the job {batch.id} has not ended")
        folder = f"{self._bucket.key_of(batch.output_uri).rstrip('/')}/{batch.id}"
        key = f"{folder}/{INPUT}.out"
        file = await BatchResultFile.download(lambda into: self._bucket.download(key, into), reference_of)
        manifest = await self._bucket.read_small(f"{folder}/manifest.json.out") or {}
        counted = manifest.get("processedRecordCount")
        processed = max(batch.processed, counted if type(counted) is int else 0)
        expected = processed or batch.status not in (FAILED, STOPPED, EXPIRED)
        if file is None and expected and not self._lag.is_gone(folder):
            raise Transient(f"the results of the job {batch.id} are not there yet")
        files = [] if file is None else [file]
        if files:
            self._lag.require_whole(batch.id, files, processed)
        told = 0 if file is None else len(file.keys())
        reader = BedrockResultReader(batch, file is not None, told >= processed, self._channel.price_of)
        return BatchResults(batch, files, reader, self._channel.wire.veil)


def write_records(entries: Sequence[ShardEntry]) -> bytes:
    return "".join(f'{{"recordId":"{entry.ref}","modelInput":{entry.body}}}\n' for entry in entries).encode()


class StoredShard:
    """A shard whose records are in the bucket."""

    def __init__(
        self, name: str, shard: Shard, channel: Channel, api: InvocationJobs, bucket: Bucket, lookup: "JobLookup"
    ) -> None:
        self._name = name
        self._shard = shard
        self._channel = channel
        self._api = api
        self._bucket = bucket
        self._lookup = lookup

    async def wait_ready(self, create_seconds: float) -> Failed | None:
        return None

    async def create(self, seconds: float) -> str | Failed:
        """If the answer is lost, the same is asked again: the token tells Bedrock that it is the same job."""
        self._lookup.expect(self._name, list(self._shard.entries))
        clock = self._channel.clock
        ends_at = clock.monotonic() + seconds
        reply: ProviderReply | None = None
        with suppress(OutcomeUnknown):
            reply = await self._api.create(self._creation_body(), seconds / 2)
        if reply is None or _is_unsure(reply):
            reply = await self._api.create(self._creation_body(), max(ends_at - clock.monotonic(), 1.0))
        if _is_unsure(reply):
            raise OutcomeUnknown(f"Bedrock answered {reply.status} to the creation of a job")
        self._channel.count_answer(reply, len(self._shard.entries))
        if not 200 <= reply.status <= 299:
            with suppress(HandlerError):  # an input that is left there costs nothing
                await self._bucket.delete(self._key(INPUT))
            return self._channel.refusal(reply)
        if (job_id := job_id_in((object_in(reply) or {}).get("jobArn"))) is None:
            raise OutcomeUnknown("Bedrock accepted a job but gave no ARN for it")
        return job_id

    def _creation_body(self) -> dict[str, Any]:
        key = self._shard.key
        source = {"s3Uri": self._bucket.uri(self._key(INPUT)), "s3InputFormat": "JSONL"}
        return {
            "jobName": self._name,
            "clientRequestToken": self._name,
            "roleArn": self._bucket.role,
            "modelId": key.model,
            "modelInvocationType": _TYPES[CONVERSE if is_converse(key.url) else INVOKE],
            "inputDataConfig": {"s3InputDataConfig": source},
            "outputDataConfig": {"s3OutputDataConfig": {"s3Uri": self._bucket.uri(self._key("out/"))}},
            "timeoutDurationInHours": TIMEOUT_HOURS,
        }

    def _key(self, name: str) -> str:
        return f"{self._bucket.folder}{self._name}/{name}"


def _is_unsure(reply: ProviderReply) -> bool:
    """Often a gateway answers so while the job is created behind it."""
    return reply.status == 408 or reply.status >= 500


class BedrockResultReader:
    too_many_tokens = False

    def __init__(self, job: InvocationJob, found: bool, told_all: bool, price_of: PriceOf) -> None:
        self._job = job
        self._found = found  # the results could be read
        self._told_all = told_all  # every request that was run has its line
        self._price_of = price_of
        self._path = path_to(job.model or "", INVOKE if job.type == _TYPES[INVOKE] else CONVERSE)

    def read_line(self, text: str) -> LineResult | None:
        named = {member.key: member for member in members(text)}
        if (output := named.get("modelOutput")) is not None and isinstance(output.value, dict):
            reply = ProviderReply(200, {}, text[output.start : output.end], path=self._path)
            return line_of_reply(read_reply(reply, NO_HINTS, self._price_of))
        error = named.get("error")
        if error is None or not isinstance(error.value, dict):
            return None
        return LineResult(_failure_of_record(error.value))

    def read_missing(self, ref: str, wait_ms: int) -> LineResult:
        status = self._job.status
        infrastructure = FailureKind.INFRASTRUCTURE
        if self._told_all and status == FAILED:
            message = f"the job failed before this request was run: {self._job.message or 'Bedrock gives no reason'}"
            return line_failed(ErrorCode.GW_5XX, infrastructure, message)
        if self._told_all and status == STOPPED:
            message = "the job was stopped before this request was run"
            return line_failed(ErrorCode.GW_5XX, infrastructure, message, cancelled=True)
        if self._told_all and status in (EXPIRED, PARTIAL):
            message = "the job expired before this request was run"
            return line_failed(ErrorCode.GW_TIMEOUT, infrastructure, message)
        message = "the job ended without a result for this request, which may have been processed and paid"
        if not self._found:
            message = "the results of the job are not in the bucket, and were probably paid for"
        return line_failed(ErrorCode.UNKNOWN, FailureKind.UNKNOWN, message)


def _failure_of_record(error: Mapping[str, Any]) -> Failed:
    """The same as for a single reply with this error, whose code is a status or a type."""
    code, message = error.get("errorCode"), error.get("errorMessage")
    said = message if isinstance(message, str) else ""
    named = str(code) if isinstance(code, int | str) else ""
    status = int(named) if named.isdecimal() and 400 <= int(named[:4]) <= 599 else None
    failure = failure_of_error("" if status is not None else named, said or "Bedrock reports an error", status)
    return Failed(failure, task_ended=True)


CLOCKS_APART_MS: Final = 3_600_000  # AWS's and the database's, at most
FRESH_SECONDS: Final = 5.0  # how old a survey may be: less than the margin before a look-up
INDEXES_MAX: Final = 1_000


class JobLookup:
    """Finds the job of a request whose process was killed while it created one. One survey of the bucket and of the
    jobs answers for many requests.

    The records are in the bucket before the job exists, under the job's name. So a request that is in none of them was
    never sent. If records have no job, and none appears for some time, they are deleted: a creation that arrives later
    than that finds nothing to run. Only then the request counts as not sent.
    """

    def __init__(self, api: InvocationJobs, bucket: Bucket, channel: Channel) -> None:
        self._api = api
        self._bucket = bucket
        self._channel = channel
        self._lock = asyncio.Lock()
        self._indexes: dict[str, LineIndex] = {}  # the requests of each input, by the name of its job
        self._inputs: set[str] = set()  # those that are in the bucket
        self._jobs: dict[str, InvocationJob] = {}
        self._unused_since: dict[str, float] = {}
        self._surveyed_at = float("-inf")
        self._covers_from = float("inf")

    def expect(self, name: str, refs: Sequence[str]) -> None:
        """Records the requests of an input that was written here, so that it need not be read."""
        self._indexes[name] = LineIndex((ref, number) for number, ref in enumerate(refs))
        self._forget_oldest()

    async def find(self, ref: str, since_ms: int) -> str | None:
        since_ms -= CLOCKS_APART_MS
        await self._survey(since_ms, self._channel.clock.monotonic() - FRESH_SECONDS)
        names = [name for name in self._inputs | self._jobs.keys() if ref in self._indexes.get(name, ())]
        if found := self._newest(names):
            return found.id
        if hidden := sorted((self._inputs | self._jobs.keys()) - self._indexes.keys()):
            raise Transient(f"{hidden[0]} may have the request, and its records cannot be read")
        for name in names:
            self._require_unused(name)
        for name in names:
            await self._bucket.delete(self._key(name))
        if names:
            await self._survey(since_ms, float("inf"))
        last = self._newest(names)
        return None if last is None else last.id

    def _newest(self, names: Sequence[str]) -> InvocationJob | None:
        jobs = [self._jobs[name] for name in names if name in self._jobs]
        return max(jobs, key=lambda job: job.submitted_ms or 0, default=None)

    def _require_unused(self, name: str) -> None:
        """Raises until no job was listed for so long as the list may lag behind."""
        now = self._channel.clock.monotonic()
        if now - self._unused_since.setdefault(name, now) < self._channel.lag_seconds:
            raise Transient("no job has the request, but Bedrock may not list the newest ones yet")

    async def _survey(self, since_ms: int, fresh_from: float) -> None:
        async with self._lock:
            if self._surveyed_at >= fresh_from and self._covers_from <= since_ms:
                return
            began_at = self._channel.clock.monotonic()
            inputs = {
                found.key.removeprefix(self._bucket.folder).removesuffix(f"/{INPUT}")
                async for found in self._bucket.inputs()
                if found.modified_ms is None or found.modified_ms >= since_ms
            }
            jobs = {job.name: job for job in await self._api.since(since_ms)}
            for name in inputs | jobs.keys():
                if name not in self._indexes:
                    await self._read(name, jobs.get(name))
            for name in jobs:
                self._unused_since.pop(name, None)
            self._inputs, self._jobs = inputs, jobs
            self._surveyed_at, self._covers_from = began_at, since_ms
            self._forget_oldest()

    async def _read(self, name: str, job: InvocationJob | None) -> None:
        """The requests of a job, from its input; if that is gone, from its results."""
        keys = [self._key(name)]
        if job is not None and job.ended:
            keys.append(f"{self._bucket.key_of(job.output_uri).rstrip('/')}/{job.id}/{INPUT}.out")
        for key in keys:
            with open_temporary() as file:
                if await self._bucket.download(key, file):
                    index: LineIndex = await in_thread(lambda: LineIndex(references_by_number(file, reference_of)))
                    if not len(index) or not await in_thread(lambda: ends_whole(file)):
                        raise Transient(f"{key} was not received as a whole")
                    self._indexes[name] = index
                    return
        if job is not None and job.ended:
            self._indexes[name] = LineIndex(())  # nothing of it is left, and nothing will come

    def _forget_oldest(self) -> None:
        """Except those that the last survey found."""
        spare = [name for name in self._indexes if name not in self._inputs and name not in self._jobs]
        for name in spare[: max(len(spare) - INDEXES_MAX, 0)]:
            del self._indexes[name]

    def _key(self, name: str) -> str:
        return f"{self._bucket.folder}{name}/{INPUT}"
