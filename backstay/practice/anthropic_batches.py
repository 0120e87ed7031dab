"""Anthropic's message batches: their routes, the check of the requests in one, and the lines of its results; and its
API as a whole."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, assert_never

from aiohttp import web

from backstay.practice import openai_calls
from backstay.practice.anthropic import (
    MESSAGES,
    VERSION_HEADER,
    AnthropicCalls,
    AnthropicFormat,
    error_body,
    generate_message,
    invalid,
    list_models,
    list_page,
    not_found,
    read_call,
    read_object,
    show_model,
)
from backstay.practice.batch_jobs import (
    UNREADABLE,
    ApiPart,
    BatchInput,
    BatchJob,
    BatchQueue,
    ImitatedApi,
    LineFile,
    QueuedLine,
    ScratchFolder,
    SkipReason,
)
from backstay.practice.faults import BatchFault, BodyFault, model_named_after
from backstay.practice.openai_shapes import OPENAI
from backstay.practice.pipeline import PaidCall, Pipeline, ProviderState, by_header
from backstay.practice.replies import GeneratedReply, PracticeReply, ProviderError, ReplyStamp, json_reply, moment

BATCHES: Final = f"{MESSAGES}/batches"
MODELS_PATH: Final = "/v1/models"
DAY_MS: Final = 86_400_000
REQUESTS_MAX: Final = 100_000
LINES: Final = {"Content-Type": "application/x-jsonl"}
NOT_IN_BATCHES: Final = ("stream", "speed", "store")
_CUSTOM_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class PracticeMessageBatches:
    def __init__(self, form: AnthropicFormat, folder: ScratchFolder, queue: BatchQueue) -> None:
        self._form = form
        self._folder = folder
        self._queue = queue
        self._batches: dict[str, PracticeMessageBatch] = {}

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        for method, path, work in (
            ("POST", BATCHES, self.create),
            ("GET", BATCHES, self.list_),
            ("GET", f"{BATCHES}/{{id}}", self.show),
            ("DELETE", f"{BATCHES}/{{id}}", self.remove),
            ("POST", f"{BATCHES}/{{id}}/cancel", self.cancel),
            ("GET", f"{BATCHES}/{{id}}/results", self.results),
        ):
            router.add_route(method, path, pipeline.unpaid_route(self._form, work))

    async def create(self, request: web.Request) -> PracticeReply:
        lines = read_requests(read_object(await request.read()))
        batch = PracticeMessageBatch(lines, self._folder.new_path(), self._queue)
        self._batches[batch.id] = batch
        self._queue.start(batch)
        return json_reply(batch.dump(request))

    async def list_(self, request: web.Request) -> PracticeReply:
        """The newest first."""
        shown = [batch for batch in reversed(self._batches.values()) if self._queue.is_visible(batch.created_ms)]
        return list_page(shown, request.query, lambda batch: batch.id, lambda batch: batch.dump(request))

    async def show(self, request: web.Request) -> PracticeReply:
        return json_reply(self._find(request).dump(request))

    async def cancel(self, request: web.Request) -> PracticeReply:
        batch = self._find(request)
        if batch.has_ended:
            raise invalid(f"Batch {batch.id} cannot be canceled because it has ended.")
        batch.cancel()
        return json_reply(batch.dump(request))

    async def remove(self, request: web.Request) -> PracticeReply:
        batch = self._find(request)
        if not batch.has_ended:
            raise invalid(f"Batch {batch.id} cannot be deleted while it is in progress; cancel it first.")
        del self._batches[batch.id]
        return json_reply({"id": batch.id, "type": "message_batch_deleted"})

    async def results(self, request: web.Request) -> PracticeReply:
        """The results may appear late, as everything new does."""
        batch = self._find(request)
        if batch.ended_ms is None:
            raise invalid(f"Batch {batch.id} has not ended, so it has no results yet.")
        if not self._queue.is_visible(batch.ended_ms):
            raise not_found(f"The results of {batch.id}")
        return PracticeReply(200, batch.path.read_bytes(), LINES)

    def _find(self, request: web.Request) -> "PracticeMessageBatch":
        name = request.match_info["id"]
        batch = self._batches.get(name)
        if batch is None or not self._queue.is_visible(batch.created_ms):
            raise not_found(f"message_batch: {name}")
        return batch


def read_requests(asked: dict[str, Any]) -> list[QueuedLine]:
    """Checks the form of the list only. A wrong request is an error in the results."""
    given = asked.get("requests")
    if not isinstance(given, list) or not 1 <= len(given) <= REQUESTS_MAX:
        raise invalid(f"requests: List should have 1 to {REQUESTS_MAX} items")
    lines: list[QueuedLine] = []
    seen: set[str] = set()
    for number, each in enumerate(given):
        custom_id = each.get("custom_id") if isinstance(each, dict) else None
        if not isinstance(custom_id, str) or not _CUSTOM_ID.fullmatch(custom_id):
            raise invalid(f"requests.{number}.custom_id: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'")
        if custom_id in seen:
            raise invalid(f"requests.{number}.custom_id: custom_id must be unique within a batch")
        if not isinstance(each.get("params"), dict):
            raise invalid(f"requests.{number}.params: Input should be an object")
        seen.add(custom_id)
        lines.append(QueuedLine(custom_id, each["params"]))
    return lines


class PracticeMessageBatch(BatchJob):
    """A batch whose requests came with its creation. It shows how they ended when all have."""

    def __init__(self, lines: list[QueuedLine], path: Path, queue: BatchQueue) -> None:
        super().__init__(f"msgbatch_{queue.state.mark()}", " ".join(line.custom_id for line in lines[:10]), queue)
        self.path = path
        self.created_ms = self._state.clock.now_ms()
        self.ended_ms: int | None = None
        self._cancelled_ms: int | None = None
        self._lines = lines
        self._counts: Counter[str] = Counter()
        self._results = LineFile(path)

    @property
    def has_ended(self) -> bool:
        return self.ended_ms is not None

    def dump(self, request: web.Request) -> dict[str, Any]:
        """The URL of the results is on the host that the client asked."""
        status = "ended" if self.has_ended else "canceling" if self._cancelled_ms is not None else "in_progress"
        others = {name: self._counts[name] if self.has_ended else 0 for name in ("errored", "canceled", "expired")}
        known = len(self._lines) - sum(others.values())
        counts = {"processing": 0, "succeeded": known} if self.has_ended else {"processing": known, "succeeded": 0}
        return {
            "id": self.id,
            "type": "message_batch",
            "processing_status": status,
            "request_counts": {**counts, **others},
            "created_at": moment(self.created_ms),
            "expires_at": moment(self.created_ms + DAY_MS),
            "ended_at": None if self.ended_ms is None else moment(self.ended_ms),
            "cancel_initiated_at": None if self._cancelled_ms is None else moment(self._cancelled_ms),
            "archived_at": None,
            "results_url": f"{request.scheme}://{request.host}{BATCHES}/{self.id}/results" if self.has_ended else None,
        }

    def cancel(self) -> None:
        super().cancel()
        if self._cancelled_ms is None:
            self._cancelled_ms = self._state.clock.now_ms()

    async def check_input(self) -> BatchInput:
        """Models may be mixed; one model of all may ask for a batch that expires."""
        models = {str(line.body.get("model")) for line in self._lines}
        model = model_named_after(BatchFault.EXPIRE)
        return BatchInput(len(self._lines), model if models == {model} else None, 0, iter(self._lines))

    def refuse_tokens(self, model: str | None, limit: int) -> None:
        message = f"Too many tokens wait in batches (practice). The limit is {limit:,}."
        for line in self._lines:
            self.write_error(line, ProviderError(429, message))
        self.publish_results()

    def read_call(self, line: QueuedLine) -> PaidCall:
        return read_call(line.body)

    def generate(self, call: PaidCall, stamp: ReplyStamp) -> GeneratedReply:
        for name in NOT_IN_BATCHES:
            if name in call.body:
                raise invalid(f"{name}: not supported in a batch")
        made = generate_message(call.body, stamp, "batch")
        return made._replace(text=UNREADABLE) if stamp.fault in tuple(BodyFault) else made

    def write_answer(self, line: QueuedLine, made: GeneratedReply) -> None:
        if made.text == UNREADABLE:
            self._results.append(UNREADABLE)
        else:
            self._write(line, "succeeded", f'"message":{made.text}')

    def write_error(self, line: QueuedLine, error: ProviderError) -> None:
        self._write(line, "errored", f'"error":{json.dumps(error_body(error))}')

    def write_skipped(self, line: QueuedLine, reason: SkipReason) -> None:
        match reason:
            case SkipReason.EXPIRED:
                self._write(line, "expired")
            case SkipReason.CANCELLED:
                self._write(line, "canceled")
            case _ as never:
                assert_never(never)

    def publish_results(self) -> None:
        self.close_results()
        self.path.touch()
        self.ended_ms = self._state.clock.now_ms()

    def close_results(self) -> None:
        self._results.close()

    def _write(self, line: QueuedLine, kind: str, more: str = "") -> None:
        self._counts[kind] += 1
        result = f'"type":"{kind}"{"," if more else ""}{more}'
        self._results.append(f'{{"custom_id":{json.dumps(line.custom_id)},"result":{{{result}}}}}')


class AnthropicApi(ImitatedApi):
    def make_parts(self, state: ProviderState) -> Iterable[ApiPart]:
        form = AnthropicFormat(state)
        return AnthropicCalls(form), AnthropicModels(form), PracticeMessageBatches(form, self.folder, self.queue)


class AnthropicModels:
    """OpenAI's clients ask for models at the same paths."""

    def __init__(self, form: AnthropicFormat) -> None:
        self._form = form

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        for path, own, others in (
            (MODELS_PATH, list_models, openai_calls.list_models),
            (f"{MODELS_PATH}/{{id}}", show_model, openai_calls.show_model),
        ):
            route = pipeline.unpaid_route(self._form, own)
            router.add_route("GET", path, by_header(VERSION_HEADER, route, pipeline.unpaid_route(OPENAI, others)))


APIS: Final = (AnthropicApi,)
