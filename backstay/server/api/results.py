"""Results of a job's items, streamed as lines."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic_core import to_json

from backstay.core.ids import POSITIONS_MAX, item_range, position_of, show_item
from backstay.server.api.pages import JobId, job_number
from backstay.server.auth import Reader
from backstay.server.service import Service, Serving
from backstay.server.shapes import PROBLEMS
from backstay.store.result_views import ResultRow

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
    await service.store.views.job(job, who.owner)
    return StreamingResponse(_lines(service, job, state, after, payload), media_type="application/x-ndjson")


async def _lines(service: Service, job: int, state: str | None, after: int, payload: bool) -> AsyncIterator[bytes]:
    async for rows in service.store.views.result_pages(job, item_range(job)[0] + after):
        if block := b"".join(_line(row, payload) for row in rows if state in (None, row.state)):
            yield block


def _line(row: ResultRow, payload: bool) -> bytes:
    """The JSON texts of payload and result go out as they are; a line break can only stand between their parts."""
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
