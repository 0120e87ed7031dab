"""The request for each row: a template, messages, a body or a function, with images and files beside the text."""

import base64
import json
import mimetypes
import pickle
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import SEEK_END
from pathlib import Path
from threading import Lock
from typing import Any, Final

from backstay.core.display import is_unicode
from backstay.core.errors import UsageError
from backstay.llm.formats import InputOptions, ParsedRequest, check_id, request_of_body, request_of_prompt
from backstay.llm.lines import LinePart, LineRefused, Member, open_temporary, quote_json, write_json
from backstay.llm.repeated_requests import metadata_of_sample
from backstay.llm.row_files import Template

Row = Mapping[str, Any]
Fill = Callable[[Row], Any]  # writes a part of a request for a row

_DOUBLED: Final = re.compile(r"\{\{\s*([^\W\d]\w*)\s*\}\}")
_IMAGE_TYPES: Final = ((b"\x89PNG", "image/png"), (b"\xff\xd8", "image/jpeg"), (b"GIF8", "image/gif"))
_JINJA_SUFFIXES: Final = (".j2", ".jinja", ".jinja2")


@dataclass(frozen=True, slots=True)
class Image:
    """An image of each row, in a list of messages: `Image("photo")`. The column holds a path, a URL or bytes."""

    column: str


@dataclass(frozen=True, slots=True)
class File:
    """A PDF of each row, in a list of messages: `File("invoice")`. The column holds a path or bytes."""

    column: str


@dataclass(frozen=True, slots=True)
class Jinja:
    """A prompt in Jinja's language: `Jinja("{% for tag in tags %}{{ tag }} {% endfor %}")`. It runs in Jinja's sandbox,
    and a column that does not exist is an error."""

    text: str


Prompt = str | Path | Jinja | Image | File | Sequence[Any] | Mapping[str, Any] | Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """The terms that are the same in every request."""

    system: str | None = None
    body: Mapping[str, Any] | None = None  # further members: temperature, a bound on the reply
    nulls: str | None = None  # the text for a missing value; None: a missing value is an error


class RowPrompt:
    """Makes the requests of rows with these columns. Raises UsageError if the prompt itself is wrong."""

    def __init__(self, prompt: Prompt, columns: Sequence[str], options: PromptOptions) -> None:
        self._options = options
        self._texts = _Texts(columns, options.nulls)
        further = dict(options.body or {})
        self._further = [f"{quote_json(name)}:{write_json(value)}" for name, value in further.items()]
        self._given = further
        self._system = None if options.system is None else self._texts.template(options.system, may_be_plain=True)
        self._made = self._compile(prompt)
        if not callable(prompt) and not self._texts.used:
            hint = f"write {{column}} where a value belongs; there are {', '.join(columns)}"
            raise UsageError("the prompt names no column, so every row would get the same answer", hint=hint)

    def request(self, custom_id: str, row: Row, reading: InputOptions, at: int = 0) -> ParsedRequest:
        """The request for a row, the one at this place, from 0."""
        made = self._made(at, row)
        if isinstance(made, str) and self._system is None:
            return request_of_prompt(reading, custom_id, quote_json(made), True, self._further)
        if isinstance(made, Mapping):
            return request_of_body(reading, custom_id, write_json({**self._given, **made}))
        messages = [{"role": "user", "content": made}] if isinstance(made, str) else made
        if self._system is not None:
            messages = [{"role": "system", "content": self._system(row)}, *messages]
        return request_of_prompt(reading, custom_id, write_json(messages), False, self._further)

    def _compile(self, prompt: Prompt) -> Callable[[int, Row], Any]:
        if callable(prompt):
            return (prompt if isinstance(prompt, CalledOnce) else CalledOnce(prompt)).value_of
        fill = self._compile_text(prompt)
        return lambda at, row: fill(row)

    def _compile_text(self, prompt: Prompt) -> Fill:
        texts = self._texts
        match prompt:
            case Path():
                return self._compile_text(_read_template(prompt))
            case str():
                return self._compile_text(Path(prompt)) if prompt.endswith(_JINJA_SUFFIXES) else texts.template(prompt)
            case Jinja():
                return texts.jinja(prompt.text)
            case Mapping():
                return texts.tree(dict(prompt))
            case Image() | File():
                return texts.messages([prompt])
            case Sequence():
                return texts.messages(prompt)
        name = type(prompt).__name__
        hint = "use Jinja('…') of backstay" if name == "Template" else "use a text, messages or a function"
        raise UsageError(f"a prompt cannot be of the type {name}", hint=hint)


class _Texts:
    """Compiles the parts of a prompt, and notes the columns that they use."""

    def __init__(self, columns: Sequence[str], nulls: str | None) -> None:
        self._columns = columns
        self._nulls = nulls
        self.used: set[str] = set()

    def template(self, text: str, may_be_plain: bool = False) -> Fill:
        for doubled in _DOUBLED.finditer(text):
            if doubled[1] in self._columns:
                hint = f"write {{{doubled[1]}}} for the column, or Jinja(...) for a template of Jinja"
                raise UsageError(f"{doubled[0]} in the prompt is ambiguous: a column, or braces as text", hint=hint)
        made = Template(text) if not may_be_plain or "{" in text else None
        if made is None:
            return lambda row: text
        made.check_columns(self._columns)
        names = made.columns_used(self._columns)
        self.used.update(names)
        if made.is_body:
            return self.tree(json.loads(text))
        return lambda row: made.fill({name: self.text_of(row, name) for name in names})

    def jinja(self, text: str) -> Fill:
        try:
            from jinja2 import StrictUndefined, TemplateError, meta
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            raise UsageError("this prompt needs Jinja", hint="pip install 'backstay[jinja]'") from None
        environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined)
        try:
            named = meta.find_undeclared_variables(environment.parse(text))
            made = environment.from_string(text)
        except TemplateError as error:
            raise UsageError(f"the Jinja prompt is not valid: {error}") from None
        Template("".join(f"{{{name}}}" for name in sorted(named))).check_columns(self._columns)
        self.used |= named

        def fill(row: Row) -> str:
            try:
                return made.render({name: self._value(row, name) for name in named})
            except LineRefused:
                raise
            except Exception as error:  # a template can raise anything: it divides, and calls methods
                kind = "" if isinstance(error, TemplateError) else f"{type(error).__name__}: "
                raise LineRefused(f"cannot fill the Jinja prompt: {kind}{error}") from None

        return fill

    def tree(self, value: Any) -> Fill:
        """A body or a part of one: every text in it is a template."""
        match value:
            case str():
                return self.template(value, may_be_plain=True)
            case Image() | File():
                return self._part(value)
            case Mapping():
                members = {name: self.tree(each) for name, each in value.items()}
                return lambda row: {name: fill(row) for name, fill in members.items()}
            case list() | tuple():
                parts = [self.tree(each) for each in value]
                return lambda row: [fill(row) for fill in parts]
        return lambda row: value

    def messages(self, prompt: Sequence[Any]) -> Fill:
        """Messages, or the parts of one message of the user."""
        if all(isinstance(each, Mapping) and "role" in each for each in prompt):
            return self.tree(list(prompt))
        parts = [self._content(each) for each in prompt]
        return lambda row: [{"role": "user", "content": [fill(row) for fill in parts]}]

    def _content(self, part: Any) -> Fill:
        if isinstance(part, str):
            fill = self.template(part, may_be_plain=True)
            return lambda row: {"type": "text", "text": fill(row)}
        return self.tree(part)

    def _part(self, part: Image | File) -> Fill:
        name = part.column
        Template(f"{{{name}}}").check_columns(self._columns)
        self.used.add(name)
        write = _image_part if isinstance(part, Image) else _file_part
        return lambda row: write(name, self._value(row, name))

    def text_of(self, row: Row, name: str) -> str:
        value = self._value(row, name)
        if isinstance(value, str):
            return value
        if isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise LineRefused(f"has bytes in the column {name!r} that are not text") from None
        return json.dumps(value, sort_keys=True, ensure_ascii=False)

    def _value(self, row: Row, name: str) -> Any:
        if name not in row:
            raise LineRefused(f"has no column {name!r}")
        value = row[name]
        if value is None or value != value:  # NaN is not equal to itself
            if self._nulls is None:
                raise LineRefused(f"has no value in the column {name!r}", LinePart.VALUE)
            return self._nulls
        return value


class CalledOnce:
    """A function that makes prompts, called once for each row: what it made is kept in a temporary file. Rows are read
    several times, and a function may be slow, or make something else each time."""

    def __init__(self, function: Callable[[dict[str, Any]], Any]) -> None:
        self._function = function
        self._kept = open_temporary()
        self._starts: array[int] = array("q")
        self._lock = Lock()

    def __call__(self, row: dict[str, Any]) -> Any:
        return self._function(row)

    def value_of(self, at: int, row: Row) -> Any:
        """For the row at this place, from 0."""
        with self._lock:
            if at < len(self._starts):
                self._kept.seek(self._starts[at])
                return _plain(pickle.load(self._kept), row)
            made = self._call(at, row)
            plain = _plain(made, row)
            if at == len(self._starts):  # after a row that is refused nothing is kept: nothing will be sent either
                self._starts.append(self._kept.seek(0, SEEK_END))
                pickle.dump(made, self._kept)
            return plain

    def _call(self, at: int, row: Row) -> Any:
        try:
            made = self(dict(row))
        except Exception as error:
            said = f"the prompt function raised {type(error).__name__} for row {at + 1}: {error}"
            raise UsageError(said, hint="nothing was sent") from error
        if not isinstance(made, str | Mapping | list | tuple):
            kind = f"a value of the type {type(made).__name__}, not a text, messages or a body"
            raise LineRefused(f"gets from the prompt function {kind}")
        return made


def _plain(value: Any, row: Row) -> Any:
    """The result of a prompt function, with its images and files written out."""
    match value:
        case Image() | File():
            write = _image_part if isinstance(value, Image) else _file_part
            if row.get(value.column) is None:
                raise LineRefused(f"has no value in the column {value.column!r}")
            return write(value.column, row[value.column])
        case Mapping():
            return {name: _plain(each, row) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each, row) for each in value]
        case str() if not is_unicode(value):
            raise LineRefused("gets from the prompt function a text that is not valid Unicode")
        case None | bool() | int() | float() | str():
            return value
    raise LineRefused(f"gets from the prompt function a value of the type {type(value).__name__}, which cannot be sent")


def _image_part(column: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str) and value.startswith(("https://", "http://", "data:")):
        return {"type": "image_url", "image_url": {"url": value}}
    data, name = _bytes_of(column, value)
    kind = mimetypes.guess_type(name)[0] or next((kind for start, kind in _IMAGE_TYPES if data.startswith(start)), None)
    kind = kind or ("image/webp" if data[8:12] == b"WEBP" else None)
    if kind is None or not kind.startswith("image/"):
        raise LineRefused(f"has no image in the column {column!r}: PNG, JPEG, GIF and WebP are accepted")
    return {"type": "image_url", "image_url": {"url": _data_url(kind, data)}}


def _file_part(column: str, value: Any) -> dict[str, Any]:
    data, name = _bytes_of(column, value)
    if not data.startswith(b"%PDF"):
        raise LineRefused(f"has no PDF in the column {column!r}")
    return {"type": "file", "file": {"filename": name or "file.pdf", "file_data": _data_url("application/pdf", data)}}


def _bytes_of(column: str, value: Any) -> tuple[bytes, str]:
    """The content of a file, and its name if it has one."""
    if isinstance(value, Mapping) and (value.get("bytes") or value.get("path")):  # the form of images at Hugging Face
        value = value.get("bytes") or value["path"]
    if isinstance(value, bytes):
        return value, ""
    if not isinstance(value, str | Path):
        raise LineRefused(f"has a {type(value).__name__} in the column {column!r}, not a path or bytes")
    try:
        return Path(value).read_bytes(), Path(value).name
    except OSError as error:
        raise LineRefused(
            f"names the file {Path(value).name} in the column {column!r}, which cannot be read: {error.strerror}"
        ) from None


def _data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _read_template(path: Path) -> str | Jinja:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read the prompt {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"the prompt {path} is not UTF-8") from None
    return Jinja(text) if path.name.endswith(_JINJA_SUFFIXES) else text


class RowRequests:
    """The requests of all rows, in their order; read as often as needed."""

    def __init__(
        self, rows: Callable[[], Iterable[Row]], prompt: RowPrompt, id_column: str | None, samples: int
    ) -> None:
        self._rows = rows
        self._prompt = prompt
        self._id_column = id_column
        self._samples = samples

    def entries(self, reading: InputOptions) -> Iterator[tuple[int, ParsedRequest | LineRefused]]:
        """Every request with its number, from 1."""
        number = 0
        for at, row in enumerate(self._rows(), 1):
            for sample in range(self._samples):
                number += 1
                try:
                    yield number, self._request(at, sample, row, reading)
                except LineRefused as refused:
                    yield number, refused

    def _request(self, at: int, sample: int, row: Row, reading: InputOptions) -> ParsedRequest:
        label = f"row-{at}" if self._id_column is None else self._label(row)
        made = self._prompt.request(label if sample == 0 else f"{label}#{sample + 1}", row, reading, at - 1)
        # Several samples of the same request differ only in their metadata, which is not sent.
        return made if sample == 0 else made._replace(metadata=metadata_of_sample(sample + 1))

    def _label(self, row: Row) -> str:
        value = row.get(self._id_column or "")
        if value is None or value == "":
            raise LineRefused(f"has no value in the column {self._id_column!r}, which gives each row its id")
        label = str(value)
        check_id(Member("", label, 0, 0, 0))
        return label
