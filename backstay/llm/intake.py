"""Reads a file of requests: a quick pass that checks every line, then a stream of the requests to send."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from backstay.core.errors import UsageError
from backstay.llm.endpoint import DEFAULT_API, path_of
from backstay.llm.fallbacks import FallbackRequest, Route
from backstay.llm.formats import IDS, PARSERS, Format, InputOptions, ParsedRequest, Parser, Rows
from backstay.llm.lines import LinePart, LineRefused, LlmRequest, value_of, write_json
from backstay.llm.repeated_requests import LineSet, Repeat, Suspicion, repeats
from backstay.llm.row_files import TEXT_COLUMN, FileKind, RowFile, columns_of, open_row_file

BAD_LINES_SHOWN_MAX = 100
KINDS_MAX = 1000
CHECKED_REQUESTS = 2_000  # that are read again together and compared with the survey before one is sent
CHECKED_BYTES = 4 << 20
MODEL_CHARACTERS_MAX = 200
OTHERS = ("(others)", "(others)")

LineEntry = tuple[int, ParsedRequest | LineRefused]
Kind = tuple[str, str]  # url and model
Seal = bytes  # a digest of all requests up to one


class BadLine(NamedTuple):
    """A line that cannot be sent, and why."""

    line: int
    reason: str
    part: LinePart | None = None


class NumberedRequest(NamedTuple):
    """A request and its line number."""

    line: int
    request: LlmRequest
    fields: Mapping[str, Any]  # its body as a value
    api: str = DEFAULT_API  # the provider that it is for
    fallbacks: tuple[FallbackRequest, ...] = ()  # the same request as each of its fallbacks gets it
    model: str | None = None

    @property
    def route(self) -> Route:
        return Route(self.api, tuple(each.fallback for each in self.fallbacks) if self.fallbacks else ())


class Tally(Protocol):
    """Looks at every request of a survey. `clear`: the survey starts again."""

    def add(self, parsed: ParsedRequest) -> None: ...
    def clear(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RequestSource:
    """An open file of requests, of a known format; `entries` reads it from its start."""

    name: str
    format: Format
    entries: Callable[[], Iterator[LineEntry]]
    file: RowFile | None = None  # the rows that the requests are made of, each with the number of its request

    @property
    def unit(self) -> str:
        return "line" if self.file is None else self.file.unit


@dataclass(slots=True)
class FileSurvey:
    """The content of a file. `digest` covers what would be sent and stored: custom_ids, urls, bodies, metadata, in
    order."""

    unit: str = "line"  # the unit of line numbers: line, row or element
    requests: int = 0
    bytes: int = 0  # of the bodies
    digest: str = ""
    kinds: Counter[Kind] = field(default_factory=Counter)
    bad: list[BadLine] = field(default_factory=list)  # the first of them
    bad_count: int = 0
    bad_lines: LineSet = field(default_factory=LineSet)  # all of them
    # one for every few thousand requests, each of all requests up to there
    seals: list[Seal] = field(default_factory=list)
    providers: dict[str, int] = field(default_factory=dict)  # the providers of the requests, each with its first line
    routes: set[Route] = field(default_factory=set)  # of the requests: their providers, each with its fallbacks

    @property
    def urls(self) -> Counter[str]:
        return self._count_kinds(0)

    @property
    def models(self) -> Counter[str]:
        return self._count_kinds(1)

    def refuse(self, line: int, refused: LineRefused) -> None:
        self.bad_count += 1
        self.bad_lines.add(line)
        if len(self.bad) < BAD_LINES_SHOWN_MAX:
            self.bad.append(BadLine(line, str(refused), refused.part))

    def describe(self, bad: BadLine) -> str:
        return f"{self.unit} {bad.line} {bad.reason}"

    def _count_kinds(self, side: int) -> Counter[str]:
        counted: Counter[str] = Counter()
        for kind, times in self.kinds.items():
            counted[kind[side]] += times
        return counted


class FileChanged(UsageError):
    """The file was changed between the survey and the second reading."""

    def __init__(self, name: str, hint: str = "run it again") -> None:
        super().__init__(f"{name} was changed while it was read", hint=hint)
        self.name = name


class Digest:
    """The digest of the requests, with a seal for every few thousand: a change is noticed before it is sent."""

    def __init__(self) -> None:
        self._all = hashlib.sha256()
        self._requests = 0
        self._bytes = 0

    def add(self, parsed: ParsedRequest) -> bool:
        """Whether it is time for a seal."""
        kept = "" if parsed.metadata is None else f"\0{parsed.metadata}"
        where = "" if parsed.api == DEFAULT_API else f"\0{parsed.api}"
        if parsed.chat is not None:
            where += f"\0{parsed.chat}"
        sent = f"{parsed.custom_id}\0{parsed.url}\0{parsed.body}{kept}{where}\n".encode()
        self._all.update(sent)
        self._requests += 1
        self._bytes += len(sent)
        return self._requests >= CHECKED_REQUESTS or self._bytes >= CHECKED_BYTES

    def seal(self) -> bytes:
        self._requests = self._bytes = 0
        return self._all.digest()

    def hexdigest(self) -> str:
        return self._all.hexdigest()


@contextmanager
def open_source(file: str, reading: InputOptions) -> Iterator[RequestSource]:
    """The requests of a file, `-` for stdin; options that the user left out are guessed from its name and its first
    line."""
    try:
        if reading.endpoint is not None:
            path_of(reading.endpoint, reading.base_url)
    except LineRefused as refused:
        raise UsageError(f"--endpoint {refused}") from None
    kind = _KINDS.get(reading.format) if reading.format is not None else None
    with open_row_file(file, kind) as found:
        yield _source_of(found, reading)


def _source_of(file: RowFile, reading: InputOptions) -> RequestSource:
    if reading.format in PARSERS and file.kind in (FileKind.CSV, FileKind.TEXT):
        file = replace(file, kind=FileKind.JSON_LINES)  # the option wins over the name
    chosen = reading.format or _detect(file, reading)
    if chosen is Format.CSV and file.kind is FileKind.JSON_LINES:
        file = replace(file, kind=FileKind.CSV)
    if chosen in _FILLED:
        return RequestSource(file.name, chosen, lambda: _fill_rows(file, chosen, reading), file)
    if reading.template is not None:
        hint = "--prompt works with tables, with lines of text and, with --format rows, with JSON objects"
        raise UsageError(f"--prompt cannot be used with the format {chosen}", hint=hint)
    parse = PARSERS[chosen](reading)
    return RequestSource(file.name, chosen, lambda: _parse_lines(file, parse), file)


def survey(source: RequestSource, tally: Tally | None = None) -> FileSurvey:
    """Reads every line once, with memory that hardly grows with the file; a second time only if ids seem to repeat."""
    ids = Suspicion()
    found = _survey_once(source, ids, {}, LineSet(), tally)
    if ids.narrow():
        repeated, named = LineSet(), dict[int, Repeat]()
        suspected = (
            (entry.custom_id, line)
            for line, entry in source.entries()
            if isinstance(entry, ParsedRequest) and entry.custom_id in ids
        )
        for repeat in repeats(suspected):
            repeated.add(repeat.line)
            if len(named) < BAD_LINES_SHOWN_MAX:
                named[repeat.line] = repeat
        if named:
            if tally is not None:
                tally.clear()
            found = _survey_once(source, Suspicion(), named, repeated, tally)
    if not found.requests and not found.bad_count:
        raise UsageError(f"there are no requests in {source.name}")
    return found


def requests(source: RequestSource, surveyed: FileSurvey) -> Iterator[NumberedRequest]:
    """Every request that the survey accepted, in the order of lines. Raises FileChanged if the file is not the same."""
    try:
        yield from _read_again(source, surveyed)
    except UsageError:
        raise FileChanged(source.name) from None  # an error that was not there before: the file has changed


def _read_again(source: RequestSource, surveyed: FileSurvey) -> Iterator[NumberedRequest]:
    digest = Digest()
    left, seals = surveyed.requests, iter(surveyed.seals)
    checked: list[NumberedRequest] = []
    for line, entry in source.entries():
        if left == 0:
            break  # lines added since then are not part of the run
        if line in surveyed.bad_lines or isinstance(entry, LineRefused):
            continue
        left -= 1
        checked.append(NumberedRequest(line, entry.request, entry.fields, entry.api, entry.fallbacks, entry.model))
        if digest.add(entry):
            if digest.seal() != next(seals, b""):
                raise FileChanged(source.name)
            yield from checked
            checked.clear()
    if digest.hexdigest() != surveyed.digest:
        raise FileChanged(source.name)
    yield from checked


def _survey_once(
    source: RequestSource, ids: Suspicion, named: dict[int, Repeat], repeated: LineSet, tally: Tally | None
) -> FileSurvey:
    found = FileSurvey(source.unit)
    digest = Digest()
    kinds, last_api = found.kinds, ""
    for line, entry in source.entries():
        if isinstance(entry, LineRefused):
            found.refuse(line, entry)
            continue
        if repeated and line in repeated:
            first = f" of {found.unit} {named[line].first}" if line in named else ""
            found.refuse(line, LineRefused(f"has the custom_id{first} again", LinePart.CUSTOM_ID))
            continue
        custom_id, _, body, *_ = entry
        found.requests += 1
        if entry.api is not last_api or entry.fallbacks:  # mostly the route of the request before
            last_api = entry.api
            found.providers.setdefault(last_api, line)
            found.routes.add(entry.route)
        found.bytes += len(body) if body.isascii() else len(body.encode())
        ids.add(custom_id)
        if digest.add(entry):
            found.seals.append(digest.seal())
        kind = kind_of(entry)
        kinds[kind if kind in kinds or len(kinds) < KINDS_MAX else OTHERS] += 1
        if tally is not None:
            tally.add(entry)
    found.digest = digest.hexdigest()
    return found


def kind_of(parsed: ParsedRequest) -> Kind:
    return parsed.url, (parsed.model or "")[:MODEL_CHARACTERS_MAX]


def _fill_rows(file: RowFile, chosen: Format, reading: InputOptions) -> Iterator[LineEntry]:
    """Every row with its template filled."""
    rows = Rows(reading, TEXT_COLUMN if chosen is Format.TEXT else "prompt")
    if file.kind in (FileKind.CSV, FileKind.PARQUET):
        columns = columns_of(file)
        if columns and reading.template is None and "prompt" not in columns:
            hint = f"columns: {', '.join(columns)}; {' or '.join(IDS)} can hold the id"
            what = "Parquet" if file.kind is FileKind.PARQUET else "CSV"
            raise UsageError(f"a {what} file needs --prompt, or a column named prompt", hint=hint)
        if columns:
            rows.check_columns(columns)
    for number, row in file.rows():
        try:
            if isinstance(row, LineRefused):
                raise row
            yield number, rows.fill(number, row)
        except LineRefused as refused:
            yield number, refused


def _parse_lines(file: RowFile, parse: Parser) -> Iterator[LineEntry]:
    for number, text in _texts(file):
        try:
            if isinstance(text, LineRefused):
                raise text
            yield number, parse(number, text)
        except LineRefused as refused:
            yield number, refused


def _texts(file: RowFile) -> Iterator[tuple[int, str | LineRefused]]:
    """The lines of a file. A row of Parquet becomes a line of JSON, without its empty values."""
    if file.kind is not FileKind.PARQUET:
        yield from file.texts()
        return
    for number, row in file.rows():
        yield number, row if isinstance(row, LineRefused) else _json_line(row)


def _json_line(row: Mapping[str, Any]) -> str | LineRefused:
    try:
        return write_json({name: value for name, value in row.items() if value is not None})
    except TypeError:
        return LineRefused("has bytes, which cannot be part of a request")


_KINDS = {Format.CSV: FileKind.CSV, Format.TEXT: FileKind.TEXT}
_FILLED = (Format.CSV, Format.ROWS, Format.TEXT)  # the formats whose rows fill a template


def _detect(file: RowFile, reading: InputOptions) -> Format:
    if file.kind is FileKind.CSV:
        return Format.CSV
    if file.kind is FileKind.TEXT:
        return Format.TEXT
    if file.kind is FileKind.PARQUET and (reading.template is not None or "prompt" in columns_of(file)):
        return Format.ROWS
    first = _first_value(file)
    if isinstance(first, str):
        return Format.TEXT
    if isinstance(first, LineRefused):
        # Not JSON at all: with a template it can only be CSV; otherwise every such line is reported as a bad one.
        return Format.CSV if reading.template is not None else Format.BATCH
    if reading.template is not None:
        return Format.ROWS
    if not isinstance(first, dict) or isinstance(first.get("body"), dict):
        return Format.BATCH
    if reading.form.is_body({key: value for key, value in first.items() if key != "prompt"}):
        return Format.BODIES
    if "prompt" not in first:
        return Format.BATCH
    return Format.PROMPTS if isinstance(first["prompt"], str | list) else Format.BODIES


def _first_value(file: RowFile) -> object:
    """The JSON value of the first line, or the reason why it is not JSON."""
    for _, text in _texts(file):
        try:
            return text if isinstance(text, LineRefused) else value_of(text)
        except LineRefused as refused:
            return refused
    return None
