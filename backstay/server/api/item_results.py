"""The result of one item: the file that was made, or the JSON that its handler returned."""

import json
from typing import Any, Final

from fastapi import APIRouter, Response

from backstay.core.errors import ErrorCode
from backstay.core.failures import public_code
from backstay.core.ids import show_item
from backstay.core.states import ItemState
from backstay.handlers.gateway import NAME
from backstay.server.api.pages import ItemId, item_number
from backstay.server.api.uploads import streamed, there
from backstay.server.auth import Reader
from backstay.server.etags import JSON
from backstay.server.problems import Problem
from backstay.server.service import Serving
from backstay.server.shapes import PROBLEMS
from backstay.store.listing import ItemRow

router = APIRouter(prefix="/api/items", tags=["items"], responses=PROBLEMS)

_GONE: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {"application/json": {}, "application/xml": {}}},
    409: {"description": "There is no result yet (NOT_READY), or the item failed (with its code)."},
    410: {"description": "The result has expired (EXPIRED)."},
}


@router.get("/{item_id}/result", response_class=Response, responses=_GONE)
async def read_result(who: Reader, service: Serving, item_id: ItemId) -> Response:
    """Returns the converted file as it is; for other handlers, the JSON result."""
    number = item_number(item_id)
    row = await service.store.listing.item(number, who.owner)
    if row.state != ItemState.SUCCEEDED:
        raise _none(row)
    text = (await service.store.listing.bodies(number, who.owner)).result or "null"
    if row.handler != NAME:
        return Response(text, media_type=JSON)
    made = json.loads(text)
    return await streamed(service, await there(service, made["file"], who.owner), made["content_type"])


def _none(row: ItemRow) -> Problem:
    item = show_item(row.id)
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
