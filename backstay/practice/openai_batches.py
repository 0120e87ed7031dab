"""OpenAI's batches: their routes, the check of an input file, and the lines of the output and error files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, assert_never

from aiohttp import web

from backstay.practice.batch_jobs import (
    STEP_LINES_MAX,
    BatchInput,
    BatchJob,
    BatchPhase,
    BatchQueue,
    QueuedLine,
    SkipReason,
)
from backstay.practice.openai_calls import ENDPOINTS, UNKNOWN_MODEL, generate
from backstay.practice.openai_files import BYTE_ORDER_MARK, OpenAiFiles, OpenAiFileStatus
from backstay.practice.openai_responses import response_usage
from backstay.practice.openai_shapes import (
    OPENAI,
    OpenAiError,
    OpenAiFormat,
    Paging,
    check_metadata,
    error_body,
    list_page,
    missing_parameter,
    not_found,
    read_call,
    read_object,
)
from backstay.practice.pipeline import PaidCall, Pipeline
from backstay.practice.replies import GeneratedReply, PracticeReply, ProviderError, ReplyStamp, json_reply

AT_AZURE = "/openai/"  # paths of batches there have no version
WINDOW = "24h"
WINDOW_SECONDS = 86_400
LIST_MAX = 100
RESULT_FILE_SECONDS = 30 * 86_400
LINES_MAX = 50_000
FILE_BYTES_MAX = 200 << 20
MISTAKES_SHOWN_MAX = 100
OUTPUT, ERROR = "output", "error"

_PHASES_IN_ORDER = (
    BatchPhase.IN_PROGRESS,
    BatchPhase.FINALIZING,
    BatchPhase.COMPLETED,
    BatchPhase.FAILED,
    BatchPhase.EXPIRED,
    BatchPhase.CANCELLING,
    BatchPhase.CANCELLED,
)


class PracticeBatches:
    """Services with batches like OpenAI's accept other input and list batches in another way."""

    path = "/v1/batches"
    format: OpenAiFormat = OPENAI

    def __init__(self, files: OpenAiFiles, queue: BatchQueue) -> None:
        self._files = files
        self._queue = queue
        self._batches: dict[str, PracticeBatch] = {}

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        for method, path, work in (
            ("POST", self.path, self.create),
            ("GET", self.path, self.list_),
            ("GET", f"{self.path}/{{id}}", self.show),
            ("POST", f"{self.path}/{{id}}/cancel", self.cancel),
        ):
            router.add_route(method, path, pipeline.unpaid_route(self.format, work))

    async def create(self, request: web.Request) -> PracticeReply:
        asked = read_object(await request.read())
        for name in ("input_file_id", "endpoint", "completion_window"):
            if not isinstance(asked.get(name), str):
                raise missing_parameter(name)
        if request.path.startswith(AT_AZURE) and f"/v1{asked['endpoint']}" in ENDPOINTS:
            asked["endpoint"] = f"/v1{asked['endpoint']}"
        if asked["endpoint"] not in ENDPOINTS:
            supported = ", ".join(map(repr, ENDPOINTS))
            message = f"Invalid value: '{asked['endpoint']}'. Supported values are: {supported}."
            raise OpenAiError(400, message, "invalid_value", "endpoint")
        if asked["completion_window"] != WINDOW:
            message = f"Invalid value: '{asked['completion_window']}'. Value must be '{WINDOW}'."
            raise OpenAiError(400, message, "invalid_value", "completion_window")
        check_metadata(asked.get("metadata"))
        self._require_processed(asked["input_file_id"])
        return json_reply(self._start(PracticeBatch(asked, self._files, self._queue)).dump())

    async def show(self, request: web.Request) -> PracticeReply:
        return json_reply(self._find(request).dump())

    async def list_(self, request: web.Request) -> PracticeReply:
        """The newest first, always."""
        paging = Paging.read(request.query, LIST_MAX, "desc")
        return list_page(list(self._batches.values()), paging._replace(order="desc"), PracticeBatch.dump)

    async def cancel(self, request: web.Request) -> PracticeReply:
        batch = self._find(request)
        if batch.phase in (BatchPhase.FAILED, BatchPhase.COMPLETED, BatchPhase.EXPIRED):
            raise OpenAiError(409, f"Cannot cancel a batch with status '{batch.phase}'.")
        batch.cancel()
        return json_reply(batch.dump())

    def _start(self, batch: "PracticeBatch") -> "PracticeBatch":
        self._batches[batch.id] = batch
        self._queue.start(batch)
        return batch

    def _require_processed(self, name: str) -> None:
        """A file that does not exist is an error of the batch, not of its creation."""
        file = self._files.find(name)
        if file is not None and (status := self._files.status(file)) is not OpenAiFileStatus.PROCESSED:
            message = (
                f"The input file '{name}' is in '{status}' state. Only files with status 'Processed' are accepted."
            )
            raise OpenAiError(400, message, param="input_file_id")

    def _find(self, request: web.Request) -> "PracticeBatch":
        name = request.match_info["id"]
        if (batch := self._batches.get(name)) is None:
            raise not_found("batch", name)
        return batch


class BatchMistake(NamedTuple):
    code: str
    message: str
    line: int | None = None
    param: str | None = None


class _LineRefused(Exception):
    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.mistake = BatchMistake(code, message, None, param)


class BatchFileCheck:
    """Goes through a file line by line and notes every mistake; a batch with a mistake is not run."""

    fields: tuple[str, ...] = ("custom_id", "method", "url", "body")

    def __init__(self, endpoint: str, model: str | None = None) -> None:
        self._endpoint = endpoint
        self._default = {} if model is None else {"model": model}
        self._custom_ids: set[str] = set()
        self._model: str | None = None
        self._tokens = 0
        self._total = 0
        self._mistakes: list[BatchMistake] = []

    def add_line(self, number: int, text: bytes) -> None:
        self._total += 1
        try:
            value = self._parse(text)
            self._check_envelope(value)
            self._check_body(value["body"])
        except _LineRefused as refused:
            self._mistakes.append(refused.mistake._replace(line=number))

    def result(self, lines: Iterator[QueuedLine]) -> BatchInput:
        return BatchInput(self._total, self._model, self._tokens, lines)

    def mistakes(self, size: int) -> list[BatchMistake]:
        found = list(self._mistakes)
        if self._total == 0:
            found.append(BatchMistake("empty_file", "The input file is empty. Please ensure that it has requests."))
        if self._total > LINES_MAX:
            found.insert(0, BatchMistake("too_many_tasks", f"A batch has at most {LINES_MAX} requests."))
        if size > FILE_BYTES_MAX:
            found.insert(0, BatchMistake("file_too_large", "The input file of a batch has at most 200 MB."))
        shown = found[:MISTAKES_SHOWN_MAX]
        if (hidden := len(found) - len(shown)) > 0:
            shown[-1] = BatchMistake("too_many_errors", f"There are {hidden + 1} more errors in the input file.")
        return shown

    def _parse(self, text: bytes) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise _LineRefused("invalid_json_line", "This line is not parseable as valid JSON.") from None
        if not isinstance(value, dict):
            raise _LineRefused("invalid_json_line", "This line is not a JSON object.")
        for name in self.fields:
            if not value.get(name):
                raise _LineRefused("missing_required_parameter", f"Missing required parameter: '{name}'.", name)
        return value

    def _check_envelope(self, value: dict[str, Any]) -> None:
        custom_id = value["custom_id"]
        if not isinstance(custom_id, str):
            raise _LineRefused("invalid_request", "'custom_id' must be a string.", "custom_id")
        if custom_id in self._custom_ids:
            raise _LineRefused("duplicate_custom_id", f"The custom_id '{custom_id}' is duplicated.", "custom_id")
        self._custom_ids.add(custom_id)
        self.check_url(value)

    def check_url(self, value: dict[str, Any]) -> None:
        if value["method"] != "POST":
            raise _LineRefused("invalid_method", "The method must be POST.", "method")
        if value["url"] not in (self._endpoint, self._endpoint.removeprefix("/v1")):
            message = "The URL provided for this request does not match the batch endpoint."
            raise _LineRefused("invalid_url", message, "url")

    def _check_body(self, body: Any) -> None:
        if not isinstance(body, dict):
            raise _LineRefused("invalid_request", "'body' must be an object.", "body")
        if body.get("stream"):
            raise _LineRefused("streaming_unsupported", "Streaming is not supported in the Batch API.", "body.stream")
        body = {**self._default, **body}
        model = body.get("model")
        if model == UNKNOWN_MODEL:
            raise _LineRefused("model_not_found", f"The provided model '{model}' does not exist.", "body.model")
        try:
            made = generate(self._endpoint, body, ReplyStamp("", 0))
        except OpenAiError as error:
            param = f"body.{error.param}" if error.param else "body"
            raise _LineRefused("invalid_request", error.message, param) from None
        if self._model is None:
            self._model = model
        elif model != self._model:
            raise _LineRefused("mismatched_model", "All requests of a batch must name the same model.", "body.model")
        self._tokens += made.input_tokens


class PracticeBatch(BatchJob):
    """A batch whose input is a file, and whose results are an output file and an error file."""

    check: type[BatchFileCheck] = BatchFileCheck  # of its input

    def __init__(self, asked: dict[str, Any], files: OpenAiFiles, queue: BatchQueue) -> None:
        super().__init__(f"batch_{queue.state.mark()}", asked["input_file_id"], queue)
        self._asked = asked
        self._files = files
        self._created_at = self._state.now_seconds()
        self._mistakes: list[BatchMistake] = []
        self._paths: dict[str, Path] = {}
        self._open: dict[str, BinaryIO] = {}
        self._result_ids: dict[str, str] = {}
        self._usage: dict[str, Any] | None = None

    def dump(self) -> dict[str, Any]:
        errors = {"object": "list", "data": [each._asdict() for each in self._mistakes]}
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self._asked["endpoint"],
            "model": self.model,
            "errors": errors if self.phase is BatchPhase.FAILED else None,
            "input_file_id": self._asked["input_file_id"],
            "completion_window": WINDOW,
            "status": self.phase,
            "output_file_id": self._result_ids.get(OUTPUT),
            "error_file_id": self._result_ids.get(ERROR),
            "created_at": self._created_at,
            "expires_at": self._created_at + WINDOW_SECONDS,
            **{f"{phase}_at": self.reached_at.get(phase) for phase in _PHASES_IN_ORDER},
            "request_counts": {"total": self.total, "completed": self.completed, "failed": self.failed},
            "usage": self._usage,
            "metadata": self._asked.get("metadata"),
        }

    async def check_input(self) -> BatchInput | None:
        name = self._asked["input_file_id"]
        file = self._files.find(name)
        if file is None:
            self._mistakes = [BatchMistake("invalid_request", f"Cannot find file {name}.", param="file_id")]
            return None
        check = self.check(self._asked["endpoint"], self._asked.get("model"))
        for count, (number, text) in enumerate(_numbered_lines(file.path), start=1):
            check.add_line(number, text)
            if count % STEP_LINES_MAX == 0:
                await self.pause(0)
        self._mistakes = check.mistakes(file.bytes)
        return None if self._mistakes else check.result(_queued_lines(file.path))

    def refuse_tokens(self, model: str | None, limit: int) -> None:
        message = f"Enqueued token limit reached for {model}. Limit: {limit:,} enqueued tokens."
        self._mistakes = [BatchMistake("token_limit_exceeded", message)]

    def read_call(self, line: QueuedLine) -> PaidCall:
        return read_call(self._asked["endpoint"], line.body, {})

    def generate(self, call: PaidCall, stamp: ReplyStamp) -> GeneratedReply:
        return generate(call.url, call.body, stamp)

    def write_answer(self, line: QueuedLine, made: GeneratedReply) -> None:
        self._write_response(OUTPUT, line, 200, made.text)

    def write_error(self, line: QueuedLine, error: ProviderError) -> None:
        self._write_response(ERROR, line, error.status, json.dumps(error_body(error)))

    def write_skipped(self, line: QueuedLine, reason: SkipReason) -> None:
        match reason:
            case SkipReason.EXPIRED:
                code = "batch_expired"
                message = "This request could not be executed before the completion window expired."
            case SkipReason.CANCELLED:
                code, message = "batch_cancelled", "This request was not executed because the batch was cancelled."
            case _ as never:
                assert_never(never)
        error = json.dumps({"code": code, "message": message})
        self._append(ERROR, f'"custom_id":{json.dumps(line.custom_id)},"response":null,"error":{error}')

    def publish_results(self) -> None:
        """Closes the files and lists them; a file without lines does not exist."""
        self.close_results()
        for kind, path in self._paths.items():
            file = self._files.add(path, f"{self.id}_{kind}.jsonl", "batch_output", RESULT_FILE_SECONDS)
            self._result_ids[kind] = file.id
        self._usage = response_usage(self.input_tokens, self.output_tokens)
        del self._usage["input_tokens_details"]["cache_write_tokens"]  # a batch does not tell it

    def close_results(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _write_response(self, kind: str, line: QueuedLine, status: int, body: str) -> None:
        request_id = f"req_{self._state.mark()}"
        response = f'{{"status_code":{status},"request_id":"{request_id}","body":{body}}}'
        self._append(kind, f'"custom_id":{json.dumps(line.custom_id)},"response":{response},"error":null')

    def _append(self, kind: str, text: str) -> None:
        if kind not in self._open:
            self._paths[kind] = self._files.new_path()
            self._open[kind] = self._paths[kind].open("wb")
        self._open[kind].write(f'{{"id":"batch_req_{self._state.mark()}",{text}}}\n'.encode())


def _numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, numbered from 1."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            text = (line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line).strip()
            if text:
                yield number, text


def _queued_lines(path: Path) -> Iterator[QueuedLine]:
    """The lines of a file without mistakes."""
    for _, text in _numbered_lines(path):
        value = json.loads(text)
        yield QueuedLine(value["custom_id"], value["body"])
