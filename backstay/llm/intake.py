"""Reads a file of requests: a quick pass that checks every line, then a stream of the requests to send."""

import csv
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import IO, Any, NamedTuple, Protocol

from backstay.core.errors import UsageError
from backstay.llm.duplicates import LineSet, Repeat, Suspicion, repeats
from backstay.llm.endpoint import path_of
from backstay.llm.formats import IDS, PARSERS, Format, InputOptions, OnlyPath, ParsedRequest, Parser, Rows
from backstay.llm.lines import BOM, LINE_BYTES_MAX, LineRefused, LlmRequest, number_lines, open_lines, text_of, value_of

DELIMITERS = ",;\t"
_UNDECODED = re.compile("[\ud800-\udfff]")


def entries(lines: IO[bytes], reading: InputOptions) -> Iterator[tuple[int, ParsedRequest | LineRefused]]:
    """Every row below the header with the number of the line it starts on."""
    csv.field_size_limit(LINE_BYTES_MAX)
    rows = Rows(reading)
    columns: list[str] = []
    for line, found in _records(lines):
        try:
            if isinstance(found, LineRefused):
                raise found
            if not columns:
                columns = _checked_header(found, reading, rows)
            elif len(found) != len(columns):
                raise LineRefused(f"has {len(found)} fields where the header has {len(columns)}")
            else:
                yield line, rows.fill(line, dict(zip(columns, found, strict=True)))
        except LineRefused as refused:
            if not columns:
                raise UsageError(f"the header {refused}") from None
            yield line, refused


def _checked_header(names: list[str], reading: InputOptions, rows: Rows) -> list[str]:
    columns = [name.strip() for name in names]
    if repeated := next((name for name in columns if columns.count(name) > 1), None):
        raise UsageError(f"the header has the column {repeated!r} twice")
    if reading.template is None and "prompt" not in columns:
        hint = f"columns: {', '.join(columns)}; {' or '.join(IDS)} can hold the id"
        raise UsageError("a CSV file needs --template, or a column named prompt", hint=hint)
    rows.check_columns(columns)
    return columns


def _records(lines: IO[bytes]) -> Iterator[tuple[int, list[str] | LineRefused]]:
    """The records that are not blank. One may span several lines, in quotes."""
    lines.seek(0)
    delimiter = _delimiter(lines)
    lines.seek(0)
    reader = csv.reader(_texts(lines), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader, None)
        except csv.Error as error:
            yield line, LineRefused(f"is not CSV: {error}")
            continue
        if record is None:
            return
        if record:
            undecoded = any(map(_UNDECODED.search, record))
            yield line, LineRefused("is not UTF-8") if undecoded else record


def _delimiter(lines: IO[bytes]) -> str:
    """The delimiter that is most frequent in the header."""
    header = lines.readline(LINE_BYTES_MAX).decode("utf-8", "replace")
    return max(DELIMITERS, key=header.count)


def _texts(lines: IO[bytes]) -> Iterator[str]:
    for number, line in number_lines(lines):
        if line is None:
            raise UsageError(f"line {number} has more than {LINE_BYTES_MAX:,} bytes")
        # Bytes that are not UTF-8 must not end the file: they are passed on in a form that can be recognised, and the
        # error names the row.
        yield (line.removeprefix(BOM) if number == 1 else line).decode("utf-8", "surrogateescape")


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

    def __str__(self) -> str:
        return f"line {self.line} {self.reason}"


class NumberedRequest(NamedTuple):
    """A request and its line number."""

    line: int
    request: LlmRequest
    fields: Mapping[str, Any]  # its body as a value


class Tally(Protocol):
    """Adds up what it is given; it may have to start again."""

    def add(self, parsed: ParsedRequest) -> None: ...
    def clear(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RequestSource:
    """An open file of requests, of a known format; `entries` reads it from its start."""

    name: str
    format: Format
    entries: Callable[[], Iterator[LineEntry]]


@dataclass(slots=True)
class FileSurvey:
    """The content of a file. `digest` covers what would be sent and stored: custom_ids, urls, bodies, metadata, in
    order."""

    requests: int = 0
    bytes: int = 0  # of the bodies
    digest: str = ""
    kinds: Counter[Kind] = field(default_factory=Counter)
    bad: list[BadLine] = field(default_factory=list)  # the first of them
    bad_count: int = 0
    bad_lines: LineSet = field(default_factory=LineSet)  # all of them
    seals: list[Seal] = field(default_factory=list)  # of the first few thousand requests, of more, and so on

    @property
    def urls(self) -> Counter[str]:
        return self._counted(0)

    @property
    def models(self) -> Counter[str]:
        return self._counted(1)

    def refuse(self, line: int, reason: str) -> None:
        self.bad_count += 1
        self.bad_lines.add(line)
        if len(self.bad) < BAD_LINES_SHOWN_MAX:
            self.bad.append(BadLine(line, reason))

    def _counted(self, side: int) -> Counter[str]:
        counted: Counter[str] = Counter()
        for kind, times in self.kinds.items():
            counted[kind[side]] += times
        return counted


class FileChanged(UsageError):
    """Between the survey and the second reading."""

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
        sent = f"{parsed.custom_id}\0{parsed.url}\0{parsed.body}{kept}\n".encode()
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
    name = "stdin" if file == "-" else file
    with open_lines(file) as lines:
        chosen = reading.format or _detect(name, lines, reading)
        if chosen is Format.CSV:
            yield RequestSource(name, chosen, lambda: _accept_entries(entries(lines, reading), reading.only))
        else:
            if reading.template is not None and chosen is not Format.ROWS:
                hint = "--template works with CSV files and, with --format rows, with JSON objects"
                raise UsageError(f"--template cannot be used with the format {chosen}", hint=hint)
            parse = PARSERS[chosen](reading)
            yield RequestSource(name, chosen, lambda: _accept_entries(_entries(lines, parse), reading.only))


def survey(source: RequestSource, tally: Tally | None = None) -> FileSurvey:
    """Reads every line once, with memory that hardly grows with the file; a second time only if ids seem to repeat."""
    ids = Suspicion()
    found = _look(source, ids, {}, LineSet(), tally)
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
            found = _look(source, Suspicion(), named, repeated, tally)
    if not found.requests and not found.bad_count:
        raise UsageError(f"there are no requests in {source.name}")
    return found


def requests(source: RequestSource, surveyed: FileSurvey) -> Iterator[NumberedRequest]:
    """Every request that the survey found good, in the order of lines; none that it has not seen."""
    try:
        yield from _seen_before(source, surveyed)
    except UsageError:
        raise FileChanged(source.name) from None  # an error that was not there before: the file has changed


def _seen_before(source: RequestSource, surveyed: FileSurvey) -> Iterator[NumberedRequest]:
    digest = Digest()
    left, seals = surveyed.requests, iter(surveyed.seals)
    checked: list[NumberedRequest] = []
    for line, entry in source.entries():
        if left == 0:
            break  # lines added since then are not part of the run
        if line in surveyed.bad_lines or isinstance(entry, LineRefused):
            continue
        left -= 1
        checked.append(NumberedRequest(line, entry.request, entry.fields))
        if digest.add(entry):
            if digest.seal() != next(seals, b""):
                raise FileChanged(source.name)
            yield from checked
            checked.clear()
    if digest.hexdigest() != surveyed.digest:
        raise FileChanged(source.name)
    yield from checked


def _look(
    source: RequestSource, ids: Suspicion, named: dict[int, Repeat], repeated: LineSet, tally: Tally | None
) -> FileSurvey:
    found = FileSurvey()
    digest = Digest()
    kinds = found.kinds
    for line, entry in source.entries():
        if isinstance(entry, LineRefused):
            found.refuse(line, str(entry))
            continue
        if repeated and line in repeated:
            first = f" of line {named[line].first}" if line in named else ""
            found.refuse(line, f"has the custom_id{first} again")
            continue
        custom_id, _, body, *_ = entry
        found.requests += 1
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


def _entries(lines: IO[bytes], parse: Parser) -> Iterator[LineEntry]:
    lines.seek(0)
    for number, line in number_lines(lines):
        try:
            if line is None:
                raise LineRefused(f"has more than {LINE_BYTES_MAX:,} bytes")
            if text := text_of(line):
                yield number, parse(number, text)
        except LineRefused as refused:
            yield number, refused


def _accept_entries(entries: Iterator[LineEntry], only: OnlyPath | None) -> Iterator[LineEntry]:
    """The entries; requests that could only fail count as bad lines, too."""
    return entries if only is None else (_refuse_others(line, entry, only) for line, entry in entries)


def _refuse_others(line: int, entry: ParsedRequest | LineRefused, only: OnlyPath) -> LineEntry:
    if isinstance(entry, LineRefused) or entry.url == only.path:
        return line, entry
    return line, LineRefused(f"is for {entry.url}; {only.option} takes {only.path} only")


def _detect(name: str, lines: IO[bytes], reading: InputOptions) -> Format:
    if PurePath(name).suffix.lower() in (".csv", ".tsv"):
        return Format.CSV
    first: object = None
    for _, line in number_lines(lines):
        try:
            text = text_of(line or b"?")
            if text:
                first = value_of(text)
                break
        except LineRefused:
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
