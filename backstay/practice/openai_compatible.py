"""APIs that are like OpenAI's: at other paths (Groq, Azure), with errors and jobs of its own (Mistral), or with uploads
in three steps (Together)."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from aiohttp import web

from backstay.practice.batch_jobs import ApiPart, BatchPhase, ImitatedApi, QueuedLine, ScratchFolder
from backstay.practice.openai_batches import BatchFileCheck, PracticeBatch, PracticeBatches
from backstay.practice.openai_calls import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    ENDPOINTS,
    OpenAiCalls,
    PracticeCompletions,
    list_models,
    show_model,
)
from backstay.practice.openai_files import OpenAiFile, OpenAiFiles
from backstay.practice.openai_responses import OpenAiResponses
from backstay.practice.openai_shapes import OPENAI, OpenAiError, OpenAiFormat, missing_parameter, read_object
from backstay.practice.pipeline import PaidCall, Pipeline, ProviderState
from backstay.practice.replies import (
    GeneratedReply,
    PracticeReply,
    ProviderError,
    ReplyStamp,
    json_reply,
    moment,
)

TIER: Final = ',"service_tier":"default"'
DEPLOYED: Final = (CHAT, COMPLETIONS, EMBEDDINGS)
MISTRAL_ROOT: Final = "/mistral"
TOGETHER_ROOT: Final = "/together"
PAGE_ENTRIES_MAX: Final = 1_000
TIMEOUT_HOURS_MAX: Final = 168
STORE: Final = "/store/{id}"  # the path for the bytes of a file; the real provider uses another host
TOGETHER_PURPOSE: Final = "batch-api"
_MISTRAL_STATUSES: Final = {
    BatchPhase.VALIDATING: "QUEUED",
    BatchPhase.IN_PROGRESS: "RUNNING",
    BatchPhase.FINALIZING: "RUNNING",
    BatchPhase.COMPLETED: "SUCCESS",
    BatchPhase.FAILED: "FAILED",
    BatchPhase.EXPIRED: "TIMEOUT_EXCEEDED",
    BatchPhase.CANCELLING: "CANCELLATION_REQUESTED",
    BatchPhase.CANCELLED: "CANCELLED",
}
_SAMPLES: Final = {"batch": "batch_request", "batch_output": "batch_result"}
_TOGETHER_STATUSES: Final = {
    **{phase: phase.upper() for phase in BatchPhase},
    BatchPhase.FINALIZING: "IN_PROGRESS",
    BatchPhase.CANCELLING: "IN_PROGRESS",
}
_STOPPABLE: Final = (BatchPhase.VALIDATING, BatchPhase.IN_PROGRESS, BatchPhase.FINALIZING)


class PresetCalls(OpenAiCalls):
    """With the models, and without the tier of a reply, whose names are OpenAI's own."""

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        super().add_routes(router, pipeline)
        router.add_route("GET", "/v1/models", pipeline.unpaid_route(self.format, self.list_models))
        router.add_route("GET", "/v1/models/{id}", pipeline.unpaid_route(self.format, self.show_model))

    async def list_models(self, request: web.Request) -> PracticeReply:
        return await list_models(request)

    async def show_model(self, request: web.Request) -> PracticeReply:
        return await show_model(request)

    def generate(self, call: PaidCall, stamp: ReplyStamp) -> GeneratedReply:
        made = super().generate(call, stamp)
        return made._replace(text=made.text.replace(TIER, "", 1))


class MovedPart:
    """The same routes at the paths of another provider."""

    def __init__(self, part: ApiPart, move: Callable[[str], str]) -> None:
        self._part = part
        self._move = move

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        own = web.UrlDispatcher()
        self._part.add_routes(own, pipeline)
        for route in own.routes():
            assert route.resource is not None, "all have a path"
            router.add_route(route.method, self._move(route.resource.canonical), route.handler)


def below(root: str, path: str) -> str:
    """Groq, and Azure's newer form; and Mistral and Together, which have places of their own here."""
    return f"{root}{path}"


def at_deployments(path: str) -> str:
    """Azure's older form: the deployment is in the path of a call."""
    middle = "/deployments/{deployment}" if path in DEPLOYED else ""
    return f"/openai{middle}{path.removeprefix('/v1')}"


class OpenAiApi(ImitatedApi):
    """OpenAI's own paths, and the same elsewhere."""

    def make_parts(self, state: ProviderState) -> Iterable[ApiPart]:
        self._responses = OpenAiResponses(state)
        completions, files = PracticeCompletions(state), OpenAiFiles(state, self.folder)
        shared = (self._responses, completions, files, PracticeBatches(files, self.queue))
        yield from (OpenAiCalls(completions, self._responses), *shared)
        for move in (partial(below, "/openai"), at_deployments):
            for part in (PresetCalls(completions, self._responses), *shared):
                yield MovedPart(part, move)

    async def stop(self) -> None:
        self._responses.stop()
        await super().stop()


class BareLinesCheck(BatchFileCheck):
    """A line is a custom_id and a body; the batch has the path, and may have the model."""

    fields = ("custom_id", "body")

    def check_url(self, value: dict[str, Any]) -> None:
        """Such a line has no url."""


# Mistral


class MistralFormat(OpenAiFormat):
    def error_reply(self, error: ProviderError) -> PracticeReply:
        """An error of a field has status 422, and names the field."""
        if not isinstance(error, OpenAiError) or error.status != 400 or error.param is None:
            message = {"object": "error", "message": error.message, "type": "error", "param": None, "code": None}
            reply = json_reply(message, error.status)
            return reply._replace(headers={**reply.headers, **error.headers})
        detail = {"type": "value_error", "loc": ["body", error.param], "msg": error.message, "input": None}
        return json_reply({"detail": [detail]}, 422)


MISTRAL: Final = MistralFormat()


class MistralApi(ImitatedApi):
    def make_parts(self, state: ProviderState) -> Iterable[ApiPart]:
        files = MistralFiles(state, self.folder)
        calls = MistralCalls(PracticeCompletions(state), OpenAiResponses(state))
        for part in (calls, files, MistralJobs(files, self.queue)):
            yield MovedPart(part, partial(below, MISTRAL_ROOT))


class MistralCalls(PresetCalls):
    format = MISTRAL
    endpoints = (CHAT, EMBEDDINGS)

    def generate(self, call: PaidCall, stamp: ReplyStamp) -> GeneratedReply:
        made = super().generate(call, stamp)
        if call.url != EMBEDDINGS:
            return made
        return made._replace(text=f'{{"id":"embd-{stamp.mark}",{made.text[1:]}')

    async def list_models(self, request: web.Request) -> PracticeReply:
        listed = json.loads((await list_models(request)).body)
        return json_reply({**listed, "data": [model_card(each) for each in listed["data"]]})

    async def show_model(self, request: web.Request) -> PracticeReply:
        return json_reply(model_card(json.loads((await show_model(request)).body)))


def model_card(model: dict[str, Any]) -> dict[str, Any]:
    able = {"completion_chat": True, "function_calling": False, "completion_fim": False, "vision": False}
    return {**model, "type": "base", "capabilities": {**able, "fine_tuning": False, "classification": False}}


class MistralFiles(OpenAiFiles):
    format = MISTRAL

    async def list_(self, request: web.Request) -> PracticeReply:
        purpose = request.query.get("purpose")
        chosen = [file for file in self.all() if purpose is None or file.purpose == purpose]
        return list_numbered(request, [self._dump(file) for file in reversed(chosen)])

    def _dump(self, file: OpenAiFile) -> dict[str, Any]:
        shown = {name: getattr(file, name) for name in ("id", "bytes", "created_at", "filename")}
        purpose, sample = "batch", _SAMPLES.get(file.purpose, "instruct")
        more = {"num_lines": None, "mimetype": "application/jsonl", "signature": None, "deleted": False}
        return {**shown, "object": "file", "purpose": purpose, "sample_type": sample, "source": "upload", **more}


class MistralJobs(PracticeBatches):
    path = "/v1/batch/jobs"
    format = MISTRAL

    async def create(self, request: web.Request) -> PracticeReply:
        asked = read_object(await request.read())
        files, hours, metadata = asked.get("input_files"), asked.get("timeout_hours", 24), asked.get("metadata")
        if asked.get("endpoint") not in ENDPOINTS:
            raise OpenAiError(400, "Input should be one of the endpoints.", param="endpoint")
        if not isinstance(files, list) or len(files) != 1 or self._files.find(str(files[0])) is None:
            raise OpenAiError(400, "Input should be a list with the id of one file.", param="input_files")
        if not isinstance(hours, int) or not 1 <= hours <= TIMEOUT_HOURS_MAX:
            raise OpenAiError(400, f"Input should be 1 to {TIMEOUT_HOURS_MAX}.", param="timeout_hours")
        if not all(isinstance(value, str) for value in (metadata or {}).values()):
            raise OpenAiError(400, "Input should be a valid string.", param="metadata")
        job = MistralJob({**asked, "input_file_id": files[0]}, self._files, self._queue)
        return json_reply(self._start(job).dump())

    async def list_(self, request: web.Request) -> PracticeReply:
        """Some of the jobs: of a model, in one of these statuses, or created after a moment."""
        jobs, asked = [job.dump() for job in self._batches.values()], request.query
        after = datetime.fromisoformat(asked["created_after"]).timestamp() if "created_after" in asked else 0
        wanted = asked.getall("status", None) or list(_MISTRAL_STATUSES.values())
        chosen = [
            job
            for job in jobs
            if job["status"] in wanted
            and job["created_at"] >= after
            and asked.get("model", job["model"]) == job["model"]
        ]
        newest_first = asked.get("order_by", "-created") == "-created"
        return list_numbered(request, chosen[::-1] if newest_first else chosen)

    async def cancel(self, request: web.Request) -> PracticeReply:
        return stop_if_running(self._find(request))


def stop_if_running(batch: PracticeBatch) -> PracticeReply:
    if batch.phase in _STOPPABLE:
        batch.cancel()
    return json_reply(batch.dump())


def list_numbered(request: web.Request, entries: Sequence[dict[str, Any]]) -> PracticeReply:
    """One of the pages, which are numbered from 0."""
    number, size = (int(request.query.get(name, usual)) for name, usual in (("page", "0"), ("page_size", "100")))
    size = min(size, PAGE_ENTRIES_MAX)
    page = entries[number * size : (number + 1) * size]
    return json_reply({"object": "list", "data": list(page), "total": len(entries)})


class MistralJob(PracticeBatch):
    check = BareLinesCheck

    def read_call(self, line: QueuedLine) -> PaidCall:
        model = self._asked.get("model")
        return super().read_call(line if model is None else line._replace(body={"model": model, **line.body}))

    def dump(self) -> dict[str, Any]:
        said = super().dump()
        errors = [{"message": each["message"], "count": 1} for each in (said["errors"] or {"data": []})["data"]]
        kept = {name: said[name] for name in ("id", "endpoint", "model", "created_at", "metadata")}
        return {
            **kept,
            "object": "batch",
            "input_files": [said["input_file_id"]],
            "agent_id": None,
            "output_file": said["output_file_id"],
            "error_file": said["error_file_id"],
            "errors": errors,
            "status": _MISTRAL_STATUSES[self.phase],
            "started_at": said["in_progress_at"],
            "completed_at": said["completed_at"],
            "total_requests": self.total,
            "completed_requests": self.completed + self.failed,
            "succeeded_requests": self.completed,
            "failed_requests": self.failed,
        }


# Together


class TogetherApi(ImitatedApi):
    def make_parts(self, state: ProviderState) -> Iterable[ApiPart]:
        files = TogetherFiles(state, self.folder)
        calls = TogetherCalls(PracticeCompletions(state), OpenAiResponses(state))
        for part in (calls, files, TogetherBatchRoutes(files, self.queue)):
            yield MovedPart(part, partial(below, TOGETHER_ROOT))


class TogetherCalls(PresetCalls):
    endpoints = (CHAT,)

    def generate(self, call: PaidCall, stamp: ReplyStamp) -> GeneratedReply:
        made = super().generate(call, stamp)
        return made._replace(text=f'{{"prompt":[],{made.text[1:]}')


class TogetherFiles(OpenAiFiles):
    def __init__(self, state: ProviderState, folder: ScratchFolder) -> None:
        super().__init__(state, folder)
        self._by_checksum: dict[str, str] = {}
        self._stored: set[str] = set()

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        super().add_routes(router, pipeline)
        router.add_route("POST", "/v1/files/{id}/preprocess", pipeline.unpaid_route(OPENAI, self.preprocess))
        router.add_route("PUT", STORE, self.store)

    async def upload(self, request: web.Request) -> PracticeReply:
        """Only returns the URL for the upload of the bytes."""
        fields = await request.post()
        for name in ("purpose", "file_name", "file_type", "checksum"):
            if not isinstance(fields.get(name), str):
                raise missing_parameter(name)
        if (known := self._by_checksum.get(str(fields["checksum"]))) is not None:
            return json_reply({"file_id": known}, 409)
        path = self.new_path()
        path.touch()
        file = self.add(path, str(fields["file_name"]), str(fields["purpose"]), None)
        self._by_checksum[str(fields["checksum"])] = file.id
        place = request.url.origin().with_path(f"{TOGETHER_ROOT}{STORE.format(id=file.id)}")
        return PracticeReply(302, b"", {"Location": str(place), "X-Together-File-Id": file.id})

    async def store(self, request: web.Request) -> web.Response:
        file = self._find(request)
        size = file.path.write_bytes(await request.read())
        self._files[file.id] = replace(file, bytes=size)
        self._stored.add(file.id)
        return web.Response()

    async def preprocess(self, request: web.Request) -> PracticeReply:
        file = self._find(request)
        if file.id not in self._stored:
            raise OpenAiError(400, "The file was not uploaded.")
        return json_reply(self._dump(file))

    async def list_(self, request: web.Request) -> PracticeReply:
        return json_reply({"data": [self._dump(file) for file in self.all()]})

    def _dump(self, file: OpenAiFile) -> dict[str, Any]:
        shown = {name: getattr(file, name) for name in ("id", "bytes", "created_at", "filename")}
        more = {"object": "file", "purpose": TOGETHER_PURPOSE, "FileType": "jsonl", "processing_status": "COMPLETED"}
        return {**shown, **more}


class TogetherBatchRoutes(PracticeBatches):
    async def create(self, request: web.Request) -> PracticeReply:
        asked = read_object(await request.read())
        for name in ("input_file_id", "endpoint"):
            if not isinstance(asked.get(name), str):
                raise missing_parameter(name)
        if asked["endpoint"] not in ENDPOINTS or self._files.find(asked["input_file_id"]) is None:
            raise OpenAiError(400, "The endpoint or the file does not exist.")
        batch = TogetherBatch({**asked, "metadata": None}, self._files, self._queue)
        return json_reply({"job": self._start(batch).dump()})

    async def list_(self, request: web.Request) -> PracticeReply:
        return json_reply([batch.dump() for batch in reversed(self._batches.values())])

    async def cancel(self, request: web.Request) -> PracticeReply:
        return stop_if_running(self._find(request))


class TogetherBatch(PracticeBatch):
    check = BareLinesCheck

    def dump(self) -> dict[str, Any]:
        said = super().dump()
        kept = {name: said[name] for name in ("id", "endpoint", "input_file_id", "output_file_id", "error_file_id")}
        mistakes = (said["errors"] or {"data": []})["data"]
        done = self.completed + self.failed
        return {
            **kept,
            "status": _TOGETHER_STATUSES[self.phase],
            "model_id": said["model"],
            "error": mistakes[0]["message"] if mistakes else None,
            "progress": 100.0 * done / self.total if self.total else 0.0,
            "file_size_bytes": None,
            "created_at": _moment(said["created_at"]),
            "completed_at": _moment(said["completed_at"]),
            "job_deadline": _moment(said["expires_at"]),
            "user_id": "practice",
        }


def _moment(seconds: int | None) -> str | None:
    return None if seconds is None else moment(seconds * 1000)


APIS: Final = (OpenAiApi, MistralApi, TogetherApi)
