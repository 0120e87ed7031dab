"""A multipart form, part by part as its bytes come in, with a bound on everything but its one file."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from backstay.server.problems import Problem

FILE_FIELD: Final = "file"
PARTS_MAX: Final = 32
FIELD_BYTES_MAX: Final = 64 << 10
FILENAME_LENGTH_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class Head:
    """What is known when the file starts."""

    filename: str
    content_type: str
    fields: Mapping[str, str]


def broken_off() -> Problem:
    return Problem(400, "the form ends before its last boundary", hint="the upload was interrupted: send it again")


class Form:
    """The parts of a form as they come. Of the file nothing is kept but the piece in hand."""

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
        """What has come of the file since it was taken last."""
        piece = b"".join(self._waiting)
        self._waiting.clear()
        self.waiting_bytes = 0
        return piece

    def check_whole(self) -> None:
        if not self._whole:
            raise broken_off()

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
    """The last part of a path, without what a terminal or a header would take for a command."""
    name = PurePosixPath(raw.decode("utf-8", "replace").replace("\\", "/")).name
    plain = "".join(c for c in name if c.isprintable())[:FILENAME_LENGTH_MAX]
    return plain if plain.strip(". ") else "file"
