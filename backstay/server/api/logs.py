"""The execution log of an item, streamed."""

from collections.abc import AsyncGenerator
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from backstay.core.errors import NotFound
from backstay.observe.item_logs import place_of
from backstay.server.api.pages import ItemId, item_number
from backstay.server.auth import Reader
from backstay.server.service import Service, Serving
from backstay.server.shapes import PROBLEMS

router = APIRouter(prefix="/api/items", tags=["items"], responses=PROBLEMS)

_TEXT: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The lines of the log, the oldest first.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}


@router.get("/{item_id}/log", response_class=StreamingResponse, responses=_TEXT)
async def stream_log(who: Reader, service: Serving, item_id: ItemId) -> StreamingResponse:
    """The log output of the item's handler, of all attempts. The last seconds of a running item may be missing."""
    number = item_number(item_id)
    await service.store.listing.item(number, who.owner)
    pieces = await log_pieces(service, number)
    headers = {"x-content-type-options": "nosniff"}
    return StreamingResponse(log_chunks(service, pieces), headers=headers, media_type="text/plain; charset=utf-8")


async def log_pieces(service: Service, item: int) -> list[str]:
    """Their names, the oldest first."""
    return sorted([name async for name in service.artifacts.names(place_of(item))])


async def log_chunks(service: Service, pieces: list[str]) -> AsyncGenerator[bytes, None]:
    for name in pieces:
        try:
            async for chunk in service.artifacts.get(name):
                yield chunk
        except NotFound:
            return  # the job was deleted meanwhile
