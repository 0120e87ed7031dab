"""Files that come in as multipart forms: streamed into the artifacts, in constant memory, refused as early as possible.

    received = await receive(
        request, deposit(service, owner), fields={"purpose"}, bytes_max=settings.upload_max_bytes, begin=begin
    )

`begin(head)` is called once, when the file starts, with the fields that came before it (OpenAI's client sends them all
before). It may raise a Problem, and returns None or an async `watch(chunk)`, which sees the file's bytes in order, in
pieces of about 256 KiB, before they are written. The watch may raise a Problem too, and may hand its work to a thread.
What comes back is complete and written: `received.blob` is its name among the artifacts, `received.fields` are all
fields, before and after the file. If anything raises, nothing is left behind. A caller that does not want the file
afterwards deletes `received.blob`; a caller that wants it records it with `keep`.
"""

import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Protocol

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect

from backstay.artifacts import Deposit
from backstay.clock import new_id
from backstay.core.errors import DatabaseUnreachable, FilesUnreachable, NotAllowed
from backstay.server.problems import Problem
from backstay.server.service import Service
from backstay.store.files import NewFile, StoredFile

FILE_FIELD: Final = "file"
PARTS_MAX: Final = 32
FIELD_BYTES_MAX: Final = 64 << 10
FILENAME_LENGTH_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class Head:
    """The facts that are known when the file starts."""

    filename: str
    content_type: str
    fields: Mapping[str, str]


def incomplete_form() -> Problem:
    return Problem(400, "the form ends before its last boundary", hint="the upload was interrupted: send it again")


class Form:
    """The parts of a form as they arrive. Only the current piece of the file is in memory."""

    def __init__(self, boundary: bytes, fields: Collection[str]) -> None:
        self.fields: dict[str, str] = {}
        self.head: Head | None = None
        self.file_bytes = 0
        self.file_ended = False
        self.waiting_bytes = 0
        self._waiting: list[bytes] = []
        self._known = fields
        self._parts = 0
        self._headers: dict[bytes, bytes] = {}
        self._header = (bytearray(), bytearray())
        self._field: str | None = None  # whose value comes now; None: the file's
        self._value = bytearray()
        self._whole = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._on_part,
                    "on_header_begin": self._on_header,
                    "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
                    "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
                    "on_header_end": self._on_header_end,
                    "on_headers_finished": self._on_headers,
                    "on_part_data": self._on_data,
                    "on_part_end": self._on_part_end,
                    "on_end": self._on_end,
                },
            )
        except FormParserError:
            raise Problem(400, "the form's boundary is too long") from None

    def feed(self, chunk: bytes) -> None:
        try:
            self._parser.write(chunk)
        except FormParserError:
            raise Problem(400, "the form is not well-formed", hint="send multipart/form-data") from None

    def take(self) -> bytes:
        """The bytes of the file that came since the last call."""
        piece = b"".join(self._waiting)
        self._waiting.clear()
        self.waiting_bytes = 0
        return piece

    def check_whole(self) -> None:
        if not self._whole:
            raise incomplete_form()

    def _on_part(self) -> None:
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise Problem(413, f"the form has more than {PARTS_MAX} parts")
        self._headers = {}

    def _on_header(self) -> None:
        self._header = (bytearray(), bytearray())

    def _on_header_end(self) -> None:
        name, value = self._header
        self._headers[bytes(name).lower()] = bytes(value)

    def _on_headers(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        self._value = bytearray()
        if name != FILE_FIELD:
            self._field = name
            if name not in self._known or name in self.fields:
                why = "occurs twice" if name in self.fields else "is not known here"
                raise Problem(400, f"the field {name[:64]!r} {why}", param=name[:64])
            return
        if self.head is not None:
            raise Problem(400, "the form has more than one file", hint="send one file at a time", param=name)
        if b"filename" not in options:
            raise Problem(400, f"{name!r} is not a file", hint="send it with a filename", param=name)
        kind, _ = parse_options_header(self._headers.get(b"content-type", b""))
        content_type = kind.decode("latin-1")[:FILENAME_LENGTH_MAX] or "application/octet-stream"
        self.head = Head(_plain_filename(options[b"filename"]), content_type, dict(self.fields))
        self._field = None

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if self._field is None:
            self._waiting.append(data[start:end])
            self.waiting_bytes += end - start
            self.file_bytes += end - start
            return
        self._value += data[start:end]
        if len(self._value) > FIELD_BYTES_MAX:
            raise Problem(413, f"the field {self._field!r} has more than {FIELD_BYTES_MAX} bytes", param=self._field)

    def _on_part_end(self) -> None:
        if self._field is None:
            self.file_ended = True
            return
        try:
            self.fields[self._field] = self._value.decode("utf-8")
        except UnicodeDecodeError:
            raise Problem(400, f"the field {self._field!r} is not UTF-8", param=self._field) from None

    def _on_end(self) -> None:
        self._whole = True


def _plain_filename(raw: bytes) -> str:
    """The last part of a path, without control characters."""
    name = PurePosixPath(raw.decode("utf-8", "replace").replace("\\", "/")).name
    plain = "".join(c for c in name if c.isprintable())[:FILENAME_LENGTH_MAX]
    return plain if plain.strip(". ") else "file"


FORM_BYTES_MAX: Final = 1 << 20  # everything but the file: fields, headers and the text around the parts
PIECE_BYTES: Final = 256 << 10

Watch = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A stored file, under `blob`, with the fields of its form."""

    blob: str
    filename: str
    content_type: str
    bytes: int
    sha256: str
    fields: Mapping[str, str]


class UploadTarget(Protocol):
    """Where the bytes go: a `Deposit`, or artifacts alone."""

    async def put(self, name: str, chunks: AsyncIterable[bytes]) -> int: ...

    async def delete(self, name: str) -> None: ...


async def receive(
    request: Request,
    place: UploadTarget,
    *,
    fields: Collection[str],
    bytes_max: int,
    begin: Callable[[Head], Watch | None],
) -> ReceivedFile:
    """Receives a form with exactly one file and any of `fields`; other fields are refused."""
    form = Form(_boundary(request, bytes_max), fields)
    body = _Body(request, form, bytes_max)
    blob = f"files/{new_id()}"
    try:
        while form.head is None and await body.advance():
            pass
        if form.head is None:
            raise Problem(400, f"the form has no file: {FILE_FIELD!r} is missing", param=FILE_FIELD)
        digest = hashlib.sha256()
        size = await place.put(blob, _file_pieces(body, digest.update, begin(form.head)))
        while await body.advance():
            pass
        form.check_whole()
    except BaseException as error:
        with suppress(FilesUnreachable, DatabaseUnreachable):  # the first error is the better answer
            await place.delete(blob)
        if isinstance(error, Problem):
            error.lingers = not body.ended  # or the sender would have to send all the rest first
        raise
    head = form.head
    return ReceivedFile(blob, head.filename, head.content_type, size, digest.hexdigest(), dict(form.fields))


def deposit(service: Service, owner: str) -> Deposit:
    return Deposit(service.store.files, service.artifacts, owner)


async def keep(service: Service, made: NewFile) -> StoredFile:
    """Stores the row of the file. If a client repeats an upload whose answer was lost, the first file is returned."""
    assert made.blob is not None
    try:
        is_new = await service.store.files.add(made)
    except NotAllowed:
        await service.artifacts.delete(made.blob)
        raise
    if not is_new:
        await service.artifacts.delete(made.blob)
    return await service.store.files.get(made.id, made.owner)


def _boundary(request: Request, bytes_max: int) -> bytes:
    """The boundary of the parts. Refuses a request by its headers if possible, before its body is read."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        hint = "send multipart/form-data with a boundary"
        raise Problem(415, "the file must be sent as a multipart form", hint=hint, lingers=True)
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Problem(415, "a compressed body is not supported", hint="send it without Content-Encoding", lingers=True)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > bytes_max + FORM_BYTES_MAX:
        raise _too_large(bytes_max)
    return options[b"boundary"]


def _too_large(bytes_max: int) -> Problem:
    hint = "split it, or set BACKSTAY_UPLOAD_MAX_BYTES higher"
    return Problem(413, f"the file has more than {bytes_max} bytes", hint=hint, param="file", lingers=True)


async def _file_pieces(body: "_Body", see: Callable[[bytes], None], watch: Watch | None) -> AsyncIterator[bytes]:
    """The file's bytes in larger pieces; each is digested and checked before it is stored."""
    form = body.form
    while form.waiting_bytes or not form.file_ended:
        while form.waiting_bytes < PIECE_BYTES and not form.file_ended:
            if not await body.advance():
                raise incomplete_form()
        piece = form.take()
        see(piece)
        if watch is not None:
            await watch(piece)
        yield piece


class _Body:
    """The request's body, which is fed to the form within limits."""

    def __init__(self, request: Request, form: Form, bytes_max: int) -> None:
        self.form = form
        self._chunks = request.stream()
        self._bytes_max = bytes_max
        self._seen_bytes = 0
        self.ended = False

    async def advance(self) -> bool:
        """Feeds one more chunk; False at the end."""
        chunk = await self._next()
        if not chunk:
            return False
        self._seen_bytes += len(chunk)
        self.form.feed(chunk)
        if self.form.file_bytes > self._bytes_max:
            raise _too_large(self._bytes_max)
        if self._seen_bytes - self.form.file_bytes > FORM_BYTES_MAX:
            raise Problem(413, f"the form has more than {FORM_BYTES_MAX} bytes besides its file")
        return True

    async def _next(self) -> bytes:
        """The next bytes; empty at the end, however often it is called."""
        try:
            while not self.ended:
                chunk = await anext(self._chunks, None)
                self.ended = chunk is None
                if chunk:
                    return chunk
        except ClientDisconnect:
            raise incomplete_form() from None
        return b""


__all__ = ["Head", "ReceivedFile", "Watch", "deposit", "keep", "receive"]
