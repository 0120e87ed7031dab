"""What a line of a file of requests may look like, and how it becomes a request."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from backstay.core.errors import UsageError
from backstay.llm.endpoint import DEFAULT_API, path_of
from backstay.llm.lines import (
    LinePart,
    LineRefused,
    LlmRequest,
    Member,
    members,
    preview,
    quote_json,
    value_at,
    value_of,
)
from backstay.llm.provider import RequestForm
from backstay.llm.registry import provider_named

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BREAKS = re.compile(r"[\r\n]+")
_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class Template:
    """Text in which {name} stands for a column, and {{ and }} for braces.

    Text that is a JSON object is a body: there the names are inside its strings, and their values are escaped.
    """

    def __init__(self, text: str) -> None:
        self.is_body = _is_object(text)
        # Between the strings of JSON a line break is only space, and a request must stay on one line.
        pieces = _split_body(_BREAKS.sub(" ", text.strip())) if self.is_body else _split(text)
        self._pieces = pieces  # literal text and column names take turns
        self._names = frozenset(pieces[1::2])

    def check_columns(self, columns: Iterable[str]) -> None:
        known = list(columns)
        for name in sorted(self._names.difference(known)):
            hint = f"there are {', '.join(known)}; for braces write {{{{{name}}}}}"
            raise UsageError(f"the template has {{{name}}}, which is not a column of the file", hint=hint)

    def fill(self, row: Mapping[str, str]) -> str:
        filled = list(self._pieces)
        for at in range(1, len(filled), 2):
            value = row.get(filled[at])
            if value is None:
                raise LineRefused(f"has no {filled[at]!r}, which the template names")
            filled[at] = quote_json(value)[1:-1] if self.is_body else value
        return "".join(filled)


def _is_object(text: str) -> bool:
    try:
        return isinstance(value_of(text.strip()), dict)
    except LineRefused:
        return False


def _split(text: str) -> list[str]:
    """Literal text, a name, literal text, a name, … literal text."""
    pieces, end = [""], 0
    for place in _PLACE.finditer(text):
        pieces[-1] += text[end : place.start()]
        end = place.end()
        if len(place[0]) == 1:
            near = text[max(place.start() - 20, 0) : place.end() + 20]
            raise UsageError(f"the template has a lone {place[0]} in {near!r}", hint="to write a brace, double it")
        if place[1] is None:
            pieces[-1] += place[0][0]
        else:
            pieces += [place[1].strip(), ""]
    pieces[-1] += text[end:]
    return pieces


def _split_body(text: str) -> list[str]:
    pieces, end = [""], 0
    for string in _STRING.finditer(text):
        first, *rest = _split(string[0])
        pieces[-1] += text[end : string.start()] + first
        pieces += rest
        end = string.end()
    pieces[-1] += text[end:]
    return pieces


CUSTOM_ID_CHARACTERS_MAX = 512
IDS = ("custom_id", "id")
METADATA = "metadata"
METADATA_CHARACTERS_MAX = 1 << 16
ENVELOPE = ("custom_id", "method", "url", "body")

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# Nearly every line of the Batch format looks like this up to its body, and nearly all others only have another order.
# To look for these two first makes reading several times as fast.
_HEAD = re.compile(
    r'\{"custom_id": ?"([^"\\\x00-\x1f\x7f-\x9f]{1,512})", ?"method": ?"POST", ?"url": ?"([^"\\]*)", ?"body": ?(?=\{)'
)
_PAIR = r'"(custom_id|method|url)": ?"([^"\\\x00-\x1f\x7f-\x9f]*)"'
_PAIRS = re.compile(_PAIR)
_BEFORE = re.compile(rf'\{{(?:{_PAIR}, ?)*"body": ?(?=\{{)')
_AFTER = re.compile(rf"(?:, ?{_PAIR})*\}}")


class Format(StrEnum):
    """How the requests of a file are written."""

    BATCH = "batch"
    BODIES = "bodies"
    PROMPTS = "prompts"
    ROWS = "rows"
    CSV = "csv"


class OnlyPath(NamedTuple):
    """The one path whose requests can be taken, and the option that wants it so."""

    path: str
    option: str
    background: bool = False  # it does them in the background


@dataclass(frozen=True, slots=True)
class InputOptions:
    """What the user says about a file: the parts of a request that its lines leave out, and what may be in it."""

    format: Format | None = None
    model: str | None = None
    template: str | None = None
    endpoint: str | None = None
    base_url: str | None = None
    only: OnlyPath | None = None
    background: bool = False  # whether a request may ask to be done in the background
    api: str = DEFAULT_API  # the provider that the requests are for

    @property
    def form(self) -> RequestForm:
        return provider_named(self.api).requests


class ParsedRequest(NamedTuple):
    """A request, and its body as a value too."""

    custom_id: str
    url: str
    body: str
    fields: dict[str, Any]
    metadata: str | None = None  # JSON that is not sent and comes back with the result
    model: str | None = None

    @property
    def request(self) -> LlmRequest:
        return LlmRequest(self.custom_id, self.url, self.body, self.metadata)


Parser = Callable[[int, str], ParsedRequest]  # of a line's number and text


class BatchLines:
    """{"custom_id": …, "method": "POST", "url": …, "body": {…}}: the body is kept byte for byte."""

    def __init__(self, reading: InputOptions) -> None:
        self._reading = reading
        self._form = reading.form

    def __call__(self, number: int, text: str) -> ParsedRequest:
        head = _HEAD.match(text)
        if head is not None:
            start = head.end()
            fields, end = value_at(text, start)
            if text[end:] == "}":
                custom_id, url = head.groups()
                path = path_of(url, self._reading.base_url)
                return _checked(self._form, self._reading, custom_id, path, text[start:end], fields)
        return self._in_any_order(text) or self._walk(text)

    def _in_any_order(self, text: str) -> ParsedRequest | None:
        """A line with exactly the four members, each in its simplest form."""
        before = _BEFORE.match(text)
        if before is None:
            return None
        fields, end = value_at(text, before.end())
        pairs = _PAIRS.findall(text, 0, before.end()) + _PAIRS.findall(text, end)
        named = dict(pairs)
        if len(pairs) != 3 or len(named) != 3 or named["method"] != "POST" or not _AFTER.fullmatch(text, end):
            return None
        if not 0 < len(named["custom_id"]) <= CUSTOM_ID_CHARACTERS_MAX:
            return None
        path = path_of(named["url"], self._reading.base_url)
        return _checked(self._form, self._reading, named["custom_id"], path, text[before.end() : end], fields)

    def _walk(self, text: str) -> ParsedRequest:
        named: dict[str, Member] = {}
        for member in members(text):
            if member.key in named and member.key in ENVELOPE:
                raise LineRefused(f'has "{member.key}" twice', LinePart(member.key))
            named[member.key] = member
        custom_id, method, url, body = (named.get(key, _MISSING) for key in ENVELOPE)
        if method is not _MISSING and str(method.value).upper() != "POST":
            raise LineRefused(f"has the method {preview(method.value)}; only POST is sent", LinePart.METHOD)
        if body is _MISSING:
            raise LineRefused("has no body", LinePart.BODY)
        where = self._reading.endpoint if url is _MISSING else url.value
        if not isinstance(where, str):
            reason = "has no url" if url is _MISSING else f"has the url {preview(where)}, which is not a text"
            raise LineRefused(reason, LinePart.URL)
        _check_id(custom_id)
        path = path_of(where, self._reading.base_url)
        return _checked(self._form, self._reading, custom_id.value, path, text[body.start : body.end], body.value)


class BodyLines:
    """{"model": …, "messages": […]}: the line is the body; only its own id and its metadata are taken out of it.

    Such files are written for OpenAI's cookbook, whose script never sends the metadata, and writes it beside the reply.
    Only together with `"store": true` can it be meant for the provider.
    """

    def __init__(self, reading: InputOptions) -> None:
        self._reading = reading
        self._form = reading.form

    def __call__(self, number: int, text: str) -> ParsedRequest:
        fields = value_of(text)
        if not isinstance(fields, dict):
            raise LineRefused("is not a JSON object", LinePart.JSON)
        url = self._reading.endpoint or self._form.url_of_body(fields, self._reading.model)
        custom_id = _named_id(fields, number)
        taken = IDS if self._form.sends_metadata(fields) else (*IDS, METADATA)
        metadata = None
        if any(key in fields for key in taken) or self._form.model_members(fields, self._reading.model):
            found = members(text)
            metadata = _metadata(text, found) if METADATA in taken else None
            text = _joined(self._form.model_members(fields, self._reading.model), _others(text, found, taken))
            fields = value_of(text)
        checked = _checked(
            self._form, self._reading, custom_id, path_of(url, self._reading.base_url), text, fields, _MODEL_HINT
        )
        return checked if metadata is None else checked._replace(metadata=metadata)


class PromptLines:
    """{"prompt": …}: becomes the body of a chat request, with all other members of the line."""

    def __init__(self, reading: InputOptions) -> None:
        self._reading = reading
        self._form = reading.form

    def __call__(self, number: int, text: str) -> ParsedRequest:
        found = members(text)
        fields = {member.key: member.value for member in found}
        prompt = next((member for member in found if member.key == "prompt"), _MISSING)
        if not isinstance(prompt.value, str | list):
            raise LineRefused(
                "has no prompt" if prompt is _MISSING else "has a prompt that is neither text nor messages"
            )
        url = path_of(self._reading.endpoint or self._form.url_of_prompt(self._reading.model), self._reading.base_url)
        asked = self._form.prompt_member(url, text[prompt.start : prompt.end], isinstance(prompt.value, str))
        body = _joined(
            self._form.model_members(fields, self._reading.model), [asked, *_others(text, found, (*IDS, "prompt"))]
        )
        return _checked(self._form, self._reading, _named_id(fields, number), url, body, value_of(body), _MODEL_HINT)


class Rows:
    """Named texts, from a CSV file or from JSON objects, that fill a template: a prompt, or a whole body."""

    def __init__(self, reading: InputOptions) -> None:
        self._reading = reading
        self._form = reading.form
        self._template = Template(reading.template or "{prompt}")

    def __call__(self, number: int, text: str) -> ParsedRequest:
        row = value_of(text)
        if not isinstance(row, dict):
            raise LineRefused("is not a JSON object", LinePart.JSON)
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in row.items()}
        return self.fill(number, texts)

    def fill(self, number: int, row: Mapping[str, str]) -> ParsedRequest:
        filled = self._template.fill(row)
        url = self._reading.endpoint
        if self._template.is_body:
            fields = value_of(filled)
            if self._form.model_members(fields, self._reading.model):
                filled = _joined(
                    self._form.model_members(fields, self._reading.model), _others(filled, members(filled), ())
                )
                fields = value_of(filled)
            url = path_of(url or self._form.url_of_body(fields, self._reading.model), self._reading.base_url)
        else:
            url = path_of(url or self._form.url_of_prompt(self._reading.model), self._reading.base_url)
            filled = _joined(
                self._form.model_members({}, self._reading.model),
                [self._form.prompt_member(url, quote_json(filled), True)],
            )
            fields = value_of(filled)
        return _checked(self._form, self._reading, _named_id(row, number), url, filled, fields, _MODEL_HINT)

    def check_columns(self, columns: Iterable[str]) -> None:
        self._template.check_columns(columns)


def _checked(
    form: RequestForm, reading: InputOptions, custom_id: str, url: str, body: str, fields: Any, hint: str = ""
) -> ParsedRequest:
    if not isinstance(fields, dict):
        raise LineRefused("has a body that is not an object", LinePart.BODY)
    try:
        model = form.check_body(url, fields, reading.background)
    except LineRefused as refused:
        if refused.part is not LinePart.MODEL:
            raise
        raise LineRefused(f"{refused}{hint}", refused.part) from None
    return ParsedRequest(custom_id, url, body, fields, model=model)


def _check_id(found: Member) -> None:
    custom_id = found.value
    if found is _MISSING or custom_id is None or custom_id == "":
        raise LineRefused("has no custom_id", LinePart.CUSTOM_ID)
    if not isinstance(custom_id, str):
        raise LineRefused(f"has the custom_id {preview(custom_id)}, which is not a text", LinePart.CUSTOM_ID)
    if len(custom_id) > CUSTOM_ID_CHARACTERS_MAX:
        reason = f"has a custom_id of {len(custom_id):,} characters; the limit is {CUSTOM_ID_CHARACTERS_MAX}"
        raise LineRefused(reason, LinePart.CUSTOM_ID)
    if _UNPRINTABLE.search(custom_id):
        raise LineRefused(
            f"has the custom_id {preview(custom_id)}, with characters that cannot be printed", LinePart.CUSTOM_ID
        )


def _named_id(fields: Mapping[str, Any], number: int) -> str:
    """The line's own id if it has one; otherwise one that is the same every time the file is read."""
    for name in IDS:
        given = fields.get(name)
        if given is not None and given != "":
            if isinstance(given, int) and not isinstance(given, bool):
                given = str(given)
            _check_id(Member(name, given, 0, 0, 0))
            return str(given)
    return f"request-{number}"


def _metadata(text: str, found: Sequence[Member]) -> str | None:
    kept = next((member for member in reversed(found) if member.key == METADATA), _MISSING)
    if kept.value is None:
        return None
    if kept.end - kept.start > METADATA_CHARACTERS_MAX:
        size = f"{kept.end - kept.start:,} characters; the limit is {METADATA_CHARACTERS_MAX:,}"
        raise LineRefused(f"has metadata of {size}")
    return text[kept.start : kept.end]


def _others(text: str, found: Sequence[Member], without: tuple[str, ...]) -> list[str]:
    """The members of an object as they are in its text, except some."""
    return [text[member.at : member.end] for member in found if member.key not in without]


def _joined(first: list[str], rest: list[str]) -> str:
    return f"{{{','.join([*first, *rest])}}}"


_MODEL_HINT = "; --model gives one"  # for all but `batch` lines, which are never changed
_MISSING = Member("", None, 0, 0, 0)

PARSERS: dict[Format, Callable[[InputOptions], Parser]] = {
    Format.BATCH: BatchLines,
    Format.BODIES: BodyLines,
    Format.PROMPTS: PromptLines,
    Format.ROWS: Rows,
}
