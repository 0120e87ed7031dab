"""The lines of a batch's input file, and all that can be wrong with them before any is run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from backstay.practice.endpoints import generate
from backstay.practice.files import BOM
from backstay.practice.generated import Stamp
from backstay.practice.refusals import Refused

LINES_MAX = 50_000
FILE_BYTES_MAX = 200 << 20
ERRORS_SHOWN_MAX = 100
REQUIRED = ("custom_id", "method", "url", "body")


class Line(NamedTuple):
    number: int
    custom_id: str
    body: dict[str, Any]


class Wrong(NamedTuple):
    code: str
    message: str
    line: int | None = None
    param: str | None = None


class Checked(NamedTuple):
    """What a look at a whole file found."""

    total: int
    model: str | None
    tokens: int
    wrong: list[Wrong]


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, numbered from 1."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            text = (line.removeprefix(BOM) if number == 1 else line).strip()
            if text:
                yield number, text


def parsed(path: Path) -> Iterator[Line]:
    """The lines of a file that was found right."""
    for number, text in read_lines(path):
        value = json.loads(text)
        yield Line(number, value["custom_id"], value["body"])


class Check:
    """Goes through a file line by line; every mistake is noted, and there is no batch if there is one."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._seen: set[str] = set()
        self._model: str | None = None
        self._tokens = 0
        self._total = 0
        self._wrong: list[Wrong] = []

    def step(self, number: int, text: bytes) -> None:
        self._total += 1
        try:
            self._look(number, text)
        except _Mistake as mistake:
            self._wrong.append(mistake.wrong._replace(line=number))

    def result(self, size: int) -> Checked:
        if self._total == 0:
            self._wrong.append(Wrong("empty_file", "The input file is empty. Please ensure that it has requests."))
        if self._total > LINES_MAX:
            self._wrong.insert(0, Wrong("too_many_tasks", f"A batch has at most {LINES_MAX} requests."))
        if size > FILE_BYTES_MAX:
            self._wrong.insert(0, Wrong("file_too_large", "The input file of a batch has at most 200 MB."))
        shown = self._wrong[:ERRORS_SHOWN_MAX]
        if (hidden := len(self._wrong) - len(shown)) > 0:
            shown[-1] = Wrong("too_many_errors", f"There are {hidden + 1} more errors in the input file.")
        return Checked(self._total, self._model, self._tokens, shown)

    def _look(self, number: int, text: bytes) -> None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise _Mistake("invalid_json_line", "This line is not parseable as valid JSON.") from None
        if not isinstance(value, dict):
            raise _Mistake("invalid_json_line", "This line is not a JSON object.")
        for name in REQUIRED:
            if not value.get(name):
                raise _Mistake("missing_required_parameter", f"Missing required parameter: '{name}'.", name)
        self._look_at_request(value)
        self._look_at_body(value["body"])

    def _look_at_request(self, value: dict[str, Any]) -> None:
        custom_id = value["custom_id"]
        if not isinstance(custom_id, str):
            raise _Mistake("invalid_request", "'custom_id' must be a string.", "custom_id")
        if custom_id in self._seen:
            raise _Mistake("duplicate_custom_id", f"The custom_id '{custom_id}' is duplicated.", "custom_id")
        self._seen.add(custom_id)
        if value["method"] != "POST":
            raise _Mistake("invalid_method", "The method must be POST.", "method")
        if value["url"] != self._endpoint:
            raise _Mistake("invalid_url", "The URL provided for this request does not match the batch endpoint.", "url")

    def _look_at_body(self, body: Any) -> None:
        if not isinstance(body, dict):
            raise _Mistake("invalid_request", "'body' must be an object.", "body")
        if body.get("stream"):
            raise _Mistake("streaming_unsupported", "Streaming is not supported in the Batch API.", "body.stream")
        model = body.get("model")
        if model == "practice-404":
            raise _Mistake("model_not_found", f"The provided model '{model}' does not exist.", "body.model")
        try:
            made = generate(self._endpoint, body, Stamp("", 0))
        except Refused as refused:
            param = f"body.{refused.param}" if refused.param else "body"
            raise _Mistake("invalid_request", refused.message, param) from None
        if self._model is None:
            self._model = model
        elif model != self._model:
            raise _Mistake("mismatched_model", "All requests of a batch must name the same model.", "body.model")
        self._tokens += made.input_tokens


class _Mistake(Exception):
    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.wrong = Wrong(code, message, None, param)
