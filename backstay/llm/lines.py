"""Requests, and files of lines or of a JSON array: they can be read twice, with line numbers and positions in JSON."""

import codecs
import io
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, NoReturn

from backstay.core.callbacks import NESTING_MAX, is_too_deep
from backstay.core.errors import ErrorCode, Transient, UsageError

if TYPE_CHECKING:
    from typing_extensions import Buffer

BUFFER_BYTES: Final = 1 << 16


def open_temporary() -> BinaryIO:
    """A temporary file whose errors say which folder is full, and what to do about it."""
    try:
        with tempfile.TemporaryFile(prefix="backstay-", buffering=0) as made:
            return io.BufferedRandom(_Raw(os.dup(made.fileno()), "r+"), BUFFER_BYTES)
    except OSError as error:
        raise no_room_error(error) from error


def no_room_error(error: Exception) -> Transient:
    folder = tempfile.tempdir or "any folder"
    why = error.strerror if isinstance(error, OSError) and error.strerror else error
    message = f"a temporary file cannot be written in {folder}: {why}; set TMPDIR to another folder"
    return Transient(message, ErrorCode.IO_ERROR)


class _Raw(io.FileIO):
    def write(self, data: "Buffer", /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise no_room_error(error) from error


_BODY = ',"body":'  # inside a JSON string its quotes would be escaped, so the first one is the key
_FIRST = '{"custom_id":"'
_MEMBERS = tuple(("custom_id", "url", *kept, "body") for kept in ((), ("metadata",), ("chat",), ("metadata", "chat")))
_URL = '","url":"'  # likewise; without escapes, the text between these is the value


class LlmRequest(NamedTuple):
    """One line of a file of requests: `url` is its path, `body` the JSON text to send.

    `metadata` is JSON text that is not sent and comes back in the line of the result. It and `chat` are stored as
    strings.
    """

    custom_id: str
    url: str
    body: str
    metadata: str | None = None
    chat: str | None = None  # the body as it was before it was translated, if another provider may get it


def seal(request: LlmRequest) -> str:
    kept = "" if request.metadata is None else f',"metadata":{json.dumps(request.metadata)}'
    if request.chat is not None:
        kept += f',"chat":{json.dumps(request.chat)}'
    names = f'"custom_id":{json.dumps(request.custom_id)},"url":{json.dumps(request.url)}{kept}'
    return f"{{{names}{_BODY}{request.body}}}"


def unseal(text: str) -> LlmRequest:
    head, _, rest = text.partition(_BODY)
    custom_id, found, url = head[len(_FIRST) : -1].partition(_URL)
    if not found or not head.startswith(_FIRST) or "\\" in head or '"' in url:
        named = json.loads(head + "}")
        return LlmRequest(named["custom_id"], named["url"], rest[:-1], named.get("metadata"), named.get("chat"))
    return LlmRequest(custom_id, url, rest[:-1])


def require_request(payload: Any) -> LlmRequest:
    """The request of a payload: text as `seal` writes it, or the parsed value of such text."""
    said = _read(payload) if isinstance(payload, str) else payload
    if not isinstance(said, dict) or tuple(said) not in _MEMBERS:
        raise UsageError("a request must have a custom_id, a url and a body, in this order")
    custom_id, url, body, metadata = said["custom_id"], said["url"], said["body"], said.get("metadata")
    if not (isinstance(custom_id, str) and isinstance(url, str) and isinstance(body, dict)):
        raise UsageError("the custom_id and the url of a request must be text, and its body an object")
    if "metadata" in said and (not isinstance(metadata, str) or _read(metadata) is None):
        raise UsageError("the metadata of a request must be JSON, written as a text")
    if "chat" in said and not isinstance(_read(said["chat"]), dict):
        raise UsageError("the chat request of a request must be a JSON object, written as a text")
    return LlmRequest(custom_id, url, json.dumps(body), metadata, said.get("chat"))


def _read(text: Any) -> object:
    try:
        return json.loads(text)
    except (ValueError, TypeError):
        return None


LINE_BYTES_MAX = 60 * 1024 * 1024  # an item may have 64 Mi characters, and some are needed around its body
CHUNK_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"

_AROUND = " \t\r\n\ufeff"  # the mark is at the start of a file, and in the middle where files were joined
_OPENING = re.compile(r'\{[ \t\r\n]*(?="|\}\Z)')
_KEY = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\r\n]*:[ \t\r\n]*')
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_FOLLOWING = re.compile(r'[ \t\r\n]*(?:,[ \t\r\n]*(?=")|(?=\}\Z))')
_SURROGATE = re.compile("[\ud800-\udfff]")


class LinePart(StrEnum):
    """The part of a line that is wrong."""

    JSON = "json"
    CUSTOM_ID = "custom_id"
    METHOD = "method"
    URL = "url"
    BODY = "body"
    MODEL = "model"
    VALUE = "value"  # of a column: it is missing


class LineRefused(Exception):
    """Why a line cannot be used, as a phrase to follow its number, and the part that is wrong."""

    def __init__(self, reason: str, part: LinePart | None = None) -> None:
        super().__init__(reason)
        self.part = part


class Member(NamedTuple):
    """A member of an object, and its position in the text: key and value from `at`, the value from `start`."""

    key: str
    value: Any
    at: int
    start: int
    end: int


@contextmanager
def open_lines(file: str) -> Iterator[IO[bytes]]:
    """The file, to be read more than once: stdin (`-`) and pipes are put into a temporary one first."""
    if file == "-":
        with _spool(sys.stdin.buffer) as spooled:
            yield spooled
        return
    try:
        found = open(file, "rb")  # noqa: SIM115 - closed below; only the opening may say that there is no such file
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    with found:
        if found.seekable():
            yield found
        else:
            with _spool(found) as spooled:
                yield spooled


@contextmanager
def _spool(stream: IO[bytes]) -> Iterator[IO[bytes]]:
    with open_temporary() as spooled:
        shutil.copyfileobj(stream, spooled, CHUNK_BYTES)
        spooled.seek(0)
        yield spooled


def number_lines(file: IO[bytes], bytes_max: int = LINE_BYTES_MAX) -> Iterator[tuple[int, bytes | None]]:
    """Every line with its number, from 1; None in place of one that is longer than the bound."""
    for number, line in enumerate(iter(partial(file.readline, bytes_max + 1), b""), start=1):
        if len(line) > bytes_max and not line.endswith(b"\n"):
            while (rest := file.readline(CHUNK_BYTES)) and not rest.endswith(b"\n"):
                pass
            yield number, None
        else:
            yield number, line


def text_of(line: bytes) -> str:
    """The text of a line without the space around it; empty if it is blank."""
    try:
        return line.decode("utf-8").strip(_AROUND)
    except UnicodeDecodeError as error:
        raise LineRefused(f"is not UTF-8: {error.reason} at byte {error.start + 1}") from None


def value_of(text: str) -> Any:
    """The text as one JSON value."""
    value, end = value_at(text, 0)
    if end != len(text):
        raise LineRefused(f"is not JSON: Extra data at column {end + 1}", LinePart.JSON)
    return value


def value_at(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that starts at a position, and where it ends."""
    try:
        found = _scan(text, start)
    except (ValueError, RecursionError) as error:
        raise _refusal_of(error) from None
    _check_depth(text, found[0])
    return found


def members(text: str) -> list[Member]:
    """The members of an object in their order, those that share a key included."""
    found: list[Member] = []
    try:
        at = _OPENING.match(text)
        while at is not None and text[start := at.end()] != "}":
            key = _KEY.match(text, start)
            name, value_start = (key[1], key.end()) if key is not None else _key_at(text, start)
            value, end = _scan(text, value_start)
            found.append(Member(name, value, start, value_start, end))
            _check_depth(text, value)
            at = _FOLLOWING.match(text, end)
    except (ValueError, RecursionError) as error:
        raise _refusal_of(error) from None
    if at is None:
        value_of(text)  # raises the error that describes it
        raise LineRefused("is not a JSON object", LinePart.JSON)
    return found


def replace_member(text: str, key: str, value: str) -> str:
    """The object with another value, given as JSON, for an existing member; the rest stays byte for byte."""
    text = text.strip(_AROUND)
    for member in reversed(members(text)):
        if member.key == key:
            text = f"{text[: member.start]}{value}{text[member.end :]}"
    return text


def body_with_model(url: str, body: str, model: str) -> tuple[str, str]:
    """A request that names its model in its body, for another model."""
    named = [member for member in members(body.strip(_AROUND)) if member.key == "model"]
    if named:
        return url, replace_member(body, "model", quote_json(model))
    rest = body.strip(_AROUND)[1:].lstrip()
    return url, f'{{"model":{quote_json(model)}{"" if rest.startswith("}") else ","}{rest}'


def _key_at(text: str, start: int) -> tuple[str, int]:
    """A key with escapes in it, and where its value starts."""
    name, end = _scan(text, start)
    colon = _COLON.match(text, end)
    if colon is None:
        raise json.JSONDecodeError("Expecting ':' delimiter", text, end)
    return name, colon.end()


def quote_json(text: str) -> str:
    """The text as JSON, without escaping letters; a lone surrogate has no UTF-8 form and is escaped."""
    return encode_basestring_ascii(text) if _SURROGATE.search(text) else encode_basestring(text)


def write_json(value: Any) -> str:
    """The value as JSON, without escaping letters; lone surrogates have no UTF-8 form and are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return json.dumps(value, separators=(",", ":")) if _SURROGATE.search(text) else text


def preview(value: Any) -> str:
    """A value as JSON, for a person to see: its beginning, if it is long."""
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _check_depth(text: str, value: Any) -> None:
    # A text nested so deep has at least that many opening and closing brackets.
    if len(text) <= 2 * NESTING_MAX or text.count("[") + text.count("{") <= NESTING_MAX:
        return
    if is_too_deep(value):
        raise LineRefused(_TOO_DEEP)


def _refusal_of(error: Exception) -> LineRefused:
    if isinstance(error, json.JSONDecodeError):
        reason = f"is not JSON: {error.msg.removesuffix(' at')} at column {error.pos + 1}"
        return LineRefused(reason, LinePart.JSON)
    if isinstance(error, RecursionError):
        return LineRefused(_TOO_DEEP)
    return LineRefused(f"is not JSON: {error}", LinePart.JSON)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


_TOO_DEEP = f"is nested more than {NESTING_MAX} levels deep"
_scan = json.JSONDecoder(parse_constant=_refuse).raw_decode


# A JSON array that is too large for memory, element by element

_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
_SCAN = json.JSONDecoder().raw_decode


@contextmanager
def array_as_lines(lines: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """A JSON array as JSON Lines: an element a line, so that its number is the number of its line."""
    with open_temporary() as spooled:
        for element in _elements(lines, name):
            spooled.write(element.encode("utf-8", "surrogatepass") + b"\n")
        spooled.seek(0)
        yield spooled


def _elements(lines: IO[bytes], name: str) -> Iterator[str]:
    """The text of every element, on one line: a raw line end in JSON can only stand between tokens."""
    buffer = _ArrayBuffer(lines, name)
    buffer.skip("[")
    if buffer.next_character() == "]":
        buffer.end(0)
        return
    number = 1
    while True:
        yield buffer.element(number).replace("\n", " ").replace("\r", " ")
        mark = buffer.next_character()
        if mark == "]":
            buffer.end(number)
            return
        if mark != ",":
            raise UsageError(f"{name} is not a JSON array: element {number} is not followed by a comma or ]")
        buffer.skip(",")
        number += 1


class _ArrayBuffer:
    """The part of a JSON array that is read and not yet used."""

    def __init__(self, lines: IO[bytes], name: str) -> None:
        self._lines = lines
        self._name = name
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._ended = False

    def next_character(self) -> str:
        """The next character that is not space; empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = self._at if found is None else found.end()
            if self._at < len(self._text) or not self._read(CHUNK_BYTES):
                return self._text[self._at : self._at + 1]

    def skip(self, mark: str) -> None:
        self.next_character()
        self._at += len(mark)

    def element(self, number: int) -> str:
        self.next_character()
        while True:
            try:
                _, end = _SCAN(self._text, self._at)
            except (ValueError, RecursionError) as error:
                self._require_more(number, error)
                continue
            if end < len(self._text) or self._ended:
                text, self._at = self._text[self._at : end], end
                return text
            self._require_more(number, None)  # the part that is read may end inside a number

    def end(self, number: int) -> None:
        self.skip("]")
        if self.next_character():
            raise UsageError(f"{self._name} has more text after its array of {number:,} elements")

    def _require_more(self, number: int, error: Exception | None) -> None:
        """Reads twice as much each time, so that a long element is not scanned again and again."""
        held = len(self._text) - self._at
        if held > LINE_BYTES_MAX:
            raise UsageError(f"{self._name}: element {number} has more than {LINE_BYTES_MAX:,} bytes")
        if not self._read(max(CHUNK_BYTES, held)) and error is not None:
            what = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
            raise UsageError(f"{self._name}: element {number} is not JSON: {what}")

    def _read(self, size: int) -> bool:
        if self._ended:
            return False
        chunk = self._lines.read(size)
        self._ended = not chunk
        try:
            more = self._decode.decode(chunk, final=self._ended)
        except UnicodeDecodeError as error:
            raise UsageError(f"{self._name} is not UTF-8: {error.reason}") from None
        self._text, self._at = self._text[self._at :] + more, 0
        return not self._ended
