"""The calls for batches that the lane `batch` needs: jobs at Bedrock, and objects in a bucket of the user's. Their
answers are untrusted input."""

import html
import io
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final, NamedTuple

from backstay.core.errors import ErrorCode, Permanent, ProviderHeld, Transient
from backstay.llm.batch_lookup import ASK_SECONDS, DOWNLOAD_BYTES_MAX, DOWNLOAD_SECONDS, BatchReader
from backstay.llm.batch_results import reference_in
from backstay.llm.bodies import dict_in, moment_ms, object_of, require_object, whole_in
from backstay.llm.provider import GONE, Channel, ProviderReply
from backstay.llm.providers.bedrock.aws import AwsSigner, batch_place, bucket_url
from backstay.llm.providers.bedrock.calls import JOBS

MARK: Final = "backstay-"  # the beginning of the name of every job of ours
INPUT: Final = "input.jsonl"
MANIFEST_BYTES_MAX: Final = 1 << 20
PAGE: Final = 1_000
PAGES_MAX: Final = 1_000
FAILED, STOPPED, EXPIRED, PARTIAL = "Failed", "Stopped", "Expired", "PartiallyCompleted"
ENDED: Final = frozenset(("Completed", PARTIAL, FAILED, STOPPED, EXPIRED))
_JSON: Final = {"content-type": "application/json"}
_JOB_ID: Final = re.compile(r"[a-zA-Z0-9-]{1,64}")
_OBJECT: Final = re.compile(r"<Contents>(.*?)</Contents>", re.DOTALL)
_TAG: Final = "<{0}>([^<]*)</{0}>"
_REF_FIRST: Final = re.compile(rb'\{"recordId": ?"([0-9a-f]{40})"')
_REF_LAST: Final = re.compile(rb'[,{] ?"recordId": ?"([0-9a-f]{40})"\s*\}\s*$')


class InvocationJob(NamedTuple):
    """A job as Bedrock shows it."""

    id: str
    name: str
    status: str
    model: str | None
    type: str
    output_uri: str
    submitted_ms: int | None
    total: int
    processed: int
    message: str

    @property
    def running(self) -> bool:
        return self.status == "InProgress"

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def percent(self) -> int | None:
        return min(self.processed * 100 // self.total, 100) if self.total > 0 else None


def reference_of(line: bytes) -> str | None:
    """The reference in a record or in a line of results, whose members come in any order."""
    if (found := _REF_LAST.search(line[-200:])) is not None:
        return found[1].decode()
    return reference_in(line, _REF_FIRST, "recordId")


class InvocationJobs(BatchReader):
    async def create(self, asked: dict[str, Any], seconds: float) -> ProviderReply:
        data = json.dumps(asked).encode()
        return await self._wire.exchange("POST", JOBS, data, _JSON, timeout_seconds=seconds)

    async def show(self, job_id: str) -> InvocationJob | None:
        said = await self.look_at(f"{JOBS}/{job_id}", f"the job {job_id}")
        found = None if said is None else read_job(said)
        if found is not None and found.id != job_id:
            raise Transient(f"Bedrock was asked about the job {job_id} and answered about another one")
        return found

    async def stop(self, job_id: str) -> None:
        reply = await self._wire.exchange("POST", f"{JOBS}/{job_id}/stop", timeout_seconds=ASK_SECONDS)
        if reply.status == 429 or reply.status >= 500:
            self._require_answer(reply)
        # Any other refusal means that there is nothing left to stop.

    async def since(self, submitted_ms: int) -> list[InvocationJob]:
        """Our jobs since then. A list that ends in an unexpected way is an error: it could hide entries."""
        moment = datetime.fromtimestamp(max(submitted_ms, 0) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        asked = {"nameContains": MARK, "submitTimeAfter": moment, "maxResults": str(PAGE)}
        found: list[InvocationJob] = []
        token, seen = "", set[str]()
        for _ in range(PAGES_MAX):
            params = {**asked, "nextToken": token} if token else asked
            reply = await self._wire.get(f"{JOBS}s", params, ASK_SECONDS)
            said = require_object(self._require_answer(reply))
            page = said.get("invocationJobSummaries", [])
            if not isinstance(page, list) or not all(isinstance(each, dict) for each in page):
                raise Transient("Bedrock's list of jobs is not valid")
            found += map(read_job, page)
            next_token = said.get("nextToken")
            if not isinstance(next_token, str) or not next_token:
                return [job for job in found if job.name.startswith(MARK)]
            if next_token in seen:
                raise Transient("Bedrock's list of jobs repeats itself")
            seen.add(token := next_token)
        raise Transient("Bedrock's list of jobs does not end")


def job_id_in(arn: object) -> str | None:
    named = arn.rpartition("/")[2] if isinstance(arn, str) else ""
    return named if _JOB_ID.fullmatch(named) else None


def read_job(said: dict[str, Any]) -> InvocationJob:
    job_id, status = job_id_in(said.get("jobArn")), said.get("status")
    if job_id is None or not isinstance(status, str):
        raise Transient("Bedrock's answer about a job has no ARN or no status")
    output = dict_in(dict_in(said.get("outputDataConfig")).get("s3OutputDataConfig")).get("s3Uri")
    model = said.get("modelId")
    return InvocationJob(
        job_id,
        str(said.get("jobName")),
        status,
        model if isinstance(model, str) else None,
        str(said.get("modelInvocationType")),
        output if isinstance(output, str) else "",
        moment_ms(said.get("submitTime")),
        whole_in(said.get("totalRecordCount")) or 0,
        whole_in(said.get("processedRecordCount")) or 0,
        str(said.get("message") or ""),
    )


class StoredObject(NamedTuple):
    key: str
    modified_ms: int | None


class Bucket:
    """The objects of batches in S3: the input, and the results that Bedrock writes."""

    def __init__(self, channel: Channel, signer: AwsSigner) -> None:
        self.name, prefix, self.role = batch_place()
        self.folder = f"{prefix}/backstay/" if prefix else "backstay/"
        self._wire = channel.wire
        self._signer = signer
        self._url = bucket_url(signer.base, self.name)
        signer.allow_bucket(self._url)

    def uri(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    def key_of(self, uri: str) -> str:
        if not uri.startswith(self.uri("")):
            raise ProviderHeld(f"the results of a batch are at {uri}, which is in another bucket than {self.name}")
        return uri.removeprefix(self.uri(""))

    async def put(self, key: str, data: bytes, seconds: float) -> None:
        kind = {"content-type": "application/jsonl"}
        self._require(await self._wire.exchange("PUT", f"{self._url}/{key}", data, kind, timeout_seconds=seconds))

    async def delete(self, key: str) -> None:
        reply = await self._wire.exchange("DELETE", f"{self._url}/{key}", timeout_seconds=ASK_SECONDS)
        if reply.status not in GONE:
            self._require(reply)

    async def download(self, key: str, into: BinaryIO, bytes_max: int = DOWNLOAD_BYTES_MAX) -> bool:
        """Whether the object existed and was read."""
        link = await self._signer.link(f"{self._url}/{key}")
        try:
            await self._wire.download(link, into, bytes_max, DOWNLOAD_SECONDS)
        except Permanent as error:
            if error.code is ErrorCode.TOO_LARGE:
                raise
            if "NoSuchKey" in error.message:  # S3's code
                return False
            raise ProviderHeld(f"cannot read {self.uri(key)} from S3: {error.message}") from None
        return True

    async def read_small(self, key: str) -> dict[str, Any] | None:
        """An object with JSON, if there is one."""
        file = io.BytesIO()
        if not await self.download(key, file, MANIFEST_BYTES_MAX):
            return None
        return object_of(file.getvalue())

    async def inputs(self) -> AsyncIterator[StoredObject]:
        """Of all batches."""
        asked, token = {"list-type": "2", "prefix": self.folder}, ""
        for _ in range(PAGES_MAX):
            params = {**asked, "continuation-token": token} if token else asked
            reply = self._require(await self._wire.exchange("GET", self._url, b"", {}, params, ASK_SECONDS))
            if "ListBucketResult" not in reply.text:
                raise Transient("S3's list of objects is not valid")
            for entry in _OBJECT.findall(reply.text):
                key = _tag(entry, "Key")
                if key.endswith(f"/{INPUT}"):
                    yield StoredObject(key, moment_ms(_tag(entry, "LastModified")))
            if _tag(reply.text, "IsTruncated") != "true":
                return
            token = _tag(reply.text, "NextContinuationToken")
        raise Transient("S3's list of objects does not end")

    def _require(self, reply: ProviderReply) -> ProviderReply:
        if 200 <= reply.status <= 299:
            return reply
        said = f"S3 answered {reply.status} for the bucket {self.name}: {_tag(reply.text, 'Code')}"
        if reply.status in (408, 429) or reply.status >= 500:
            raise Transient(said)
        # The bucket or the right to use it is missing, so every other batch would fail as well.
        raise ProviderHeld(f"{said} {_tag(reply.text, 'Message')}".strip())


def _tag(text: str, name: str) -> str:
    found = re.search(_TAG.format(name), text)
    return "" if found is None else html.unescape(found[1])
