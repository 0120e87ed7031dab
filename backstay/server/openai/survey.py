"""The survey of a file of requests, made line by line during the upload, so that its batch can begin at once; and
the check of all its lines before the batch begins."""

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

from backstay.core.errors import NotFound, UsageError
from backstay.llm.endpoint import DEFAULT_API
from backstay.llm.formats import ENVELOPE, BatchLines, InputOptions, ParsedRequest
from backstay.llm.lines import LinePart, LineRefused, members, text_of
from backstay.llm.providers import provider_shown
from backstay.llm.providers.openai.requests import CHAT, COMPLETIONS, EMBEDDINGS
from backstay.llm.repeated_requests import Suspicion
from backstay.run.submission import Scales
from backstay.server.openai.shapes import content
from backstay.server.openai.upstream import (
    MESSAGES_API,
    ModelLists,
    ModelNotServed,
    handlers_of,
    input_options_of,
    is_message_batch,
    listed_models,
    scales_of,
)
from backstay.server.service import Service, ServiceOptions
from backstay.store.batches import Batch
from backstay.store.files import StoredFile

LINE_BYTES_MAX: Final = 32 << 20
LONG_CHARACTERS: Final = 1 << 20
VALUES_MAX: Final = 1_000_000  # of a long line; a value may take thirty times the memory of its text
LINES_MAX: Final = 20_000_000
FAULTS_MAX: Final = 100
FAULTS_COUNTED_MAX: Final = 10_000  # a file with more bad lines is not a file of requests
URLS_MAX: Final = 50
MODELS_MAX: Final = 1_000
NAME_CHARACTERS_MAX: Final = 200
SUSPECTS_MAX: Final = 200_000
OTHERS: Final = "(others)"
_NEEDED: Final = {CHAT: "messages", EMBEDDINGS: "input", COMPLETIONS: "prompt"}


class Fault(NamedTuple):
    """What is wrong with a line, in OpenAI's words."""

    code: str
    line: int | None
    message: str
    param: str | None


class LineTooComplex(LineRefused):
    """Parsing the line would take too much memory."""


class RequestLines(BatchLines):
    """Lines of the Batch format with all their fields."""

    def __call__(self, number: int, text: str) -> ParsedRequest:
        check_values(text)
        return super().__call__(number, text)

    def _walk(self, text: str) -> ParsedRequest:
        if not any(member.key == "method" for member in members(text)):
            raise LineRefused("has no method")
        return super()._walk(text)


class MessageLines(BatchLines):
    """Requests of a message batch: the provider checks the body of each."""

    def __init__(self) -> None:
        super().__init__(InputOptions(api=MESSAGES_API))

    def _of_parts(self, custom_id: str, url: str, body: str, fields: Any) -> ParsedRequest:
        model = fields.get("model")
        named = model if isinstance(model, str) else None
        return ParsedRequest(custom_id, url, body, fields, model=named, api=MESSAGES_API)


def check_values(text: str) -> None:
    """Refuses a text that would take too much memory when it is parsed."""
    if len(text) > LONG_CHARACTERS:
        brackets = text.count("[") + text.count("{")
        if text.count(",") + 4 * brackets > VALUES_MAX:  # an object or a list weighs more than a number
            raise LineTooComplex("holds too many values")


class LineCutter:
    """Cuts pieces into lines; only the current line is in memory."""

    def __init__(self) -> None:
        self._open: list[bytes] = []
        self._open_bytes = 0

    def feed(self, piece: bytes) -> list[bytes]:
        lines = piece.split(b"\n")
        if len(lines) == 1:
            self._keep(piece)
            return []
        self._open.append(lines[0])
        lines[0] = b"".join(self._open)
        self._open, self._open_bytes = [], 0
        self._keep(lines.pop())
        return lines

    def end(self) -> bytes:
        """The last line, if it has no line end."""
        return b"".join(self._open)

    def _keep(self, rest: bytes) -> None:
        self._open.append(rest)
        self._open_bytes += len(rest)
        if self._open_bytes > LINE_BYTES_MAX:
            raise LineRefused(f"has more than {LINE_BYTES_MAX:,} bytes")


class Survey:
    """Reads a file once, in memory that hardly grows with it."""

    def __init__(self) -> None:
        self.requests = 0
        self.faults: list[Fault] = []
        self.fault_count = 0
        self.first: Fault | None = None  # the fault of the first line, if that is not JSON
        self._urls: dict[str, list[Any]] = {}  # how many, and the first lines
        self._models: dict[str, int] = {}  # the first line of each
        self._ids = Suspicion()
        self._lines = LineCutter()
        self._number = 0
        self._parse = RequestLines(InputOptions())

    def feed(self, piece: bytes) -> None:
        try:
            lines = self._lines.feed(piece)
        except LineRefused as refused:
            self._refuse(Fault("invalid_json_line", self._number + 1, f"This line {refused}.", None))
            raise
        for line in lines:
            self._check_line(line)

    def end(self) -> bool:
        """Whether custom_ids may be repeated: then `Repeats` must read the file again."""
        self._check_line(self._lines.end())
        return self._ids.narrow()

    def suspects(self, line: bytes) -> str | None:
        """The custom_id of a line, if it may be repeated."""
        try:
            found = self._parse(0, text_of(line)).custom_id
        except LineRefused:
            return None
        return found if found in self._ids else None

    def refuse_repeats(self, repeats: list[tuple[int, int, str]]) -> None:
        """Refuses lines whose custom_id is on an earlier line: (line, first line, custom_id)."""
        for line, first, custom_id in repeats:
            message = f"The custom_id {custom_id!r} is already used in line {first}. It must be unique in a batch."
            self._refuse(Fault("duplicate_custom_id", line, message, "custom_id"))
        self.faults.sort(key=lambda fault: fault.line or 0)

    def dump(self, digest: str) -> dict[str, Any]:
        """The survey as it is stored with the file."""
        return {
            "requests": self.requests,
            "digest": digest,
            "urls": self._urls,
            "models": self._models,
            "faults": self.faults,
            "fault_count": self.fault_count,
        }

    def check_bounds(self) -> None:
        """Stops reading a file that has too many bad lines."""
        if self._number > LINES_MAX:
            raise LineRefused(f"is one of more than {LINES_MAX:,}")
        if self.fault_count > FAULTS_COUNTED_MAX:
            raise LineRefused(f"is one of more than {FAULTS_COUNTED_MAX:,} bad ones")

    def _check_line(self, line: bytes) -> None:
        self._number += 1
        text = ""
        try:
            text = text_of(line)
            if not text:
                return
            custom_id, url, _, fields, *_ = self._parse(self._number, text)
        except LineTooComplex as refused:
            self._refuse(Fault("invalid_request", self._number, f"This line {refused}.", None))
            return
        except LineRefused as refused:
            self._refuse(fault_of(text, refused, self._number))
            return
        needed = _NEEDED.get(url)
        if needed is not None and fields.get(needed) is None:
            message = f"{needed.capitalize()} parameter is required."
            self._refuse(Fault("invalid_request", self._number, message, f"body.{needed}"))
            return
        self.requests += 1
        self._ids.add(custom_id)
        self._count(url, fields.get("model"))

    def _count(self, url: str, model: object) -> None:
        known = self._urls.get(url)
        if known is None:
            url = url[:NAME_CHARACTERS_MAX] if len(self._urls) < URLS_MAX else OTHERS
            known = self._urls.setdefault(url, [0, []])
        known[0] += 1
        if known[0] <= FAULTS_MAX:
            known[1].append(self._number)
        if isinstance(model, str) and model not in self._models and len(self._models) < MODELS_MAX:
            self._models.setdefault(printable_model(model), self._number)

    def _refuse(self, fault: Fault) -> None:
        if self.requests + self.fault_count == 0 and fault.code == "invalid_json_line":
            self.first = fault
        self.fault_count += 1
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(fault)


class Repeats:
    """A second pass over a file with possibly repeated custom_ids: finds the lines that repeat one."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._lines = LineCutter()
        self._number = 0
        self._first: dict[str, int] = {}
        self.found: list[tuple[int, int, str]] = []

    def feed(self, piece: bytes) -> None:
        for line in self._lines.feed(piece):
            self._check_line(line)

    def end(self) -> None:
        self._check_line(self._lines.end())

    def _check_line(self, line: bytes) -> None:
        self._number += 1
        custom_id = self._survey.suspects(line)
        if custom_id is None or len(self.found) >= FAULTS_MAX:
            return
        first = self._first.get(custom_id)
        if first is not None:
            self.found.append((self._number, first, custom_id))
        elif len(self._first) < SUSPECTS_MAX:
            self._first[custom_id] = self._number


def printable_model(model: str) -> str:
    """The name of a model without unprintable characters, cut to a length that any database accepts."""
    return "".join(filter(str.isprintable, model[:NAME_CHARACTERS_MAX]))


def fault_of(text: str, why: LineRefused, line: int) -> Fault:
    """The fault of a refused line: the first one that OpenAI would name."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return Fault("invalid_json_line", line, f"This line is not parseable as valid JSON: it {why}.", None)
    for key in ENVELOPE:
        if value.get(key) in (None, ""):
            return Fault("missing_required_parameter", line, f"Missing required parameter: '{key}'.", key)
    return next(_faults_in(value, why, line))


def _faults_in(value: dict[str, Any], why: LineRefused, line: int) -> Iterator[Fault]:
    body = value["body"]
    if not isinstance(body, dict):
        yield Fault("invalid_type", line, "The body must be an object.", "body")
    elif body.get("stream"):
        yield Fault("streaming_unsupported", line, "Streaming is not supported in batches.", "body.stream")
    elif body.get("background"):
        message = "Background responses are not supported in batches. Leave background out."
        yield Fault("background_unsupported", line, message, "body.background")
    if str(value["method"]).upper() != "POST":
        yield Fault("invalid_method", line, "Only POST is supported.", "method")
    for part, code in ((LinePart.CUSTOM_ID, "invalid_value"), (LinePart.URL, "invalid_url")):
        if why.part is part:
            yield Fault(code, line, f"This line {why}.", part.value)
    if why.part is LinePart.MODEL:
        yield Fault("invalid_request", line, "Model parameter is required.", "body.model")
    yield Fault(
        "invalid_json_line" if why.part is LinePart.JSON else "invalid_request", line, f"This line {why}.", None
    )


BREATH_LINES: Final = 200  # after this many lines other tasks get a turn


class Unsendable(Exception):
    """A line of a batch cannot be sent by this service."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"line {fault.line} cannot be sent")
        self.fault = fault


async def requests_of(service: Service, batch: Batch) -> AsyncIterator[tuple[int, ParsedRequest]]:
    """Each request as its provider gets it, with the number of its line."""
    there = handlers_of(service.options)
    async for number, entry in entries_of(service, batch, input_options_of(service.options)):
        if isinstance(entry, LineRefused):
            raise Unsendable(sending_fault(number, entry))
        if entry.api not in there:
            message = f"This request is for {entry.api}, which this service does not have."
            raise Unsendable(Fault("invalid_request", number, message, None))
        yield number, entry


async def entries_of(
    service: Service, batch: Batch, reading: InputOptions
) -> AsyncIterator[tuple[int, ParsedRequest | LineRefused]]:
    """Each request of a batch with the number of its line, or why a line is not a request."""
    file = await service.store.files.source(batch.input_file_id, batch.owner)
    if file is None:
        raise NotFound(f"the bytes of file {batch.input_file_id} are gone")
    parse: BatchLines = MessageLines() if is_message_batch(batch.id) else RequestLines(reading)
    number = 0
    async for line in _lines(service, file):
        number += 1
        if text := text_of(line):
            try:
                yield number, parse(number, text)
            except LineRefused as refused:
                yield number, refused
        if number % BREATH_LINES == 0:
            await service.main.clock.sleep(0)


def sending_fault(number: int, refused: LineRefused) -> Fault:
    """The fault of a line that was well-formed at the upload and cannot be sent."""
    code, param = (
        ("model_not_found", "body.model") if isinstance(refused, ModelNotServed) else ("invalid_request", None)
    )
    return Fault(code, number, f"This line {refused}.", param)


async def _lines(service: Service, file: StoredFile) -> AsyncIterator[bytes]:
    lines = LineCutter()
    async for piece in content(service, file):
        for line in lines.feed(piece):
            yield line
    yield lines.end()


# Whether a batch can begin: all errors of its file together

STRICT_LINES_MAX: Final = 50_000
UNBOUNDED_WORDS: Final = (
    "The highest possible cost of this request is not known, so the budget of the batch cannot be enforced. "
    "The request must name a model with a known price and limit its reply."
)


async def check_file(service: Service, batch: Batch) -> tuple[list[Fault], dict[str, Any]]:
    """All faults of a batch's file, and its survey."""
    file = await service.store.files.find(batch.input_file_id, batch.owner)
    if file is None:
        return missing_file(batch.input_file_id), {}
    if file.purpose != "batch":
        return wrong_purpose(file), {}
    survey = await survey_of_file(service, file)
    if is_message_batch(batch.id):
        return [], survey  # it was checked completely at the upload
    faults = await faults_of(service, batch, survey)
    if not faults and _must_read_file(service.options):
        faults = await _find_unsendable(service, batch)
    return faults, survey


def unbounded_cost(line: int) -> Unsendable:
    """There is a budget, and the cost of the request on this line has no upper limit."""
    return Unsendable(Fault("unbounded_cost", line, UNBOUNDED_WORDS, "body"))


def _must_read_file(options: ServiceOptions) -> bool:
    """Whether a line that was well-formed at the upload may still be one that cannot be sent."""
    upstream = options.upstream
    return upstream is not None and (
        options.budget_micros is not None or upstream.api != DEFAULT_API or bool(upstream.beside)
    )


async def _find_unsendable(service: Service, batch: Batch) -> list[Fault]:
    """The requests that no provider of this service accepts, and with a budget those whose cost is not limited."""
    scales, found, count = scales_of(service.options), list[Fault](), 0
    async for line, entry in entries_of(service, batch, input_options_of(service.options)):
        try:
            if isinstance(entry, LineRefused):
                raise Unsendable(sending_fault(line, entry))
            weigh_line(scales, line, entry)
        except Unsendable as unsendable:
            count += 1
            if count <= FAULTS_MAX:
                found.append(unsendable.fault)
    return _faults_to_show(found, count)


def weigh_line(scales: dict[str, Scales], line: int, parsed: ParsedRequest) -> tuple[int | None, int, int]:
    try:
        return scales[parsed.api].weigh(parsed.request, parsed.fields)
    except UsageError:
        raise unbounded_cost(line) from None


async def survey_of_file(service: Service, file: StoredFile) -> dict[str, Any]:
    """The survey of the file: made at its upload, or now if it holds the requests of a run."""
    if file.survey is not None:
        known: dict[str, Any] = json.loads(file.survey)
        return known
    survey = Survey()
    with suppress(LineRefused):  # a line that is too long: it is among the faults
        async for piece in content(service, file):
            survey.feed(piece)
        survey.end()
    return survey.dump("")


async def faults_of(service: Service, batch: Batch, survey: dict[str, Any]) -> list[Fault]:
    options = service.options
    found = [Fault(*fault) for fault in survey["faults"]]
    found.extend(_wrong_urls(survey["urls"], batch.endpoint))
    found.extend(_too_many(survey["requests"], options))
    if options.strict_openai:
        found.extend(_mixed_models(survey["models"]))
        found.extend(_unknown_models(survey["models"], await listed_models(service)))
    count = survey["fault_count"] - len(survey["faults"]) + len(found)
    count += sum(
        number - len(lines) for url, (number, lines) in survey["urls"].items() if not _fits(url, batch.endpoint)
    )
    return _faults_to_show(found, count)


def missing_file(file_id: str) -> list[Fault]:
    return [Fault("invalid_request", None, f"Cannot find file {file_id}.", "file_id")]


def wrong_purpose(file: StoredFile) -> list[Fault]:
    message = f"The purpose of file {file.id} is {file.purpose}; it must be batch."
    return [Fault("invalid_request", None, message, "file_id")]


def errors_as_json(faults: Iterable[Fault]) -> str:
    """The errors of a batch as they are stored."""
    return json.dumps([fault._asdict() for fault in faults])


def _fits(url: str, endpoint: str) -> bool:
    """The same path, with the version or without it, as Azure's clients write it."""
    return url.removeprefix("/v1") == endpoint.removeprefix("/v1")


def _wrong_urls(urls: dict[str, Any], endpoint: str) -> Iterator[Fault]:
    for url, (_, lines) in urls.items():
        if not _fits(url, endpoint):
            message = f"The URL provided for this request ({url}) does not match the batch endpoint {endpoint}."
            yield from (Fault("invalid_url", line, message, "url") for line in lines)


def _too_many(requests: int, options: ServiceOptions) -> Iterator[Fault]:
    most = STRICT_LINES_MAX if options.strict_openai else options.lines_max
    if requests > most:
        yield Fault("too_many_tasks", None, f"There are {requests:,} requests; a batch takes at most {most:,}.", None)


def _mixed_models(models: dict[str, int]) -> Iterator[Fault]:
    named = iter(models.items())
    first = next(named, ("", 0))[0]
    for model, line in named:
        message = f"The model {model!r} is another than {first!r}. All requests of a batch must name one model."
        yield Fault("mismatched_model", line, message, "body.model")


def _unknown_models(models: dict[str, int], listed: ModelLists) -> Iterator[Fault]:
    """A model whose provider lists nothing may exist, and one without a provider is found later."""
    known = {api: None if some is None else {model["id"] for model in some} for api, some in listed.items()}
    for model, line in models.items():
        api = next(iter(known)) if len(known) == 1 else provider_shown(model, None)
        there = known.get(api or "")
        if there is not None and model not in there and model.removeprefix(f"{api}:") not in there:
            yield Fault("model_not_found", line, f"The model {model!r} does not exist.", "body.model")


def _faults_to_show(faults: list[Fault], count: int) -> list[Fault]:
    faults.sort(key=lambda fault: fault.line or 0)
    if count <= FAULTS_MAX:
        return faults
    more = f"{count - FAULTS_MAX:,} more errors are not listed here."
    return [*faults[:FAULTS_MAX], Fault("too_many_errors", None, more, None)]
