"""Items: list with filters, show, timeline, result, log, why it is not running, retry."""

import json
from collections.abc import AsyncGenerator, Collection
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from pydantic_core import to_json

from backstay.core.errors import ErrorCode, NotFound
from backstay.core.failures import public_code
from backstay.core.ids import POSITIONS_MAX, job_of
from backstay.core.ids import show_item as show_id
from backstay.core.states import ItemState
from backstay.handlers.gateway import NAME
from backstay.observe.logs import place_of
from backstay.server import shapes
from backstay.server.api.uploads import require_file, stream_file
from backstay.server.auth import Principal, Reader, Writer, operates, require_role
from backstay.server.problems import Problem
from backstay.server.service import Service, Serving, service_of
from backstay.server.shapes import (
    CHANGES,
    JSON,
    PAGE_DEFAULT,
    PROBLEMS,
    Cursor,
    ItemId,
    ItemPage,
    ItemShape,
    JobId,
    Limit,
    ReasonShape,
    answer_with_etag,
    etag_of,
    item_bytes,
    item_number,
    item_object,
    job_number,
    page,
    require_match,
)
from backstay.store.item_views import ItemFilter, ItemReport, ItemView, read_item_story, timeline
from backstay.store.keys import Role

router = APIRouter(prefix="/api", tags=["items"], responses=PROBLEMS)

Position = Annotated[int, Query(ge=0, lt=POSITIONS_MAX, description="counted from 0")]


class FullItem(ItemShape):
    payload: Any = None
    result: Any = None


class WhyShape(BaseModel):
    """Every reason that holds now, the strongest first."""

    id: str
    state: ItemState
    reasons: list[ReasonShape]


class AttemptShape(BaseModel):
    number: int
    outcome: str
    started_at: int
    ended_at: int
    error_code: str | None
    message: str | None
    provider_status: int | None
    input_tokens: int | None
    output_tokens: int | None
    cost_micros: int | None


class MomentShape(BaseModel):
    at: int
    what: str
    detail: str | None


class TimelineShape(BaseModel):
    id: str
    state: ItemState
    attempts: list[AttemptShape]
    timeline: list[MomentShape]


@router.get("/jobs/{job_id}/items", response_model=ItemPage)
async def list_items(
    request: Request,
    who: Reader,
    service: Serving,
    job_id: JobId,
    limit: Limit = PAGE_DEFAULT,
    cursor: Cursor = None,
    state: ItemState | None = None,
    error_code: ErrorCode | None = None,
    position_from: Position = 0,
    position_to: Position = POSITIONS_MAX - 1,
) -> Response:
    """Lists items in the order of submission."""
    job = job_number(job_id)
    wanted = ItemFilter(state, error_code, position_from, position_to)
    what = f"items\0{job}\0{state}\0{error_code}\0{position_from}\0{position_to}"
    after = shapes.decode(service, who.owner, what, cursor)
    found, following = await service.store.item_views.page(job, who.owner, wanted, after, limit)
    next_cursor = shapes.encode(service, who.owner, what, following)
    return page(request, map(item_object, found), next_cursor)


@router.get("/items/{item_id}", response_model=FullItem)
async def show_item(
    request: Request,
    item_id: ItemId,
    include: Annotated[list[Literal["payload", "result"]], Query(max_length=2)] = [],  # noqa: B006 - FastAPI copies it
) -> Response:
    """The answer has an ETag; send it in If-None-Match to poll cheaply."""
    who, service = await require_role(request, Role.READ), service_of(request)
    row = await service.reads.item(item_number(item_id), who.owner)
    return answer_with_etag(
        request, await _with_bodies(service, row, who.owner, include) if include else item_bytes(row)
    )


async def _with_bodies(service: Service, row: ItemView, owner: str, include: Collection[str]) -> bytes:
    """Payload and result are inserted as they are stored; from the cache while the row is unchanged."""
    body = item_bytes(row)
    wanted = [name for name in ("payload", "result") if name in include]

    async def make() -> bytes:
        bodies = (await service.store.item_views.bodies(row.id, owner))._asdict()
        texts = [f',"{name}":{bodies[name] or "null"}' for name in wanted]
        return body[:-1] + "".join(texts).encode() + b"}"

    name = f"item:{show_id(row.id)}:{'+'.join(wanted)}"
    return await service.details.find(name, f"{row.fence}:{etag_of(body)}", make)


@router.get("/items/{item_id}/why", response_model=WhyShape)
async def explain_item(who: Reader, service: Serving, item_id: ItemId) -> Response:
    """Says why the item is not running now. Each reason says what to do, or how long to wait."""
    shown = await _look_up(service, who, item_id)
    reasons = [reason._asdict() for reason in shown.reasons]
    return Response(to_json({"id": item_id, "state": shown.view.state, "reasons": reasons}), media_type=JSON)


@router.get("/items/{item_id}/timeline", response_model=TimelineShape)
async def show_timeline(who: Reader, service: Serving, item_id: ItemId) -> Response:
    """Everything that happened to the item, in order of time."""
    shown = await _look_up(service, who, item_id)
    fields = AttemptShape.model_fields
    said = {
        "id": item_id,
        "state": shown.view.state,
        "attempts": [{name: getattr(attempt, name) for name in fields} for attempt in shown.attempts],
        "timeline": [moment._asdict() for moment in timeline(shown.view, shown.attempts, shown.events)],
    }
    return Response(to_json(said), media_type=JSON)


@router.post("/items/{item_id}/retry", response_model=ItemShape, responses=CHANGES)
async def retry_item(request: Request, who: Writer, service: Serving, item_id: ItemId) -> Response:
    """Queues a failed item again and resets its attempts."""
    number = item_number(item_id)
    if "if-match" in request.headers:
        require_match(request, item_bytes(await service.store.item_views.row(number, who.owner)))
    await service.store.jobs.retry(job_of(number), who.owner, number)
    await service.store.notify()
    service.wake()
    return answer_with_etag(request, item_bytes(await service.store.item_views.row(number, who.owner)))


async def _look_up(service: Service, who: Principal, item_id: str) -> ItemReport:
    lease_ms, words = service.backstay.limits.lease_ms, operates(who, service)
    return await read_item_story(service.store, item_number(item_id), who.owner, lease_ms, shows_reason=words)


_GONE: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {"application/json": {}, "application/xml": {}}},
    409: {"description": "There is no result yet (NOT_READY), or the item failed (with its code)."},
    410: {"description": "The result has expired (EXPIRED)."},
}


@router.get("/items/{item_id}/result", response_class=Response, responses=_GONE)
async def read_result(who: Reader, service: Serving, item_id: ItemId) -> Response:
    """Returns the converted file as it is; for other handlers, the JSON result."""
    number = item_number(item_id)
    row = await service.store.item_views.row(number, who.owner)
    if row.state != ItemState.SUCCEEDED:
        raise _no_result(row)
    text = (await service.store.item_views.bodies(number, who.owner)).result or "null"
    if row.handler != NAME:
        return Response(text, media_type=JSON)
    made = json.loads(text)
    return await stream_file(service, await require_file(service, made["file"], who.owner), made["content_type"])


def _no_result(row: ItemView) -> Problem:
    item = show_id(row.id)
    if row.state in (ItemState.QUEUED, ItemState.SUBMITTING, ItemState.PROCESSING):
        headers = {"retry-after": "1", "x-should-retry": "true"}
        detail = f"item {item} is {row.state}: there is no result yet"
        return Problem(409, detail, code=ErrorCode.NOT_READY, hint="ask again when the item has ended", headers=headers)
    headers = {"x-should-retry": "false"}
    if row.state == ItemState.FAILED:
        hint = "if you can fix the cause, retry the item"
        detail = f"item {item} failed: {row.message or row.error_code}"
        return Problem(409, detail, code=public_code(row.error_code or ""), hint=hint, headers=headers)
    return Problem(409, f"item {item} was {row.state}: there is no result", headers=headers)


_TEXT: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The lines of the log, the oldest first.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}


@router.get("/items/{item_id}/log", response_class=StreamingResponse, responses=_TEXT)
async def stream_log(who: Reader, service: Serving, item_id: ItemId) -> StreamingResponse:
    """The log output of the item's handler, of all attempts. The last seconds of a running item may be missing."""
    number = item_number(item_id)
    await service.store.item_views.row(number, who.owner)
    pieces = await log_pieces(service, number)
    headers = {"x-content-type-options": "nosniff"}
    return StreamingResponse(log_chunks(service, pieces), headers=headers, media_type="text/plain; charset=utf-8")


async def log_pieces(service: Service, item: int) -> list[str]:
    """The names of the pieces of an item's log, the oldest first."""
    return sorted([name async for name in service.artifacts.names(place_of(item))])


async def log_chunks(service: Service, pieces: list[str]) -> AsyncGenerator[bytes, None]:
    for name in pieces:
        try:
            async for chunk in service.artifacts.get(name):
                yield chunk
        except NotFound:
            return  # the job was deleted meanwhile
