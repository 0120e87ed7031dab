"""Bedrock's batches: jobs whose records and results are objects of S3; and as much of S3 as that needs, below /s3."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final, assert_never

from aiohttp import web

from backstay.practice.batch_jobs import (
    UNREADABLE,
    ApiPart,
    BatchInput,
    BatchJob,
    BatchPhase,
    BatchQueue,
    ImitatedApi,
    QueuedLine,
    ScratchFolder,
    SkipReason,
)
from backstay.practice.bedrock import (
    BEDROCK,
    CONVERSE,
    INVOKE,
    BedrockFormat,
    BedrockRoutes,
    generate,
    invalid,
    read_call,
    read_object,
)
from backstay.practice.faults import BodyFault
from backstay.practice.pipeline import PaidCall, Pipeline, ProviderState
from backstay.practice.replies import GeneratedReply, PracticeReply, ProviderError, ReplyStamp, json_reply, moment

JOBS: Final = "/model-invocation-job"
ROOT: Final = "/s3"
RECORDS_MAX: Final = 50_000
PAGE_MAX: Final = 1_000
HOUR_MS: Final = 3_600_000
ARN: Final = "arn:aws:bedrock:us-east-1:000000000000:model-invocation-job/"
XML: Final = {"Content-Type": "application/xml"}
_TYPES: Final = {"Converse": CONVERSE, "InvokeModel": INVOKE}
_STATUSES: Final = {
    BatchPhase.VALIDATING: "Validating",
    BatchPhase.IN_PROGRESS: "InProgress",
    BatchPhase.FINALIZING: "InProgress",
    BatchPhase.COMPLETED: "Completed",
    BatchPhase.FAILED: "Failed",
    BatchPhase.EXPIRED: "Expired",
    BatchPhase.CANCELLING: "Stopping",
    BatchPhase.CANCELLED: "Stopped",
}
_S3_CODES: Final = {401: "InvalidAccessKeyId", 403: "AccessDenied", 404: "NoSuchKey", 503: "SlowDown"}


class S3Format(BedrockFormat):
    def error_reply(self, error: ProviderError) -> PracticeReply:
        code = _S3_CODES.get(error.status, "InternalError" if error.status >= 500 else "InvalidRequest")
        text = f"<Error><Code>{code}</Code><Message>{escape(error.message)}</Message></Error>"
        status = 403 if error.status == 401 else error.status
        return PracticeReply(status, text.encode(), {**XML, **error.headers})


S3: Final = S3Format()


class PracticeObjects:
    """Objects of any bucket: whole ones, by their keys."""

    def __init__(self, state: ProviderState, folder: ScratchFolder) -> None:
        self._state = state
        self._folder = folder
        self._objects: dict[str, tuple[Path, int]] = {}  # by bucket/key: the file, and when it was written

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        for method, path, work in (
            ("PUT", "/{bucket}/{key:.+}", self.put),
            ("GET", "/{bucket}/{key:.+}", self.get),
            ("HEAD", "/{bucket}/{key:.+}", self.get),
            ("DELETE", "/{bucket}/{key:.+}", self.delete),
            ("GET", "/{bucket}", self.list_),
        ):
            router.add_route(method, f"{ROOT}{path}", pipeline.unpaid_route(S3, work))

    def write(self, name: str, data: bytes) -> None:
        path = self._folder.new_path()
        path.write_bytes(data)
        self._objects[name] = (path, self._state.clock.now_ms())

    def read(self, name: str) -> bytes | None:
        found = self._objects.get(name)
        return None if found is None else found[0].read_bytes()

    async def put(self, request: web.Request) -> PracticeReply:
        data = await request.read()
        self.write(_name(request), data)
        return PracticeReply(200, b"", {"ETag": _etag(data)})

    async def get(self, request: web.Request) -> PracticeReply:
        data = self.read(_name(request))
        if data is None:
            raise ProviderError(404, "The specified key does not exist.")
        return PracticeReply(200, data, {"Content-Type": "binary/octet-stream", "ETag": _etag(data)})

    async def delete(self, request: web.Request) -> PracticeReply:
        self._objects.pop(_name(request), None)
        return PracticeReply(204, b"")

    async def list_(self, request: web.Request) -> PracticeReply:
        bucket, query = request.match_info["bucket"], request.query
        start, after = f"{bucket}/{query.get('prefix', '')}", query.get("continuation-token", "")
        size = min(int(query.get("max-keys", PAGE_MAX)), PAGE_MAX)
        names = sorted(name for name in self._objects if name.startswith(start) and name > after)
        shown, more = names[:size], len(names) > size
        entries = "".join(
            f"<Contents><Key>{escape(name.removeprefix(f'{bucket}/'))}</Key>"
            f"<LastModified>{moment(self._objects[name][1])}</LastModified>"
            f"<Size>{self._objects[name][0].stat().st_size}</Size></Contents>"
            for name in shown
        )
        token = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if more else ""
        head = f"<Name>{bucket}</Name><KeyCount>{len(shown)}</KeyCount><IsTruncated>{str(more).lower()}</IsTruncated>"
        text = f"<ListBucketResult>{head}{token}{entries}</ListBucketResult>"
        return PracticeReply(200, text.encode(), XML)


def _name(request: web.Request) -> str:
    return f"{request.match_info['bucket']}/{request.match_info['key']}"


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


class PracticeJobs:
    def __init__(self, objects: PracticeObjects, queue: BatchQueue) -> None:
        self._objects = objects
        self._queue = queue
        self._jobs: dict[str, PracticeJob] = {}

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        for method, path, work in (
            ("POST", JOBS, self.create),
            ("GET", f"{JOBS}s", self.list_),
            ("GET", f"{JOBS}/{{id:.+}}", self.show),
            ("POST", f"{JOBS}/{{id:.+}}/stop", self.stop),
        ):
            router.add_route(method, path, pipeline.unpaid_route(BEDROCK, work))

    async def create(self, request: web.Request) -> PracticeReply:
        """The same token again is the same job."""
        asked = read_object(await request.read())
        _check_job(asked)
        token = asked.get("clientRequestToken")
        job = next((job for job in self._jobs.values() if token and job.asked.get("clientRequestToken") == token), None)
        if job is not None and job.asked != asked:
            raise ProviderError(409, "The client request token was used for another job.")
        if job is None:
            if any(each.asked["jobName"] == asked["jobName"] for each in self._jobs.values()):
                raise invalid("A job with this name exists already.")
            job = PracticeJob(asked, self._objects, self._queue)
            self._jobs[job.id] = job
            self._queue.start(job)
        return json_reply({"jobArn": job.arn})

    async def show(self, request: web.Request) -> PracticeReply:
        return json_reply(self._find(request).dump())

    async def stop(self, request: web.Request) -> PracticeReply:
        job = self._find(request)
        if job.has_ended:
            raise ProviderError(409, f"The job {job.id} has ended.")
        job.cancel()
        return json_reply({})

    async def list_(self, request: web.Request) -> PracticeReply:
        """The newest first."""
        query = request.query
        after = _ms(query["submitTimeAfter"]) if "submitTimeAfter" in query else 0
        shown = [
            job.dump()
            for job in reversed(self._jobs.values())
            if self._queue.is_visible(job.created_ms)
            and query.get("nameContains", "") in job.asked["jobName"]
            and job.created_ms > after
            and query.get("statusEquals", job.status) == job.status
        ]
        size, start = int(query.get("maxResults", "100")), int(query.get("nextToken", "0"))
        page = {"invocationJobSummaries": shown[start : start + size]}
        return json_reply({**page, "nextToken": str(start + size)} if start + size < len(shown) else page)

    def _find(self, request: web.Request) -> "PracticeJob":
        name = request.match_info["id"].rpartition("/")[2]
        job = self._jobs.get(name)
        if job is None or not self._queue.is_visible(job.created_ms):
            raise ProviderError(404, f"The job {name} was not found.")
        return job


def _check_job(asked: dict[str, Any]) -> None:
    for name in ("jobName", "roleArn", "modelId"):
        if not isinstance(asked.get(name), str):
            raise invalid(f"{name} is required.")
    for outer, inner in (("inputDataConfig", "s3InputDataConfig"), ("outputDataConfig", "s3OutputDataConfig")):
        config = asked.get(outer)
        place = config.get(inner) if isinstance(config, dict) else None
        uri = place.get("s3Uri") if isinstance(place, dict) else None
        if not isinstance(uri, str) or not uri.startswith("s3://"):
            raise invalid(f"{outer}.{inner}.s3Uri is required.")
    if asked.get("modelInvocationType", "InvokeModel") not in _TYPES:
        raise invalid("modelInvocationType is InvokeModel or Converse.")
    hours = asked.get("timeoutDurationInHours", 24)
    if type(hours) is not int or not 24 <= hours <= 168:
        raise invalid("timeoutDurationInHours is from 24 to 168.")


def _ms(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)
    except ValueError:
        raise invalid(f"{text} is not a time.") from None


class PracticeJob(BatchJob):
    """Its records are read when it begins: an object that is not there then is never run."""

    def __init__(self, asked: dict[str, Any], objects: PracticeObjects, queue: BatchQueue) -> None:
        name = hashlib.blake2b(queue.state.mark().encode(), digest_size=6).hexdigest()
        super().__init__(name, asked["jobName"], queue)
        self.asked = asked
        self.created_ms = self._state.clock.now_ms()
        self.ended_ms: int | None = None
        self._objects = objects
        self._message: str | None = None
        self._counts: Counter[str] = Counter()
        self._lines: list[str] = []

    @property
    def arn(self) -> str:
        return f"{ARN}{self.id}"

    @property
    def status(self) -> str:
        return _STATUSES[self.phase]

    @property
    def has_ended(self) -> bool:
        return self.status in ("Completed", "Failed", "Expired", "Stopped")

    def dump(self) -> dict[str, Any]:
        hours = self.asked.get("timeoutDurationInHours", 24)
        shown = {
            **{name: value for name, value in self.asked.items() if name != "tags"},
            "modelInvocationType": self.asked.get("modelInvocationType", "InvokeModel"),
            "jobArn": self.arn,
            "status": self.status,
            "message": self._message,
            "submitTime": moment(self.created_ms),
            "lastModifiedTime": moment(self.ended_ms or self.created_ms),
            "endTime": None if self.ended_ms is None else moment(self.ended_ms),
            "jobExpirationTime": moment(self.created_ms + hours * HOUR_MS),
            "totalRecordCount": self.total,
            **self._record_counts(),
        }
        return {name: value for name, value in shown.items() if value is not None}

    async def check_input(self) -> BatchInput | None:
        """A record that is not valid is an error of its own; a file without any record fails the job."""
        uri = self.asked["inputDataConfig"]["s3InputDataConfig"]["s3Uri"]
        try:
            lines = list(_records(self._objects.read(uri.removeprefix("s3://"))))
        except ValueError as error:
            self._refuse(str(error))
            return None
        return BatchInput(len(lines), self.asked["modelId"], 0, iter(lines))

    def refuse_tokens(self, model: str | None, limit: int) -> None:
        self._refuse("Too many tokens wait in batches (practice).")

    def read_call(self, line: QueuedLine) -> PaidCall:
        operation = _TYPES[self.asked.get("modelInvocationType", "InvokeModel")]
        return read_call(self.asked["modelId"], operation, line.body)

    def generate(self, call: PaidCall, stamp: ReplyStamp) -> GeneratedReply:
        if "toolConfig" in call.body:
            raise invalid("Tools are not supported in batches of Converse.")
        made = generate(call, stamp)
        return made._replace(text=UNREADABLE) if stamp.fault in tuple(BodyFault) else made

    def write_answer(self, line: QueuedLine, made: GeneratedReply) -> None:
        if made.text == UNREADABLE:
            self._lines.append(UNREADABLE)
            self._counts["success"] += 1
        else:
            self._write(line, "success", f'"modelOutput":{made.text}')

    def write_error(self, line: QueuedLine, error: ProviderError) -> None:
        said = {"errorCode": error.status or 500, "errorMessage": error.message}
        self._write(line, "error", f'"error":{json.dumps(said)}')

    def write_skipped(self, line: QueuedLine, reason: SkipReason) -> None:
        """It has no line."""
        match reason:
            case SkipReason.EXPIRED | SkipReason.CANCELLED:
                return
            case _ as never:
                assert_never(never)

    def publish_results(self) -> None:
        source = self.asked["inputDataConfig"]["s3InputDataConfig"]["s3Uri"]
        target = self.asked["outputDataConfig"]["s3OutputDataConfig"]["s3Uri"]
        folder = f"{target.removeprefix('s3://').rstrip('/')}/{self.id}"
        text = "".join(f"{line}\n" for line in self._lines)
        self._objects.write(f"{folder}/{source.rpartition('/')[2]}.out", text.encode())
        tokens = {"inputTokenCount": self.input_tokens, "outputTokenCount": self.output_tokens}
        manifest = {"totalRecordCount": self.total, **self._record_counts(), **tokens}
        self._objects.write(f"{folder}/manifest.json.out", json.dumps(manifest).encode())
        self.ended_ms = self._state.clock.now_ms()

    def close_results(self) -> None:
        """The lines are in memory until they are written."""

    def _record_counts(self) -> dict[str, int]:
        success, error = self._counts["success"], self._counts["error"]
        return {
            "processedRecordCount": success + error,
            "successRecordCount": success,
            "errorRecordCount": error,
        }

    def _refuse(self, message: str) -> None:
        self._message = message
        self.ended_ms = self._state.clock.now_ms()

    def _write(self, line: QueuedLine, kind: str, more: str) -> None:
        self._counts[kind] += 1
        self._lines.append(f'{{"modelInput":{json.dumps(line.body)},{more},"recordId":{json.dumps(line.custom_id)}}}')


def _records(data: bytes | None) -> Iterator[QueuedLine]:
    if data is None:
        raise ValueError("The S3 object of the input was not found.")
    lines = data.splitlines()
    if not 1 <= len(lines) <= RECORDS_MAX:
        raise ValueError(f"The input has {len(lines)} records, and must have 1 to {RECORDS_MAX}.")
    for number, line in enumerate(lines, 1):
        value = json.loads(line)
        body = value.get("modelInput") if isinstance(value, dict) else None
        if not isinstance(body, dict):
            raise ValueError(f"Line {number} has no modelInput.")
        yield QueuedLine(str(value.get("recordId") or f"RECORD{number:08}"), body)


class BedrockApi(ImitatedApi):
    def make_parts(self, state: ProviderState) -> Iterable[ApiPart]:
        objects = PracticeObjects(state, self.folder)
        return BedrockRoutes(), PracticeJobs(objects, self.queue), objects


APIS: Final = (BedrockApi,)
