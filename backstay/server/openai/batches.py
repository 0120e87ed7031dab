"""/batches: create, show, list, cancel, and what has come of one so far."""

import json
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from backstay.core.reasons import Reason
from backstay.core.states import BatchStatus
from backstay.server.auth import Reader, Writer, allowed, operates
from backstay.server.idempotency import EffectId
from backstay.server.job_cancel import stop_job
from backstay.server.openai.adoption import adopt
from backstay.server.openai.content import content, result_lines
from backstay.server.openai.orders import BatchOrder, read_order
from backstay.server.openai.shapes import batch_object, page
from backstay.server.problems import Problem
from backstay.server.service import Service, Serving, service_of
from backstay.store.batches import NewBatch
from backstay.store.keys import Role
from backstay.store.stories import look_at_job

router = APIRouter(tags=["OpenAI batches"])

LIST_MAX: Final = 100
REPLAY_MS: Final = 120_000
NDJSON: Final = "application/x-ndjson"
OVER: Final = (BatchStatus.COMPLETED, BatchStatus.FAILED, BatchStatus.EXPIRED)
_BODY: Final = {"requestBody": {"content": {"application/json": {"schema": BatchOrder.model_json_schema()}}}}


@router.post("/batches", openapi_extra=_BODY)
async def create(request: Request, service: Serving, who: Writer, effect: EffectId) -> Response:
    """Stores the batch and answers at once; the batch itself soon reports what is wrong with its file."""
    order = await read_order(request)
    strict = service.options.strict_openai
    order.check_endpoint(strict)
    seconds = order.window_seconds(strict)
    if service.options.upstream is None:
        raise Problem(400, "this service has no provider to send requests to", hint="start it with --base-url")
    expires = order.output_expires_after
    new = NewBatch(
        id=f"batch_{effect}",
        owner=who.owner,
        endpoint=order.endpoint,
        input_file_id=order.input_file_id,
        completion_window=order.completion_window,
        window_ms=int(min(seconds, service.backstay.limits.llm_job_timeout_seconds) * 1000),
        metadata=None if order.metadata is None else json.dumps(order.metadata, sort_keys=True),
        output_seconds=None if expires is None else expires.seconds,
    )
    replay = service.options.replays and _is_sent_again(request)
    made, is_new = await service.store.batches.create(new, REPLAY_MS if replay else None)
    service.wake_mover()
    headers = {} if is_new else {"x-backstay-replayed": "1"}
    return JSONResponse(batch_object(await service.store.batches.get(made, who.owner)), headers=headers)


def _is_sent_again(request: Request) -> bool:
    """OpenAI's client counts; it sends a request again when it did not hear the answer, which may have been a batch."""
    count = request.headers.get("x-stainless-retry-count", "")
    return count.isascii() and count.isdigit() and int(count[:9]) > 0


@router.get("/batches")
async def list_batches(
    service: Serving,
    who: Reader,
    after: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=LIST_MAX)] = 20,
) -> Response:
    """Newest first, including runs of the command line on the same database."""
    await adopt(service, who.owner)
    found = await service.store.batches.page(who.owner, after, limit + 1)
    return JSONResponse(page([batch_object(batch) for batch in found[:limit]], len(found) > limit))


@router.get("/batches/{batch_id}")
async def show(request: Request, batch_id: str) -> Response:
    who, service = await allowed(request, Role.READ), service_of(request)
    return JSONResponse(batch_object(await service.seen.batch(batch_id, who.owner)))


@router.post("/batches/{batch_id}/cancel")
async def cancel(batch_id: str, service: Serving, who: Writer) -> Response:
    """Finished results are kept; requests under way may still be answered."""
    batch = await service.store.batches.get(batch_id, who.owner)
    if batch.status in OVER:
        raise Problem(409, f"Cannot cancel a batch with status '{batch.status}'.", headers={"x-should-retry": "false"})
    if await service.store.batches.cancel(batch_id, who.owner):
        if batch.job_id is not None:
            await stop_job(service, batch.job_id, who.owner)
        service.wake_mover()
    return JSONResponse(batch_object(await service.store.batches.get(batch_id, who.owner)))


@router.get("/batches/{batch_id}/output", response_class=StreamingResponse)
async def output(batch_id: str, service: Serving, who: Reader) -> Response:
    """The results that have succeeded so far, during the batch and after it."""
    return await _part(service, batch_id, who.owner, ok=True)


@router.get("/batches/{batch_id}/errors", response_class=StreamingResponse)
async def errors(batch_id: str, service: Serving, who: Reader) -> Response:
    """The requests that have failed so far."""
    return await _part(service, batch_id, who.owner, ok=False)


@router.get("/batches/{batch_id}/why")
async def explain(batch_id: str, service: Serving, who: Reader) -> Response:
    """Says why the batch makes no progress; OpenAI's object has no field for it. No reason: nothing blocks it."""
    batch = await service.store.batches.get(batch_id, who.owner)
    reasons: list[Reason] = []
    if batch.job_id is not None and not batch.job_ended:
        lease_ms = service.backstay.limits.lease_ms
        words = operates(who, service)
        _, reasons = await look_at_job(service.store, batch.job_id, who.owner, lease_ms, shows_words=words)
    said = {"id": batch.id, "status": batch.status, "reasons": [reason._asdict() for reason in reasons]}
    return JSONResponse(said)


async def _part(service: Service, batch_id: str, owner: str, ok: bool) -> Response:
    batch = await service.store.batches.get(batch_id, owner)
    file_id = batch.output_file_id if ok else batch.error_file_id
    file = await service.store.files.find(file_id, owner) if file_id else None
    if file is not None:
        return StreamingResponse(content(service, file), media_type=NDJSON)
    if batch.job_id is None:
        return Response(b"", media_type=NDJSON)
    lines = result_lines(service.store, batch.job_id, ok=ok, copies=bool(batch.adopted))
    return StreamingResponse(lines, media_type=NDJSON)
