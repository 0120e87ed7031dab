"""Results: those of a job as lines, callbacks in which remote workers report, and the results that came too late."""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field
from pydantic_core import to_json

from backstay.core.callbacks import CALLBACK_BYTES_MAX, read_callback, result_of
from backstay.core.errors import NotFound, UsageError
from backstay.core.ids import POSITIONS_MAX, item_range, job_of, position_of, show_item
from backstay.core.states import ItemState
from backstay.remote.handler import secrets_of
from backstay.server import shapes
from backstay.server.auth import Admin, Reader
from backstay.server.problems import Problem
from backstay.server.request_limits import whole_bytes
from backstay.server.service import Service, Serving
from backstay.server.shapes import (
    CHANGES,
    JSON,
    PAGE_DEFAULT,
    PROBLEMS,
    Cursor,
    JobId,
    Limit,
    PageShape,
    job_number,
    page,
    row_number,
)
from backstay.store.inbox import LateResult
from backstay.store.results import ResultRow

router = APIRouter(prefix="/api/jobs", tags=["results"], responses=PROBLEMS)

_LINES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "One line for every item that has ended, in the order of submission.",
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
}


@router.get("/{job_id}/results", response_class=StreamingResponse, responses=_LINES)
async def stream_results(
    who: Reader,
    service: Serving,
    job_id: JobId,
    state: Literal["succeeded", "failed", "skipped", "cancelled"] | None = None,
    after: Annotated[int, Query(ge=-1, lt=POSITIONS_MAX, description="the last position that you have received")] = -1,
    payload: Annotated[bool, Query(description="include the payload of each item")] = False,
) -> StreamingResponse:
    """Streams the items that have ended so far. To resume, pass the position of the last complete line as `after`."""
    job = job_number(job_id)
    await service.store.job_views.get(job, who.owner)
    return StreamingResponse(_lines(service, job, state, after, payload), media_type="application/x-ndjson")


async def _lines(service: Service, job: int, state: str | None, after: int, payload: bool) -> AsyncIterator[bytes]:
    async for rows in service.store.results.pages(job, item_range(job)[0] + after):
        if block := b"".join(_line(row, payload) for row in rows if state in (None, row.state)):
            yield block


def _line(row: ResultRow, payload: bool) -> bytes:
    """One line. Payload and result are inserted as they are stored; line breaks can only be between their tokens."""
    said = to_json(
        {
            "item": show_item(row.id),
            "position": position_of(row.id),
            "state": row.state,
            "error_code": row.error_code,
            "flaw": row.flaw,
            "message": row.message,
            "attempts": row.attempt_count,
            "repeats": row.repeats,
        }
    )
    result = row.result if row.state == "succeeded" and row.result is not None else "null"
    asked = f',"payload":{row.body}' if payload else ""
    return said[:-1] + f',"result":{result}{asked}}}'.replace("\r", " ").replace("\n", " ").encode() + b"\n"


late_router = APIRouter(prefix="/api/late-results", tags=["late results"], responses=PROBLEMS)

_WHAT: Final = "late-results"

LateId = Annotated[str, Path(description="a late result's id", examples=["7"])]


class LateShape(BaseModel):
    """All moments are milliseconds since 1970, UTC."""

    id: str
    item: str
    job: str
    item_state: ItemState
    is_late: bool
    received_at: int
    deadline_at: int | None
    accepted_at: int | None
    accepted_by: str | None


class WholeLateShape(LateShape):
    result: Any = Field(None, description="the result of the remote worker")


class LatePage(PageShape):
    data: list[LateShape]


@late_router.get("", response_model=LatePage)
async def list_late_results(
    request: Request, who: Reader, service: Serving, limit: Limit = PAGE_DEFAULT, cursor: Cursor = None
) -> Response:
    """Newest first, accepted or not."""
    before = shapes.decode(service, who.owner, _WHAT, cursor)
    found = await service.store.inbox.late(who.owner, before, limit)
    next_cursor = shapes.encode(service, who.owner, _WHAT, found[-1].number if len(found) == limit else None)
    return page(request, map(late_object, found), next_cursor)


@late_router.get("/{late_id}", response_model=WholeLateShape)
async def show_late_result(who: Reader, service: Serving, late_id: LateId) -> Response:
    return _with_result(await service.store.inbox.late_result(row_number(late_id, "late result"), who.owner))


@late_router.post("/{late_id}/accept", response_model=WholeLateShape, responses=CHANGES)
async def accept_late_result(who: Admin, service: Serving, late_id: LateId) -> Response:
    """Accepts a late result: its failed item succeeds with it. Repeating it is harmless."""
    number = row_number(late_id, "late result")
    return _with_result(await service.store.inbox.accept(number, who.owner, who.name))


def _with_result(late: LateResult) -> Response:
    """The result is inserted as it is stored: JSON can hold texts that cannot be encoded in UTF-8."""
    said = json.dumps(late_object(late))
    result = result_of(late.body or '{"result":null}')
    return Response(f'{said[:-1]}, "result": {result}}}', media_type=JSON)


def late_object(late: LateResult) -> dict[str, Any]:
    return {
        "id": str(late.number),
        "item": show_item(late.item_id),
        "job": str(job_of(late.item_id)),
        "item_state": late.item_state,
        "is_late": True,
        "received_at": late.received_at,
        "deadline_at": late.deadline_at,
        "accepted_at": late.accepted_at,
        "accepted_by": late.accepted_by,
    }


callbacks_router = APIRouter(tags=["remote work"], responses=PROBLEMS)

_FENCE_DIGITS_MAX: Final = 18

Part = Annotated[str, Path(max_length=100)]


@callbacks_router.post("/callbacks/{item}/{fence}/{tag}", status_code=202, include_in_schema=False)
async def receive(request: Request, service: Serving, item: Part, fence: Part, tag: Part) -> Response:
    """Stores every callback first, whether early, late or repeated. A repeated callback changes nothing."""
    opened = await service.seals.open(item, fence, tag) if _is_fence(fence) else None
    if opened is None:
        raise _no_callback()
    try:
        callback = read_callback(await whole_bytes(request, CALLBACK_BYTES_MAX))
    except UsageError as error:
        raise Problem(422, error.message, hint=error.hint) from None
    try:
        received = await service.store.inbox.receive(*opened, callback)
    except NotFound:
        raise _no_callback() from None
    return JSONResponse({"accepted": True, "late": received.late, "repeated": received.repeated}, 202)


@callbacks_router.get("/api/remote/secret", response_model=dict[str, str])
async def show_remote_secret(who: Admin, service: Serving) -> Response:
    """The secret that signs requests to this owner's remote workers, as in Standard Webhooks."""
    said: dict[str, Any] = {"secret": secrets_of(service.signer, who.owner)[0]}
    return JSONResponse(said, headers={"cache-control": "no-store"})


def _is_fence(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _FENCE_DIGITS_MAX


def _no_callback() -> Problem:
    return Problem(404, "there is no such callback address")
