"""Gemini's files and batches: clients upload files in pieces, batches read and write them; and its API as a whole."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from backstay.practice.batch_jobs import (
    UNREADABLE,
    ApiPart,
    BatchInput,
    BatchJob,
    BatchPhase,
    BatchQueue,
    ImitatedApi,
    LineFile,
    QueuedLine,
    ScratchFolder,
    SkipReason,
)
from backstay.practice.faults import NOT_DONE, AnyFault, BodyFault, requested_fault
from backstay.practice.gemini import (
    MODEL,
    VERSIONS,
    GeminiCalls,
    GeminiFile,
    GeminiFormat,
    UploadFormat,
    add_route,
    error_body,
    generate_answer,
    invalid,
    list_page,
    plain,
    read_call,
    read_object,
)
from backstay.practice.pipeline import PaidCall, Pipeline, ProviderState
from backstay.practice.replies import (
    EMPTY_REPLY,
    GeneratedReply,
    PracticeReply,
    ProviderError,
    ReplyStamp,
    count_tokens,
    json_reply,
    moment,
)

FILE: Final = "/files/{id:[^/:]+}"
ID_CHARACTERS_MAX: Final = 40
RESULT_ID_CHARACTERS: Final = 36
_FILE_NAME: Final = re.compile(r"files/[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")


class GeminiFiles:
    def __init__(self, form: GeminiFormat, state: ProviderState, folder: ScratchFolder) -> None:
        self._form = form
        self._state = state
        self._folder = folder
        self._files: dict[str, GeminiFile] = {}
        self._uploads: dict[str, GeminiFile] = {}

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        start = pipeline.unpaid_route(self._form, self.start_upload)
        piece = pipeline.unpaid_route(UploadFormat(self._state), self.take_piece)

        async def upload(request: web.Request) -> web.StreamResponse:
            return await (piece if "upload_id" in request.query else start)(request)

        for version in VERSIONS:
            router.add_route("POST", f"/upload/{version}/files", upload)
            download = pipeline.unpaid_route(self._form, self.download)
            router.add_route("GET", f"/download/{version}{FILE}:download", download)
        for method, path, work in (
            ("GET", "/files", self.list_),
            ("GET", FILE, self.show),
            ("DELETE", FILE, self.remove),
            ("GET", f"{FILE}:download", self.download),
        ):
            add_route(router, method, path, pipeline.unpaid_route(self._form, work))

    async def start_upload(self, request: web.Request) -> PracticeReply:
        if request.headers.get("X-Goog-Upload-Command") != "start":
            raise invalid("An upload begins with X-Goog-Upload-Command: start.")
        asked = plain(plain(read_object(await request.read() or b"{}")).get("file"))
        mark = self._state.mark()
        name = asked.get("name") or f"files/{mark}"
        if not isinstance(name, str) or not _FILE_NAME.fullmatch(name):
            raise invalid(
                "* CreateFileRequest.file.name: must be files/ and up to 40 lower-case letters, digits, dashes"
            )
        if name in self._files:
            raise ProviderError(409, f"Requested entity already exists: {name}.")
        size = request.headers.get("X-Goog-Upload-Header-Content-Length", "")
        kind = request.headers.get("X-Goog-Upload-Header-Content-Type") or asked.get("mimetype") or ""
        file = GeminiFile(name, self.new_path(), self._state.clock.now_ms(), asked.get("displayname"))
        file.mime_type, file.size = str(kind), int(size) if size.isdecimal() else -1
        file.path.touch()
        self._uploads[mark] = file
        place = request.url.origin().with_path(request.path).with_query(upload_id=mark, upload_protocol="resumable")
        return PracticeReply(200, b"", {"X-Goog-Upload-URL": str(place), "X-Goog-Upload-Status": "active"})

    async def take_piece(self, request: web.Request) -> PracticeReply:
        mark = request.query["upload_id"]
        if (file := self._uploads.get(mark)) is None:
            raise ProviderError(404, "The upload is not known.")
        commands = [each.strip() for each in request.headers.get("X-Goog-Upload-Command", "").split(",")]
        if request.headers.get("X-Goog-Upload-Offset") != str(file.path.stat().st_size):
            raise invalid("X-Goog-Upload-Offset is not where the last piece ended.")
        with file.path.open("ab") as open_file:
            open_file.write(await request.read())
        if "finalize" not in commands:
            return PracticeReply(200, b"", {"X-Goog-Upload-Status": "active"})
        if file.size not in (-1, file.path.stat().st_size):
            raise invalid("The upload has another length than it was to have.")
        del self._uploads[mark]
        self._files[file.name] = file
        reply = json_reply({"file": file.dump(request)})
        return reply._replace(headers={**reply.headers, "X-Goog-Upload-Status": "final"})

    def new_path(self) -> Path:
        return self._folder.new_path()

    def add_result(self, path: Path) -> str:
        file_id = f"batch-{self._state.mark():x>{RESULT_ID_CHARACTERS}}"
        file = GeminiFile(f"files/{file_id}", path, self._state.clock.now_ms(), generated=True)
        self._files[file.name] = file
        return file.name

    def find(self, name: object) -> GeminiFile | None:
        return self._files.get(name) if isinstance(name, str) else None

    async def list_(self, request: web.Request) -> PracticeReply:
        return list_page([file.dump(request) for file in reversed(self._files.values())], "files", request.query)

    async def show(self, request: web.Request) -> PracticeReply:
        if len(request.match_info["id"]) > ID_CHARACTERS_MAX:
            raise invalid("* GetFileRequest.name: cannot be more than 40 characters")
        return json_reply(self._find(request).dump(request))

    async def remove(self, request: web.Request) -> PracticeReply:
        del self._files[self._find(request).name]
        return json_reply({})

    async def download(self, request: web.Request) -> PracticeReply:
        file = self._find(request)
        if not file.generated:
            raise invalid("Only generated files can be downloaded.")
        return PracticeReply(200, file.path.read_bytes(), {"Content-Type": file.mime_type})

    def _find(self, request: web.Request) -> GeminiFile:
        """A file that does not exist is one that the key may not see."""
        name = f"files/{request.match_info['id']}"
        if (file := self._files.get(name)) is None:
            raise ProviderError(403, f"You do not have permission to access {name} or it may not exist.")
        return file


BATCH: Final = "/batches/{id:[^/:]+}"
INLINE_BYTES_MAX: Final = 20 << 20
_OUTPUT_TYPE: Final = "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatchOutput"
_BATCH_TYPE: Final = "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch"
_STATES: Final = {
    BatchPhase.VALIDATING: "PENDING",
    BatchPhase.IN_PROGRESS: "RUNNING",
    BatchPhase.FINALIZING: "RUNNING",
    BatchPhase.CANCELLING: "RUNNING",
    BatchPhase.COMPLETED: "SUCCEEDED",
    BatchPhase.FAILED: "FAILED",
    BatchPhase.CANCELLED: "CANCELLED",
    BatchPhase.EXPIRED: "EXPIRED",
}
_ENDED: Final = (BatchPhase.COMPLETED, BatchPhase.FAILED, BatchPhase.CANCELLED, BatchPhase.EXPIRED)


class PracticeGeminiBatches:
    def __init__(self, form: GeminiFormat, files: GeminiFiles, queue: BatchQueue) -> None:
        self._form = form
        self._files = files
        self._queue = queue
        self._batches: dict[str, PracticeGeminiBatch] = {}

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        for method, path, work in (
            ("GET", "/batches", self.list_),
            ("GET", BATCH, self.show),
            ("DELETE", BATCH, self.remove),
            ("POST", f"{BATCH}:cancel", self.cancel),
        ):
            add_route(router, method, path, pipeline.unpaid_route(self._form, work))

        async def create_with_fault(request: web.Request) -> tuple[PracticeReply, AnyFault | None]:
            """The model may ask for a fault of the creation, too."""
            asked = requested_fault(None, request.match_info["model"])
            chosen = pipeline.choose_fault(request, request.path, asked)
            await pipeline.delay_or_refuse(chosen)
            return EMPTY_REPLY if chosen.fault in NOT_DONE else await self.create(request), chosen.fault

        route = pipeline.route(self._form, create_with_fault)
        add_route(router, "POST", f"{MODEL}:batchGenerateContent", route)

    async def create(self, request: web.Request) -> PracticeReply:
        raw = await request.read()
        asked = plain(plain(read_object(raw)).get("batch"))
        given = plain(asked.get("inputconfig"))
        name, inline = given.get("filename"), plain(given.get("requests")).get("requests")
        if not isinstance(asked.get("displayname"), str):
            raise invalid("* BatchGenerateContentRequest.batch.display_name: is required")
        if name is not None and self._files.find(name) is None:
            raise ProviderError(403, f"You do not have permission to access {name} or it may not exist.")
        if name is None and (not isinstance(inline, list) or not inline or len(raw) > INLINE_BYTES_MAX):
            raise invalid("* BatchGenerateContentRequest.batch.input_config: needs a file, or requests of up to 20 MB")
        made = (request.match_info["model"], asked["displayname"], name, inline)
        batch = PracticeGeminiBatch(*made, self._files, self._files.new_path(), self._queue)
        self._batches[batch.id] = batch
        self._queue.start(batch)
        return json_reply(batch.dump())

    async def list_(self, request: web.Request) -> PracticeReply:
        shown = [batch for batch in reversed(self._batches.values()) if self._queue.is_visible(batch.created_ms)]
        return list_page([batch.dump() for batch in shown], "operations", request.query)

    async def show(self, request: web.Request) -> PracticeReply:
        return json_reply(self._find(request).dump())

    async def cancel(self, request: web.Request) -> PracticeReply:
        batch = self._find(request)
        if batch.phase not in _ENDED:
            batch.cancel()
        return json_reply({})

    async def remove(self, request: web.Request) -> PracticeReply:
        del self._batches[self._find(request).id]
        return json_reply({})

    def _find(self, request: web.Request) -> "PracticeGeminiBatch":
        name = f"batches/{request.match_info['id']}"
        batch = self._batches.get(name)
        if batch is None or not self._queue.is_visible(batch.created_ms):
            raise ProviderError(404, f"Requested entity was not found: {name}.")
        return batch


class PracticeGeminiBatch(BatchJob):
    """A batch of one model, from a file or from requests in its creation. One that expires has no results."""

    def __init__(
        self,
        model: str,
        display_name: str,
        file_name: str | None,
        inline: list[Any] | None,
        files: GeminiFiles,
        path: Path,
        queue: BatchQueue,
    ) -> None:
        name = f"batches/{queue.state.mark():x>{RESULT_ID_CHARACTERS}}"
        super().__init__(name, display_name, queue)
        self.model = model
        self.created_ms = self._state.clock.now_ms()
        self._display_name = display_name
        self._file_name = file_name
        self._inline = inline
        self._files = files
        self._results = LineFile(path)
        self._output: dict[str, Any] | None = None
        self._error: dict[str, Any] | None = None

    def dump(self) -> dict[str, Any]:
        counts = {"requestCount": self.total, "successfulRequestCount": self.completed}
        counts |= {"failedRequestCount": self.failed, "pendingRequestCount": self.total - self.completed - self.failed}
        ended = self.phase in _ENDED
        error = {BatchPhase.CANCELLED: (1, "cancelled"), BatchPhase.EXPIRED: (4, "expired")}.get(self.phase)
        output = {"output": self._output} if ended and self._output else {}
        metadata = {
            "@type": _BATCH_TYPE,
            "model": f"models/{self.model}",
            "displayName": self._display_name,
            **({} if self._file_name is None else {"inputConfig": {"fileName": self._file_name}}),
            **output,
            "createTime": moment(self.created_ms),
            "updateTime": moment(self._state.clock.now_ms()),
            "batchStats": {name: str(count) for name, count in counts.items() if count},
            "state": f"BATCH_STATE_{_STATES[self.phase]}",
            "name": self.id,
        }
        shown: dict[str, Any] = {"name": self.id, "metadata": metadata}
        if ended:
            shown["done"] = True
        if ended and (self._error or error):
            code, words = error or (0, "")
            shown["error"] = self._error or {"code": code, "message": f"The batch was {words} (practice)."}
        elif ended:
            shown["response"] = {"@type": _OUTPUT_TYPE, **(self._output or {})}
        return shown

    async def check_input(self) -> BatchInput | None:
        """The content of a request is checked when it is run: a wrong one is an error of its own."""
        total = tokens = 0
        try:
            for line in self._lines():
                total, tokens = total + 1, tokens + count_tokens(json.dumps(line.body))
        except ProviderError as error:
            self._error = {"code": 3, "message": error.message}
            return None
        if not total:
            self._error = {"code": 3, "message": "The batch has no requests."}
            return None
        return BatchInput(total, self.model, tokens, self._lines())

    def _lines(self) -> Iterator[QueuedLine]:
        if self._inline is not None:
            for number, each in enumerate(self._inline):
                key = plain(plain(each).get("metadata")).get("key", str(number))
                yield QueuedLine(str(key), plain(each).get("request") or {})
            return
        file = self._files.find(self._file_name)
        if file is None:
            raise invalid(f"The file {self._file_name} does not exist any more.")
        with file.path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError):
                    value = None
                if not isinstance(value, dict) or not isinstance(value.get("request"), dict):
                    raise invalid(f"Line {number} of the file is not a request.")
                yield QueuedLine(str(value.get("key", number)), value["request"])

    def refuse_tokens(self, model: str | None, limit: int) -> None:
        message = f"Too many tokens of {model} wait in batches (practice). The limit is {limit:,}."
        self._error = {"code": 8, "message": message}

    def read_call(self, line: QueuedLine) -> PaidCall:
        return read_call(str(self.model), line.body)

    def generate(self, call: PaidCall, stamp: ReplyStamp) -> GeneratedReply:
        made = generate_answer(call.body, stamp)
        return made._replace(text=UNREADABLE) if stamp.fault in tuple(BodyFault) else made

    def write_answer(self, line: QueuedLine, made: GeneratedReply) -> None:
        self._results.append(UNREADABLE if made.text == UNREADABLE else self._result(line, f'"response":{made.text}'))

    def write_error(self, line: QueuedLine, error: ProviderError) -> None:
        said = error_body(error)["error"]
        self._results.append(
            self._result(line, f'"error":{json.dumps({name: said[name] for name in ("code", "message")})}')
        )

    def write_skipped(self, line: QueuedLine, reason: SkipReason) -> None:
        """Requests that were not run are not in the results, and do not count as failed."""
        self.failed -= 1

    def publish_results(self) -> None:
        self.close_results()
        if not self._results.path.exists() or (self.phase is BatchPhase.FINALIZING and self._expires()):
            return
        if self._inline is None:
            self._output = {"responsesFile": self._files.add_result(self._results.path)}
            return
        lines = [json.loads(line) for line in self._results.path.read_text().splitlines() if line != UNREADABLE]
        self._output = {"inlinedResponses": {"inlinedResponses": lines}}

    def _expires(self) -> bool:
        return self.completed + self.failed < self.total

    def close_results(self) -> None:
        self._results.close()

    def _result(self, line: QueuedLine, said: str) -> str:
        """The key of a request that was in the creation comes back in its metadata."""
        key = f'"key":{json.dumps(line.custom_id)}'
        return f"{{{key},{said}}}" if self._inline is None else f'{{"metadata":{{{key}}},{said}}}'


class GeminiApi(ImitatedApi):
    by_header = True  # some of its paths are OpenAI's as well

    def make_parts(self, state: ProviderState) -> Iterable[ApiPart]:
        form = GeminiFormat()
        files = GeminiFiles(form, state, self.folder)
        return GeminiCalls(form), files, PracticeGeminiBatches(form, files, self.queue)


APIS: Final = (GeminiApi,)
