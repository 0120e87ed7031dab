"""Where remote workers say how far they are and what came out; the signed address is all that they need to know."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse

from backstay.core.callbacks import CALLBACK_BYTES_MAX, read_callback
from backstay.core.errors import NotFound, UsageError
from backstay.remote.handler import secrets_of
from backstay.server.auth import Admin
from backstay.server.problems import Problem
from backstay.server.request_bodies import whole_bytes
from backstay.server.service import Serving
from backstay.server.shapes import PROBLEMS

router = APIRouter(tags=["remote work"], responses=PROBLEMS)

_FENCE_DIGITS_MAX: Final = 18

Part = Annotated[str, Path(max_length=100)]


@router.post("/callbacks/{item}/{fence}/{tag}", status_code=202, include_in_schema=False)
async def receive(request: Request, service: Serving, item: Part, fence: Part, tag: Part) -> Response:
    """Stores every callback first, whether early, late or repeated. A repeated callback changes nothing."""
    opened = await service.seals.open(item, fence, tag) if _is_fence(fence) else None
    if opened is None:
        raise _none()
    try:
        callback = read_callback(await whole_bytes(request, CALLBACK_BYTES_MAX))
    except UsageError as error:
        raise Problem(422, error.message, hint=error.hint) from None
    try:
        received = await service.store.inbox.receive(*opened, callback)
    except NotFound:
        raise _none() from None
    return JSONResponse({"accepted": True, "late": received.late, "repeated": received.repeated}, 202)


@router.get("/api/remote/secret", response_model=dict[str, str])
async def show_remote_secret(who: Admin, service: Serving) -> Response:
    """The secret that signs requests to this owner's remote workers, as in Standard Webhooks."""
    said: dict[str, Any] = {"secret": secrets_of(service.signer, who.owner)[0]}
    return JSONResponse(said, headers={"cache-control": "no-store"})


def _is_fence(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _FENCE_DIGITS_MAX


def _none() -> Problem:
    return Problem(404, "there is no such callback address")
