"""/messages/batches: create, show, list, cancel, delete, and the results."""

import json
from contextlib import suppress
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from backstay.clock import new_id
from backstay.core.errors import DatabaseUnreachable, FilesUnreachable, NotFound
from backstay.core.states import BatchStatus
from backstay.run.submission import Scales
from backstay.server.anthropic.intake import MessageIntake
from backstay.server.anthropic.shapes import ENDED, message_batch, page_of, result_stream
from backstay.server.auth import Reader, Writer
from backstay.server.idempotency import REPLAYED, EffectId
from backstay.server.job_control import drop_blobs, remove, stop_job
from backstay.server.openai.batches import REPLAY_MS, is_sent_again
from backstay.server.openai.destinations import MESSAGES, MESSAGES_API, handlers_of, is_message_batch, scales_of
from backstay.server.problems import Problem
from backstay.server.request_bodies import body_chunks
from backstay.server.service import Service, Serving
from backstay.server.uploads import deposit, keep
from backstay.store.batches import Batch, NewBatch, missing
from backstay.store.files import NewFile

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
        with suppress(FilesUnreachable, DatabaseUnreachable):  # what was wrong is the better answer
            await place.delete(blob)
        if isinstance(error, Problem):
            error.lingers = not intake.ended
        raise
    digest = json.dumps({"requests_sha256": intake.digest()})
    if service.options.replays and is_sent_again(request):
        same = await service.store.batches.same_messages(who.owner, digest, REPLAY_MS)
        if same is not None:
            await place.delete(blob)
            return JSONResponse(await _shown(service, request, same, who.owner), headers=REPLAYED)
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
    return JSONResponse(await _shown(service, request, made, who.owner))


def _scales(service: Service) -> Scales:
    """Of the provider whose format it is; without that provider nothing is taken in."""
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
    return JSONResponse(await _shown(service, request, message_batch_id, who.owner))


@router.post("/messages/batches/{message_batch_id}/cancel")
async def cancel(request: Request, message_batch_id: str, service: Serving, who: Writer) -> Response:
    """Finished results are kept; requests under way may still be answered."""
    batch = await _found(service, message_batch_id, who.owner)
    if batch.status in ENDED:
        raise Problem(400, f"the batch {batch.id} has ended and cannot be canceled")
    if await service.store.batches.cancel(batch.id, who.owner):
        if batch.job_id is not None:
            await stop_job(service, batch.job_id, who.owner)
        service.wake_mover()
    return JSONResponse(await _shown(service, request, batch.id, who.owner))


@router.delete("/messages/batches/{message_batch_id}")
async def delete(message_batch_id: str, service: Serving, who: Writer) -> Response:
    """Deletes a batch that has ended, with its requests and results."""
    batch = await _found(service, message_batch_id, who.owner)
    if batch.status not in ENDED:
        raise Problem(400, f"the batch {batch.id} has not ended", hint="cancel it first")
    if batch.job_id is not None:
        await remove(service, batch.job_id, who.owner)
    await service.store.batches.drop(batch.id, who.owner)
    with suppress(NotFound):  # its owner may have deleted the file already
        await service.store.files.delete(batch.input_file_id, who.owner)
    await drop_blobs(service)
    return JSONResponse({"id": batch.id, "type": "message_batch_deleted"})


@router.get("/messages/batches/{message_batch_id}/results", response_class=StreamingResponse)
async def results(message_batch_id: str, service: Serving, who: Reader) -> Response:
    """A line for each request, in no certain order."""
    batch = await _found(service, message_batch_id, who.owner)
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


async def _found(service: Service, batch_id: str, owner: str) -> Batch:
    """Other batches have another format, and are not shown here."""
    if not is_message_batch(batch_id):
        raise missing(batch_id)
    return await service.store.batches.get(batch_id, owner)


async def _shown(service: Service, request: Request, batch_id: str, owner: str) -> dict[str, Any]:
    return await message_batch(service, request, await _found(service, batch_id, owner))
