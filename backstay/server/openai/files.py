"""/files: upload, list, show, delete, download."""

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from backstay.llm.lines import LineRefused
from backstay.server.auth import Reader, Writer
from backstay.server.idempotency import EffectId
from backstay.server.openai.shapes import content, file_object, page
from backstay.server.openai.survey import Repeats, Survey
from backstay.server.problems import Problem
from backstay.server.service import Service, Serving, drop_blobs
from backstay.server.uploads import Head, ReceivedFile, Watch, deposit, keep, receive
from backstay.store.files import NewFile, StoredFile

router = APIRouter(tags=["OpenAI files"])

PURPOSES: Final = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
FIELDS: Final = frozenset({"purpose", "expires_after[anchor]", "expires_after[seconds]"})
LIST_MAX: Final = 10_000
EXPIRES_SECONDS: Final = (3_600, 2_592_000)
STRICT_BATCH_BYTES_MAX: Final = 200 << 20
STRICT_BYTES_MAX: Final = 512 << 20
_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_FORM: Final = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"type": "string", "enum": list(PURPOSES)},
        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
        "expires_after[seconds]": {"type": "integer", "minimum": EXPIRES_SECONDS[0], "maximum": EXPIRES_SECONDS[1]},
    },
}


@router.post("/files", openapi_extra={"requestBody": {"content": {"multipart/form-data": {"schema": _FORM}}}})
async def upload(request: Request, service: Serving, who: Writer, effect: EffectId) -> Response:
    """Uploads a file. With the purpose `batch` every line is checked during the upload."""
    strict = service.options.strict_openai
    settings = service.backstay.settings
    bytes_max = min(settings.upload_max_bytes, STRICT_BYTES_MAX) if strict else settings.upload_max_bytes
    check = UploadCheck(strict)
    place = deposit(service, who.owner)
    received = await receive(request, place, fields=FIELDS, bytes_max=bytes_max, begin=check.begin)
    try:
        purpose, seconds = _purpose(received.fields), _lifetime(received.fields)
        survey = await check.describe(service, received) if purpose == "batch" else None
    except BaseException:
        await place.delete(received.blob)
        raise
    if seconds is None and purpose == "batch":
        seconds = int(settings.file_days * 86_400)
    made = NewFile(
        id=f"file-{effect}",
        owner=who.owner,
        filename=received.filename,
        purpose=purpose,
        bytes=received.bytes,
        lives_ms=None if seconds is None else seconds * 1000,
        blob=received.blob,
        survey=survey,
    )
    return JSONResponse(file_object(await keep(service, made)))


class UploadCheck:
    """Checks the lines of a file while it arrives, if they may be requests."""

    def __init__(self, strict: bool) -> None:
        self._strict = strict
        self._survey: Survey | None = None
        self._bytes = 0
        self._wrong = False

    def begin(self, head: Head) -> Watch | None:
        purpose = head.fields.get("purpose")
        if purpose is not None:
            _purpose(head.fields)
        _lifetime(head.fields)
        if purpose not in (None, "batch"):
            return None
        self._survey = Survey()
        return self._check_requests if purpose == "batch" else self._check_possible_requests

    async def _check_requests(self, piece: bytes) -> None:
        """The file must contain requests: a file that does not is refused at once."""
        assert self._survey is not None
        self._bytes += len(piece)
        if self._strict and self._bytes > STRICT_BATCH_BYTES_MAX:
            raise Problem(413, f"a file of requests may have at most {STRICT_BATCH_BYTES_MAX} bytes", param="file")
        try:
            self._survey.feed(piece)
            self._survey.check_bounds()
        except LineRefused as refused:
            raise _invalid_file(f"a line {refused}") from None
        if self._survey.first is not None:
            raise _invalid_file(self._survey.first.message)

    async def _check_possible_requests(self, piece: bytes) -> None:
        """The purpose comes after the file, so errors count only if it is `batch`."""
        if not self._wrong:
            try:
                await self._check_requests(piece)
            except Problem:
                self._wrong = True

    async def describe(self, service: Service, received: ReceivedFile) -> dict[str, Any]:
        """The survey of the file. If custom_ids may be repeated, the file is read once more."""
        survey = self._survey
        assert survey is not None
        suspicious = survey.end()
        if survey.first is not None or self._wrong:
            raise _invalid_file(survey.first.message if survey.first else "it is not a file of requests")
        if not survey.requests and not survey.fault_count:
            raise _invalid_file("it is empty")
        if suspicious:
            repeats = Repeats(survey)
            async for piece in service.artifacts.get(received.blob):
                repeats.feed(piece)
            repeats.end()
            survey.refuse_repeats(repeats.found)
        return survey.dump(received.sha256)


def _invalid_file(why: str) -> Problem:
    detail = f"Invalid file format for Batch API. Must be .jsonl: {why}"
    return Problem(400, detail.rstrip("."), param="file", label="invalid_file_format")


def _purpose(fields: Any) -> str:
    purpose = fields.get("purpose")
    if purpose is None:
        raise Problem(400, "'purpose' is a required property", param="purpose", label="missing_required_parameter")
    if purpose not in PURPOSES:
        detail = f"'{purpose[:64]}' is not one of {list(PURPOSES)} - 'purpose'"
        raise Problem(400, detail, param="purpose", label="invalid_value")
    return str(purpose)


def _lifetime(fields: Any) -> int | None:
    """After how many seconds the file expires, if given."""
    anchor, text = fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]")
    if anchor is None and text is None:
        return None
    if anchor != "created_at":
        raise Problem(400, "the anchor must be created_at", param="expires_after.anchor", label="invalid_value")
    low, high = EXPIRES_SECONDS
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):
        detail = f"the seconds must be a whole number from {low} to {high}"
        raise Problem(400, detail, param="expires_after.seconds", label="invalid_value")
    return int(text)


@router.get("/files")
async def list_files(
    service: Serving,
    who: Reader,
    after: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=LIST_MAX)] = LIST_MAX,
    order: Literal["asc", "desc"] = "desc",
    purpose: Annotated[str | None, Query(pattern=r"^[!-~]{1,100}$")] = None,
) -> Response:
    found = await service.store.files.page(who.owner, after, limit + 1, order == "asc", purpose)
    return JSONResponse(page([file_object(file) for file in found[:limit]], len(found) > limit))


@router.get("/files/{file_id}")
async def show_file(file_id: str, service: Serving, who: Reader) -> Response:
    file = await service.store.files.get(file_id, who.owner)
    if file.blob is None and file.bytes == 0 and file.job_id is not None:
        size = 0
        async for chunk in content(service, file):
            size += len(chunk)
        await service.store.files.count_bytes(file.id, size)
        file = await service.store.files.get(file_id, who.owner)
    return JSONResponse(file_object(file))


@router.delete("/files/{file_id}")
async def delete_file(file_id: str, service: Serving, who: Writer) -> Response:
    await service.store.files.delete(file_id, who.owner)
    await drop_blobs(service)
    return JSONResponse({"id": file_id, "object": "file", "deleted": True})


@router.get("/files/{file_id}/content", response_class=StreamingResponse)
async def download(file_id: str, request: Request, service: Serving, who: Reader) -> Response:
    """The bytes of the file; for a stored file also a range of them."""
    file = await service.store.files.get(file_id, who.owner)
    if file.blob is None:
        return StreamingResponse(content(service, file), media_type="application/octet-stream")
    if await service.artifacts.size(file.blob) is None:  # checked before the answer begins
        raise Problem(410, f"The bytes of {file.id} are gone", hint="upload the file again, or run the batch again")
    headers = {"accept-ranges": "bytes", "content-length": str(file.bytes)}
    span = _span(request.headers.get("range"), file)
    if span is None:
        return _stream(content(service, file), 200, headers)
    start, end = span
    headers["content-range"] = f"bytes {start}-{end - 1}/{file.bytes}"
    headers["content-length"] = str(end - start)
    return _stream(content(service, file, start, end), 206, headers)


def _span(said: str | None, file: StoredFile) -> tuple[int, int] | None:
    """The requested range; None for all bytes. Anything but one single range is ignored, as HTTP allows."""
    form = _RANGE.fullmatch(said.strip()) if said else None
    if form is None or not (form[1] or form[2]):
        return None
    if form[1]:
        start, end = int(form[1]), min(int(form[2]) + 1, file.bytes) if form[2] else file.bytes
        if form[2] and int(form[2]) < start:
            return None
    else:
        start, end = max(file.bytes - int(form[2]), 0), file.bytes
    if start >= end:
        raise Problem(416, "the range is outside the file", headers={"content-range": f"bytes */{file.bytes}"})
    return start, end


def _stream(chunks: AsyncIterator[bytes], status: int, headers: dict[str, str]) -> Response:
    return StreamingResponse(chunks, status, headers, media_type="application/octet-stream")
