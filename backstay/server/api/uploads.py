"""Uploads: the files that items are made from. Their type and size are checked while they arrive."""

from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from pydantic_core import to_json

from backstay.artifacts import PURPOSE
from backstay.clock import DAY_MS
from backstay.core.errors import ErrorCode, NotFound
from backstay.handlers.gateway import is_pdf
from backstay.server.auth import Reader, Writer
from backstay.server.idempotency import EffectId
from backstay.server.problems import Problem
from backstay.server.service import Service, Serving, drop_blobs
from backstay.server.shapes import JSON, MOMENT, PAGE_DEFAULT, PROBLEMS, Cursor, Limit, PageShape, page
from backstay.server.uploads import Head, Watch, deposit, keep, receive
from backstay.store.files import NewFile, StoredFile

router = APIRouter(prefix="/api/uploads", tags=["uploads"], responses=PROBLEMS)

TYPES: Final = ("pdf", "any")
_FORM: Final = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "type": {"type": "string", "enum": list(TYPES), "default": "pdf", "description": "must come before the file"},
        "file": {"type": "string", "format": "binary"},
    },
}
_REQUEST: Final = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}}
_BYTES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}
_REFUSED: Final[dict[int | str, dict[str, Any]]] = {
    408: {"description": "The body arrived too slowly."},
    413: {"description": "The file is too large (TOO_LARGE)."},
    415: {"description": "The file is not a PDF (NOT_PDF), or the body is not a form."},
}
_GONE: Final[dict[int | str, dict[str, Any]]] = {410: {"description": "The file has expired (EXPIRED)."}}

FileId = Annotated[str, Path(description="a file's id", examples=["file-0123456789abcdef01234567"], max_length=100)]


class UploadShape(BaseModel):
    id: str
    filename: str
    bytes: int
    created_at: int = Field(description=MOMENT)
    expires_at: int | None = Field(description=MOMENT)


class UploadPage(PageShape):
    data: list[UploadShape]


@router.post("", status_code=201, response_model=UploadShape, responses=_REFUSED, openapi_extra=_REQUEST)
async def upload(request: Request, who: Writer, service: Serving, effect: EffectId) -> Response:
    """Uploads one file. It must be a PDF, unless the field `type` is `any`."""
    settings = service.backstay.settings
    place = deposit(service, who.owner)
    received = await receive(request, place, fields={"type"}, bytes_max=settings.upload_max_bytes, begin=_begin)
    if received.bytes == 0:
        await place.delete(received.blob)
        raise (
            _not_pdf("the file is empty") if received.fields.get("type", "pdf") == "pdf" else Problem(400, "empty file")
        )
    lives_ms = int(settings.file_days * DAY_MS)
    made = NewFile(f"file-{effect}", who.owner, received.filename, PURPOSE, received.bytes, lives_ms, received.blob)
    body = to_json(_object(await keep(service, made)))
    return Response(body, 201, {"location": f"/api/uploads/{made.id}"}, media_type=JSON)


def _begin(head: Head) -> Watch | None:
    kind = head.fields.get("type", "pdf")
    if kind not in TYPES:
        raise Problem(422, f"the type must be one of {', '.join(TYPES)}", param="type")
    return _watch_for_pdf() if kind == "pdf" else None


def _watch_for_pdf() -> Watch:
    looked = False

    async def watch(piece: bytes) -> None:
        """The first piece is long enough to tell, or it is all there is."""
        nonlocal looked
        if not looked and not is_pdf(piece):
            raise _not_pdf("the file is not a PDF")
        looked = True

    return watch


def _not_pdf(detail: str) -> Problem:
    hint = "send a PDF; for another type send the field type=any before the file"
    return Problem(415, detail, code=ErrorCode.NOT_PDF, hint=hint, param="file")


@router.get("", response_model=UploadPage)
async def list_uploads(
    request: Request, who: Reader, service: Serving, limit: Limit = PAGE_DEFAULT, cursor: Cursor = None
) -> Response:
    """Lists uploaded and converted files, the newest first."""
    try:
        found = await service.store.files.page(who.owner, cursor, limit + 1, False, PURPOSE)
    except NotFound:
        raise Problem(400, "the cursor is not valid", hint="take next_cursor from the page before") from None
    return page(request, map(_object, found[:limit]), found[limit - 1].id if len(found) > limit else None)


@router.get("/{file_id}", response_model=UploadShape, responses=_GONE)
async def show_upload(who: Reader, service: Serving, file_id: FileId) -> Response:
    return Response(to_json(_object(await require_file(service, file_id, who.owner))), media_type=JSON)


@router.get("/{file_id}/content", response_class=StreamingResponse, responses={**_BYTES, **_GONE})
async def read_upload(who: Reader, service: Serving, file_id: FileId) -> StreamingResponse:
    """The bytes of the file, unchanged."""
    return await stream_file(service, await require_file(service, file_id, who.owner), "application/octet-stream")


@router.delete("/{file_id}", status_code=204)
async def delete_upload(who: Writer, service: Serving, file_id: FileId) -> Response:
    """Deletes the file at once. Items that need it can then neither run nor be retried."""
    found = await _find_file(service, file_id, who.owner)
    if found is None:
        raise _no_upload(file_id)
    await service.store.files.delete(file_id, who.owner)
    await drop_blobs(service)
    return Response(status_code=204)


async def require_file(service: Service, file_id: str, owner: str) -> StoredFile:
    """The owner's file; raises if it does not exist or has expired."""
    found = await _find_file(service, file_id, owner)
    if found is not None:
        return found
    if await service.store.files.has_expired(file_id, owner):
        raise Problem(410, f"{file_id} has expired", hint="upload the file again, or run the work again")
    raise _no_upload(file_id)


async def _find_file(service: Service, file_id: str, owner: str) -> StoredFile | None:
    found = await service.store.files.find(file_id, owner)
    return found if found is not None and found.blob is not None else None


def _no_upload(file_id: str) -> NotFound:
    return NotFound(f"no upload {file_id[:40]}")


async def stream_file(service: Service, file: StoredFile, media_type: str) -> StreamingResponse:
    size = await service.artifacts.size(file.blob) if file.blob else None
    if file.blob is None or size is None:
        raise Problem(410, f"the bytes of {file.id} are gone", hint="upload the file again, or run the work again")
    headers = {
        "content-length": str(size),
        "content-disposition": f"attachment; filename*=UTF-8''{quote(file.filename, safe='')}",
        "x-content-type-options": "nosniff",
    }
    return StreamingResponse(service.artifacts.get(file.blob), headers=headers, media_type=media_type)


def _object(file: StoredFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in ("id", "filename", "bytes", "created_at", "expires_at")}
