"""The formats of a line in a file of requests, and how a line becomes a request."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from backstay.llm.chat_format import foreign_member
from backstay.llm.endpoint import DEFAULT_API, path_of
from backstay.llm.fallbacks import FallbackPlace, FallbackRequest, Route, request_for
from backstay.llm.lines import (
    LinePart,
    LineRefused,
    LlmRequest,
    Member,
    members,
    preview,
    quote_json,
    replace_member,
    value_at,
    value_of,
    write_json,
)
from backstay.llm.provider import LlmProvider, RequestForm
from backstay.llm.providers import CHAT, provider_named, provider_of_url, split_model
from backstay.llm.row_files import Template
from backstay.llm.schemas import AnswerSchema

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
    TEXT = "text"


class OnlyPath(NamedTuple):
    """The only path that can be sent, and the option that restricts it."""

    path: str
    option: str
    background: bool = False  # the option sends requests in the background


@dataclass(frozen=True, slots=True)
class InputOptions:
    """The options about a file: the parts of a request that its lines leave out, and what a line may contain."""

    format: Format | None = None
    model: str | None = None
    template: str | None = None
    endpoint: str | None = None
    base_url: str | None = None
    only: OnlyPath | None = None
    background: bool = False  # whether a request may ask to be done in the background
    api: str = DEFAULT_API  # the provider that the requests are for
    output_tokens_default: int | None = None  # the bound of a reply, where a format needs one and a line has none
    named: bool = False  # whether a model may be written as provider:model; the provider's name is not sent
    choose: "Callable[[str | None, str | None], InputOptions] | None" = None  # by model and url; None: all are the same
    fallbacks: tuple[FallbackPlace, ...] = ()  # the fallbacks of a request, in this order
    schema: AnswerSchema | None = None  # that every answer must fit

    @property
    def form(self) -> RequestForm:
        return provider_named(self.api).requests

    @property
    def prompt_form(self) -> RequestForm:
        """The format of prompts and rows: OpenAI's chat format, if the provider's own is translated from it."""
        translated = provider_named(self.api).chat is not None and self.endpoint in (None, CHAT)
        return provider_named(DEFAULT_API).requests if translated else self.form

    def url_of_body(self, fields: Mapping[str, Any]) -> str:
        """The url of a body that comes without one."""
        chat = provider_named(self.api).chat
        is_chat = chat is not None and chat.is_chat(fields)
        return self.endpoint or (CHAT if is_chat else self.form.url_of_body(fields, self.model))

    def of_line(self, model: object, url: object = None) -> "InputOptions":
        """The options for a line with this model and this url; None: the line names none."""
        if self.choose is None:
            return self
        model = model if isinstance(model, str) else self.model
        return self.choose(model, url if isinstance(url, str) else self.endpoint)

    def sent_model(self, model: str) -> str:
        """A model's name as its provider knows it."""
        named, rest = split_model(model) if self.named and ":" in model else (None, model)
        return rest if named == self.api else model


class ParsedRequest(NamedTuple):
    """A request, and its body as a value too."""

    custom_id: str
    url: str
    body: str
    fields: dict[str, Any]
    metadata: str | None = None  # JSON that is not sent and comes back with the result
    model: str | None = None
    api: str = DEFAULT_API  # the provider that it is for
    chat: str | None = None  # the body before it was translated, if a fallback may get it
    fallbacks: tuple[FallbackRequest, ...] = ()  # the same request as each of its fallbacks gets it

    @property
    def request(self) -> LlmRequest:
        return LlmRequest(self.custom_id, self.url, self.body, self.metadata, self.chat)

    @property
    def route(self) -> Route:
        return Route(self.api, tuple(each.fallback for each in self.fallbacks) if self.fallbacks else ())


Parser = Callable[[int, str], ParsedRequest]  # of a line's number and text


class BatchLines:
    """{"custom_id": …, "method": "POST", "url": …, "body": {…}}: the body is kept byte for byte."""

    def __init__(self, reading: InputOptions) -> None:
        self._reading = reading

    def __call__(self, number: int, text: str) -> ParsedRequest:
        head = _HEAD.match(text)
        if head is not None:
            start = head.end()
            fields, end = value_at(text, start)
            if text[end:] == "}":
                custom_id, url = head.groups()
                return self._of_parts(custom_id, url, text[start:end], fields)
        return self._in_any_order(text) or self._walk(text)

    def _of_parts(self, custom_id: str, url: str, body: str, fields: Any) -> ParsedRequest:
        reading = self._reading
        if reading.choose is not None:
            reading = reading.of_line(fields.get("model") if isinstance(fields, dict) else None, url)
        return _check(reading, custom_id, path_of(url, reading.base_url), body, fields)

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
        return self._of_parts(named["custom_id"], named["url"], text[before.end() : end], fields)

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
        check_id(custom_id)
        return self._of_parts(custom_id.value, where, text[body.start : body.end], body.value)


class BodyLines:
    """{"model": …, "messages": […]}: the line is the body; only its own id and its metadata are taken out of it."""

    def __init__(self, reading: InputOptions) -> None:
        self._reading = reading

    def __call__(self, number: int, text: str) -> ParsedRequest:
        fields = value_of(text)
        if not isinstance(fields, dict):
            raise LineRefused("is not a JSON object", LinePart.JSON)
        reading = self._reading.of_line(fields.get("model"))
        form, model = reading.form, reading.model
        url = reading.url_of_body(fields)
        custom_id = _read_id(fields, number)
        taken = IDS if form.sends_metadata(fields) else (*IDS, METADATA)
        metadata = None
        if any(key in fields for key in taken) or form.model_members(fields, model):
            found = members(text)
            metadata = _metadata(text, found) if METADATA in taken else None
            text = _join(form.model_members(fields, model), _others(text, found, taken))
            fields = value_of(text)
        checked = _check(reading, custom_id, path_of(url, reading.base_url), text, fields, _MODEL_HINT)
        return checked if metadata is None else checked._replace(metadata=metadata)


class PromptLines:
    """{"prompt": …}: becomes the body of a chat request, with all other members of the line."""

    def __init__(self, reading: InputOptions) -> None:
        self._reading = reading

    def __call__(self, number: int, text: str) -> ParsedRequest:
        found = members(text)
        fields = {member.key: member.value for member in found}
        prompt = next((member for member in found if member.key == "prompt"), _MISSING)
        if not isinstance(prompt.value, str | list):
            raise LineRefused(
                "has no prompt" if prompt is _MISSING else "has a prompt that is neither text nor messages"
            )
        reading = self._reading.of_line(fields.get("model"))
        form = reading.prompt_form
        url = path_of(reading.endpoint or form.url_of_prompt(reading.model), reading.base_url)
        asked = form.prompt_member(url, text[prompt.start : prompt.end], isinstance(prompt.value, str))
        body = _join(form.model_members(fields, reading.model), [asked, *_others(text, found, (*IDS, "prompt"))])
        return _check(reading, _read_id(fields, number), url, body, value_of(body), _MODEL_HINT)


class Rows:
    """Named values, from a table or from JSON objects, that fill a template: a prompt, or a whole body."""

    def __init__(self, reading: InputOptions, prompt_column: str = "prompt") -> None:
        self._reading = reading
        self._template = Template(reading.template or f"{{{prompt_column}}}")

    def fill(self, number: int, row: Mapping[str, Any]) -> ParsedRequest:
        filled = self._template.fill_values(row)
        custom_id = _read_id(row, number)
        if self._template.is_body:
            return request_of_body(self._reading, custom_id, filled)
        return request_of_prompt(self._reading, custom_id, quote_json(filled), True)

    def check_columns(self, columns: Iterable[str]) -> None:
        self._template.check_columns(columns)


def request_of_prompt(
    reading: InputOptions, custom_id: str, prompt: str, is_text: bool, further: Iterable[str] = ()
) -> ParsedRequest:
    """A prompt, as JSON of a text or of messages, with further members of its body."""
    reading = reading.of_line(None)
    form = reading.prompt_form
    url = path_of(reading.endpoint or form.url_of_prompt(reading.model), reading.base_url)
    body = _join(form.model_members({}, reading.model), [form.prompt_member(url, prompt, is_text), *further])
    return _check(reading, custom_id, url, body, value_of(body), _MODEL_HINT)


def request_of_body(reading: InputOptions, custom_id: str, body: str) -> ParsedRequest:
    """A whole body, as the text of a JSON object."""
    fields = value_of(body)
    reading = reading.of_line(fields.get("model"))
    if added := reading.form.model_members(fields, reading.model):
        body = _join(added, _others(body, members(body), ()))
        fields = value_of(body)
    url = path_of(reading.url_of_body(fields), reading.base_url)
    return _check(reading, custom_id, url, body, fields, _MODEL_HINT)


def _check(reading: InputOptions, custom_id: str, url: str, body: str, fields: Any, hint: str = "") -> ParsedRequest:
    if not isinstance(fields, dict):
        raise LineRefused("has a body that is not an object", LinePart.BODY)
    provider = provider_named(reading.api)
    model = fields.get("model")
    if reading.named and isinstance(model, str) and (sent := reading.sent_model(model)) != model:
        body, fields = replace_member(body, "model", quote_json(sent)), {**fields, "model": sent}
    chat: str | None = None
    if reading.fallbacks and url == CHAT and (provider.chat is not None or reading.schema is not None):
        chat = body
    if reading.schema is not None:
        fields = provider.answers.put_schema(url, fields, reading.schema)
        body = write_json(fields)
    if provider.chat is not None and url == CHAT:
        url, fields = provider.chat.request(fields, reading.model, reading.output_tokens_default)
        body = write_json(fields)
    _check_dialect(reading, provider, url, fields)
    try:
        model = provider.requests.check_body(url, fields, reading.background)
    except LineRefused as refused:
        if refused.part is not LinePart.MODEL:
            raise
        raise LineRefused(f"{refused}{hint}", refused.part) from None
    if reading.only is not None and url != reading.only.path:
        raise LineRefused(f"is for {url}; {reading.only.option} takes {reading.only.path} only")
    if provider.call_path is not None:
        url = provider.call_path(reading.base_url or "", url, fields)
    parsed = ParsedRequest(custom_id, url, body, fields, model=model, api=reading.api)
    return parsed if not reading.fallbacks else _with_fallbacks(reading, parsed._replace(chat=chat))


def _with_fallbacks(reading: InputOptions, parsed: ParsedRequest) -> ParsedRequest:
    """The request with all of its fallbacks, except one that is its own provider and model. A request that cannot be
    written for a fallback is refused now, before anything is sent."""
    found = []
    for place in reading.fallbacks:
        if (place.api, place.model, place.base_url) == (parsed.api, parsed.model, reading.base_url):
            continue
        try:
            found.append(request_for(place, parsed.request, parsed.fields))
        except LineRefused as refused:
            raise LineRefused(f"{refused} (for the fallback {place.fallback})", refused.part) from None
    return parsed._replace(fallbacks=tuple(found), chat=parsed.chat if found else None)


def check_id(found: Member) -> None:
    """Refuses an id that is missing, too long or cannot be printed."""
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


def _check_dialect(reading: InputOptions, provider: LlmProvider, url: str, fields: Mapping[str, Any]) -> None:
    """A path or a body of another provider's API, at a provider's own address, can only fail. Gateways may know many
    APIs."""
    if provider.is_gateway or reading.base_url != provider.access.base_url:
        return
    if url == CHAT:
        if (name := foreign_member(fields)) is not None:
            raise LineRefused(f"has {name}, which is not in OpenAI's chat format", LinePart.BODY)
    elif (other := provider_of_url(url)) not in (None, provider.name):
        reason = f"is for {url}, which belongs to {other}; use --provider {other}, or write a chat request"
        raise LineRefused(reason, LinePart.URL)


def _read_id(fields: Mapping[str, Any], number: int) -> str:
    """The line's own id if it has one; otherwise one that is the same every time the file is read."""
    for name in IDS:
        given = fields.get(name)
        if given is not None and given != "":
            if isinstance(given, int) and not isinstance(given, bool):
                given = str(given)
            check_id(Member(name, given, 0, 0, 0))
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


def _join(first: list[str], rest: list[str]) -> str:
    return f"{{{','.join([*first, *rest])}}}"


_MODEL_HINT = "; --model gives one"  # for all but `batch` lines, which are never changed
_MISSING = Member("", None, 0, 0, 0)

PARSERS: dict[Format, Callable[[InputOptions], Parser]] = {
    Format.BATCH: BatchLines,
    Format.BODIES: BodyLines,
    Format.PROMPTS: PromptLines,
}
