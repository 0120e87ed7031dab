"""Late results: what came after the deadline is kept and shown, and counts when a person says so."""

import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, Field

from backstay.core.callbacks import result_of
from backstay.core.ids import job_of, show_item
from backstay.core.states import ItemState
from backstay.server import cursors, etags
from backstay.server.api.pages import PAGE_DEFAULT, Cursor, Limit, page, row_number
from backstay.server.auth import Admin, Reader
from backstay.server.service import Serving
from backstay.server.shapes import CHANGES, PROBLEMS, PageShape
from backstay.store.inbox import LateResult

router = APIRouter(prefix="/api/late-results", tags=["late results"], responses=PROBLEMS)

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


@router.get("", response_model=LatePage)
async def list_late_results(
    request: Request, who: Reader, service: Serving, limit: Limit = PAGE_DEFAULT, cursor: Cursor = None
) -> Response:
    """Newest first, accepted or not."""
    before = cursors.take(service, who.owner, _WHAT, cursor)
    found = await service.store.inbox.late(who.owner, before, limit)
    next_cursor = cursors.give(service, who.owner, _WHAT, found[-1].number if len(found) == limit else None)
    return page(request, map(late_object, found), next_cursor)


@router.get("/{late_id}", response_model=WholeLateShape)
async def show_late_result(who: Reader, service: Serving, late_id: LateId) -> Response:
    return _whole(await service.store.inbox.late_result(row_number(late_id, "late result"), who.owner))


@router.post("/{late_id}/accept", response_model=WholeLateShape, responses=CHANGES)
async def accept_late_result(who: Admin, service: Serving, late_id: LateId) -> Response:
    """Accepts a late result: its failed item succeeds with it. Repeating it is harmless."""
    number = row_number(late_id, "late result")
    return _whole(await service.store.inbox.accept(number, who.owner, who.name))


def _whole(late: LateResult) -> Response:
    """The result goes out as the JSON text that it is: not all that JSON can say can be written in UTF-8."""
    said = json.dumps(late_object(late))
    result = result_of(late.body or '{"result":null}')
    return Response(f'{said[:-1]}, "result": {result}}}', media_type=etags.JSON)


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
