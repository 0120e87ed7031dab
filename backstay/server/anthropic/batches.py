"""/messages/batches: create, show, list, cancel, delete, and the results, as Anthropic's clients know them."""

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from backstay.clock import new_id
from backstay.core.errors import DatabaseUnreachable, FilesUnreachable, NotFound
from backstay.core.states import BatchStatus
from backstay.llm.formats import InputOptions, ParsedRequest
from backstay.llm.lines import Member, members, text_of
from backstay.run.result_file import CANCELLED
from backstay.run.submission import Scales
from backstay.server.anthropic.intake import MessageIntake
from backstay.server.auth import Reader, Writer
from backstay.server.idempotency import REPLAYED, EffectId
from backstay.server.openai.batches import REPLAY_MS, is_sent_again
from backstay.server.openai.shapes import BATCH_EXPIRED, BUDGET_EXCEEDED, content
from backstay.server.openai.survey import LineCutter, entries_of
from backstay.server.openai.upstream import MESSAGES, MESSAGES_API, handlers_of, is_message_batch, scales_of
from backstay.server.problems import ANTHROPIC_TYPES, MESSAGES_PATH, Problem
from backstay.server.request_limits import body_chunks
from backstay.server.service import Service, Serving, drop_blobs, remove_job, root_of, stop_job
from backstay.server.uploads import deposit, keep
from backstay.store.batches import Batch, NewBatch, batch_not_found
from backstay.store.files import NewFile, StoredFile

ENDED: Final = (BatchStatus.COMPLETED, BatchStatus.FAILED, BatchStatus.EXPIRED, BatchStatus.CANCELLED)
_ENDS: Final = ("completed_at", "failed_at", "expired_at", "cancelled_at")
_KNOWN: Final = frozenset(ANTHROPIC_TYPES.values()) - {"conflict_error", "request_too_large"}


async def message_batch(service: Service, request: Request, batch: Batch) -> dict[str, Any]:
    ended = batch.status in ENDED
    canceling = batch.status is BatchStatus.CANCELLING
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": "ended" if ended else "canceling" if canceling else "in_progress",
        "request_counts": await _counts(service, batch),
        "created_at": _time(batch.created_at),
        "expires_at": _time(batch.expires_at),
        "ended_at": _time(_ended_at(batch)) if ended else None,
        "cancel_initiated_at": None if batch.cancelling_at is None else _time(batch.cancelling_at),
        "archived_at": None,
        "results_url": f"{_base_url(service, request)}{MESSAGES_PATH}/batches/{batch.id}/results" if ended else None,
    }


def page_of(objects: list[dict[str, Any]], has_more: bool) -> dict[str, Any]:
    return {
        "data": objects,
        "has_more": has_more,
        "first_id": objects[0]["id"] if objects else None,
        "last_id": objects[-1]["id"] if objects else None,
    }


async def _counts(service: Service, batch: Batch) -> dict[str, int]:
    """As long as the batch runs, all its requests count as being processed; the sum is always the same."""
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    if batch.status not in ENDED:
        return {**counts, "processing": batch.requests}
    if batch.status is BatchStatus.FAILED:
        return {**counts, "errored": batch.requests}
    failed, cancelled = batch.failed or 0, batch.cancelled or 0
    expired = await service.store.batches.count_expired(batch.job_id) if batch.job_id is not None and failed else 0
    unsent = max(batch.requests - (batch.total or 0), 0)
    in_time = _ended_at(batch) < batch.expires_at
    out_of_money = batch.status is BatchStatus.COMPLETED  # then the cancelled items were stopped by the budget
    return {
        **counts,
        "succeeded": batch.succeeded or 0,
        "errored": failed - expired + (cancelled if out_of_money else 0),
        "canceled": (0 if out_of_money else cancelled) + (unsent if in_time else 0),
        "expired": expired + (0 if in_time else unsent),
    }


def _ended_at(batch: Batch) -> int:
    return next((at for name in _ENDS if (at := getattr(batch, name)) is not None), batch.created_at)


def _time(moment: int) -> str:
    return datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _base_url(service: Service, request: Request) -> str:
    """The address that the client itself used: it sends its key there. A proxy may have ended the encryption."""
    host = request.headers.get("host", "")
    public = urlsplit(service.backstay.settings.public_url or "")
    scheme = public.scheme if public.netloc == host else request.url.scheme
    return f"{scheme}://{host}{root_of(request)}"


async def result_stream(service: Service, batch: Batch, files: list[StoredFile]) -> AsyncIterator[bytes]:
    """Every request once, with its result."""
    if batch.status is BatchStatus.FAILED:
        words = "; ".join(str(error["message"]) for error in json.loads(batch.errors or "[]")[:3])
        begun = "The batch failed while it was being sent; some requests may have been processed."
        said = "The batch was not sent." if batch.in_progress_at is None else begun
        failed = _error_result("invalid_request_error", f"{said} {words}")
        async for _, entry in entries_of(service, batch, InputOptions()):
            if isinstance(entry, ParsedRequest):
                yield _line(json.dumps(entry.custom_id), failed)
    for file in files:
        lines = LineCutter()
        async for piece in content(service, file):
            if found := b"".join(map(result_line, lines.feed(piece))):
                yield found


def result_line(line: bytes) -> bytes:
    """A line of the Batch output format in Anthropic's."""
    text = text_of(line)
    named = {member.key: member for member in members(text)}
    return _line(_slice(text, named["custom_id"]), _result(text, named))


def _result(text: str, named: dict[str, Member]) -> str:
    response, error = named["response"], named["error"].value
    if error is not None:
        return _result_of_code(error["code"], error["message"])
    answer = _slice(text, response)
    body = next((member for member in members(answer) if member.key == "body"), None)
    status = int(response.value["status_code"])
    if status < 400 and body is not None:
        return f'{{"type":"succeeded","message":{_slice(answer, body)}}}'
    said: dict[str, Any] = body.value if body is not None and isinstance(body.value, dict) else {}
    inner = said.get("error")
    if isinstance(inner, dict) and inner.get("type") in _KNOWN and isinstance(inner.get("message"), str):
        return _error_result(inner["type"], inner["message"], said.get("request_id"))
    kind = ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return _error_result(kind if kind in _KNOWN else "invalid_request_error", f"the provider answered {status}")


def _result_of_code(code: str, message: str) -> str:
    if code == CANCELLED:
        return '{"type":"canceled"}'
    if code == BATCH_EXPIRED:
        return '{"type":"expired"}'
    return _error_result("billing_error" if code == BUDGET_EXCEEDED else "api_error", f"{message} ({code})")


def _error_result(kind: str, message: str, request_id: object = None) -> str:
    named = request_id if isinstance(request_id, str) else None
    error = {"type": "error", "error": {"type": kind, "message": message}, "request_id": named}
    return json.dumps({"type": "errored", "error": error})


def _line(custom_id: str, result: str) -> bytes:
    return f'{{"custom_id":{custom_id},"result":{result}}}\n'.encode("utf-8", "backslashreplace")


def _slice(text: str, member: Member) -> str:
    return text[member.start : member.end]


router = APIRouter(tags=["Anthropic message batches"])

BATCH_BYTES_MAX: Final = 256 << 20
LIST_MAX: Final = 1_000
WINDOW_SECONDS: Final = 86_400
WINDOW: Final = "24h"
JSONL: Final = "application/x-jsonl"
_SCHEMA: Final = {
    "type": "object",
    "required": ["requests"],
    "properties": {
        "requests": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["custom_id", "params"],
                "properties": {
                    "custom_id": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
                    "params": {"type": "object"},
                },
            },
        }
    },
}
_BODY: Final = {"requestBody": {"content": {"application/json": {"schema": _SCHEMA}}}}
BatchCursor = Annotated[str | None, Query(max_length=100)]


@router.post("/messages/batches", openapi_extra=_BODY)
async def create(request: Request, service: Serving, who: Writer, effect: EffectId) -> Response:
    """Checks and stores all requests, and answers at once."""
    scales = _scales(service)
    bytes_max = min(service.backstay.settings.upload_max_bytes, BATCH_BYTES_MAX)
    intake = MessageIntake(scales if service.options.budget_micros is not None else None)
    place, blob = deposit(service, who.owner), f"files/{new_id()}"
    try:
        chunks = body_chunks(request, bytes_max, "split it into several batches")
        size = await place.put(blob, intake.lines(chunks))
    except BaseException as error:
        with suppress(FilesUnreachable, DatabaseUnreachable):  # the first error is the better answer
            await place.delete(blob)
        if isinstance(error, Problem):
            error.lingers = not intake.ended
        raise
    digest = json.dumps({"requests_sha256": intake.digest()})
    if service.options.replays and is_sent_again(request):
        same = await service.store.batches.same_messages(who.owner, digest, REPLAY_MS)
        if same is not None:
            await place.delete(blob)
            return JSONResponse(await _show_batch(service, request, same, who.owner), headers=REPLAYED)
    made = await _store(
        service,
        intake,
        NewFile(
            id=f"file-{effect}",
            owner=who.owner,
            filename=f"msgbatch_{effect}.jsonl",
            purpose="batch",
            bytes=size,
            lives_ms=int(service.backstay.settings.file_days * 86_400_000),
            blob=blob,
            survey=intake.survey(),
        ),
        f"msgbatch_{effect}",
        digest,
    )
    return JSONResponse(await _show_batch(service, request, made, who.owner))


def _scales(service: Service) -> Scales:
    """The scales of Anthropic's requests; without that provider the batch is refused."""
    there = [] if service.options.upstream is None else sorted(handlers_of(service.options))
    if MESSAGES_API not in there:
        listed = ", ".join(there) or "none"
        hint = f"the service must be started with --provider {MESSAGES_API}"
        detail = f"this service has no provider {MESSAGES_API} to send message batches to; it has: {listed}"
        raise Problem(400, detail, hint=hint, lingers=True)
    return scales_of(service.options)[MESSAGES_API]


async def _store(service: Service, intake: MessageIntake, file: NewFile, batch_id: str, digest: str) -> str:
    """The file first: a batch never lacks its requests."""
    await keep(service, file)
    seconds = min(WINDOW_SECONDS, service.backstay.limits.llm_job_timeout_seconds)
    new = NewBatch(batch_id, file.owner, MESSAGES, file.id, WINDOW, int(seconds * 1000), digest, None)
    made, is_new = await service.store.batches.create(new, None)
    if is_new:
        await service.store.batches.begin(made, intake.requests, intake.model)
        service.wake_mover()
    return made


@router.get("/messages/batches")
async def list_batches(
    request: Request,
    service: Serving,
    who: Reader,
    after_id: BatchCursor = None,
    before_id: BatchCursor = None,
    limit: Annotated[int, Query(ge=1, le=LIST_MAX)] = 20,
) -> Response:
    """Newest first: those before or after one, or the newest."""
    if after_id is not None and before_id is not None:
        raise Problem(400, "after_id and before_id cannot be given together")
    newer = before_id is not None
    found = await service.store.batches.messages(who.owner, before_id if newer else after_id, newer, limit + 1)
    shown = [await message_batch(service, request, batch) for batch in found[:limit]]
    return JSONResponse(page_of(shown[::-1] if newer else shown, len(found) > limit))


@router.get("/messages/batches/{message_batch_id}")
async def show(request: Request, message_batch_id: str, service: Serving, who: Reader) -> Response:
    return JSONResponse(await _show_batch(service, request, message_batch_id, who.owner))


@router.post("/messages/batches/{message_batch_id}/cancel")
async def cancel(request: Request, message_batch_id: str, service: Serving, who: Writer) -> Response:
    """Finished results are kept; requests under way may still be answered."""
    batch = await _find_batch(service, message_batch_id, who.owner)
    if batch.status in ENDED:
        raise Problem(400, f"the batch {batch.id} has ended and cannot be canceled")
    if await service.store.batches.cancel(batch.id, who.owner):
        if batch.job_id is not None:
            await stop_job(service, batch.job_id, who.owner)
        service.wake_mover()
    return JSONResponse(await _show_batch(service, request, batch.id, who.owner))


@router.delete("/messages/batches/{message_batch_id}")
async def delete(message_batch_id: str, service: Serving, who: Writer) -> Response:
    """Deletes a batch that has ended, with its requests and results."""
    batch = await _find_batch(service, message_batch_id, who.owner)
    if batch.status not in ENDED:
        raise Problem(400, f"the batch {batch.id} has not ended", hint="cancel it first")
    if batch.job_id is not None:
        await remove_job(service, batch.job_id, who.owner)
    await service.store.batches.drop(batch.id, who.owner)
    with suppress(NotFound):  # its owner may have deleted the file already
        await service.store.files.delete(batch.input_file_id, who.owner)
    await drop_blobs(service)
    return JSONResponse({"id": batch.id, "type": "message_batch_deleted"})


@router.get("/messages/batches/{message_batch_id}/results", response_class=StreamingResponse)
async def results(message_batch_id: str, service: Serving, who: Reader) -> Response:
    """A line for each request, in any order."""
    batch = await _find_batch(service, message_batch_id, who.owner)
    if batch.status not in ENDED:
        raise Problem(400, f"the batch {batch.id} has not ended, so it has no results yet", hint="ask again later")
    files = []
    for file_id in filter(None, (batch.output_file_id, batch.error_file_id)):
        file = await service.store.files.find(file_id, who.owner)
        if file is None or file.blob is None or await service.artifacts.size(file.blob) is None:
            raise Problem(404, f"the results of the batch {batch.id} are no longer kept")
        files.append(file)
    if batch.status is BatchStatus.FAILED and not await service.store.files.source(batch.input_file_id, who.owner):
        raise Problem(404, f"the requests of the batch {batch.id} are no longer kept, and none was sent")
    return StreamingResponse(result_stream(service, batch, files), media_type=JSONL)


async def _find_batch(service: Service, batch_id: str, owner: str) -> Batch:
    """Other batches have another format, and are not shown here."""
    if not is_message_batch(batch_id):
        raise batch_not_found(batch_id)
    return await service.store.batches.get(batch_id, owner)


async def _show_batch(service: Service, request: Request, batch_id: str, owner: str) -> dict[str, Any]:
    return await message_batch(service, request, await _find_batch(service, batch_id, owner))
