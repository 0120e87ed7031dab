"""The answer to one row: read from the database, and typed."""

import json
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from backstay.app import Backstay
from backstay.core.display import show_money
from backstay.core.errors import UsageError
from backstay.core.ids import item_id, show_item
from backstay.core.models import Flaw
from backstay.core.states import ItemState
from backstay.llm.endpoint import Endpoint
from backstay.llm.schema_dialects import resolve
from backstay.llm.schemas import schema_of
from backstay.rows.progress import BACKGROUND
from backstay.rows.sources import RowSource
from backstay.run.collector import ChatReplies
from backstay.run.result_file import ended_request
from backstay.store.results import ROWS_FIRST, AnswerRow, rows_next

T = TypeVar("T")

ROWS_HELD: Final = 2_000
INVALID: Final = "invalid"
_NO_ANSWERS: Final = (Flaw.REFUSED, Flaw.FILTERED)
_FOR_GOOD: Final = ("NOT_PDF", "TOO_LARGE", "GW_4XX", "FORBIDDEN", *_NO_ANSWERS)


@dataclass(frozen=True, slots=True)
class AnswerError:
    """Why a row has no answer. `kind` is an error code, a flaw such as `refused` or `invalid`, or `budget`."""

    kind: str
    message: str
    retryable: bool = True


@dataclass(frozen=True, slots=True)
class TokensUsed:
    """Tokens of all attempts; None is unknown."""

    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The answer to one row: `value` has the type of the schema, or is the text. `cost` is in dollars, and None means
    unknown, never 0. `reused` means that no call was made for it: an equal request was answered already."""

    index: int  # of its row, from 0
    id: str
    row: Mapping[str, Any]
    value: T | None = None
    text: str | None = None
    error: AnswerError | None = None
    sample: int = 0
    model: str | None = None
    lane: str | None = None
    finish_reason: str | None = None
    attempts: int = 0
    reused: bool = False
    usage: TokensUsed = field(default_factory=TokensUsed)
    cost: float | None = None
    item: str | None = None  # the name of its item for `backstay item show`
    reply: Mapping[str, Any] | None = None  # the body of the provider's reply, in OpenAI's chat format

    @property
    def ok(self) -> bool:
        return self.error is None


@dataclass(frozen=True, slots=True)
class MapSummary:
    """A run in figures. Money is in dollars; None is unknown."""

    run_id: int
    rows: int
    ok: int
    failed: int
    reused: int
    cost: float | None
    usage: TokensUsed
    errors: Mapping[str, int]

    def __str__(self) -> str:
        cost = "cost unknown" if self.cost is None else show_money(round(self.cost * 1_000_000))
        kinds = f" ({', '.join(f'{count:,} {kind}' for kind, count in self.errors.items())})" if self.errors else ""
        reused = f", {self.reused:,} without a call" if self.reused else ""
        return f"{self.ok:,} of {self.rows:,} answered, {self.failed:,} failed{kinds}{reused}, {cost}"


class AnswerType(Generic[T]):
    """Reads the text of an answer as the type that the caller wants."""

    def __init__(self, schema: Any = None, check: Callable[[Any], object] | None = None) -> None:
        self.schema = schema
        self.answers = None if schema is None else schema_of(schema)
        if self.answers is not None:
            self.answers.require_validator()
        self._check = check
        root = {} if self.answers is None or self.answers.wrapped else self.answers.schema
        properties = resolve(root, root).get("properties") if root else None
        self.fields: list[str] | None = None if properties is None else list(properties)

    @property
    def is_checked(self) -> bool:
        return self.answers is not None or self._check is not None

    def parse(self, text: str) -> Any:
        """Raises ValueError for a text that does not fit. The lanes ask the model again then."""
        value: Any = text if self.answers is None else self.answers.parse(text)
        if self._check is not None and self._check(value) is False:
            raise ValueError("the check refused the answer")
        return value

    def columns_of(self, value: Any) -> dict[str, Any]:
        """The value as columns of a table."""
        plain = value if self.answers is None or value is None else self.answers.plain(value)
        if self.fields is None:
            return {"answer": plain}
        return {name: None if plain is None else plain.get(name) for name in self.fields}


def text_of_reply(reply: Mapping[str, Any]) -> str | None:
    """The text of a chat completion, a completion or a response; None if it has no text."""
    choices = reply.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        message = choices[0].get("message")
        content = message.get("content") if isinstance(message, dict) else choices[0].get("text")
        return _join_texts(content) if isinstance(content, list) else content if isinstance(content, str) else None
    output = reply.get("output")
    if isinstance(output, list):
        return _join_texts([part for each in output if isinstance(each, dict) for part in each.get("content") or ()])
    return None


def _join_texts(parts: Sequence[Any]) -> str:
    return "".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


class RowWindow:
    """Finds rows by their numbers in a source that is only read forward: the last rows are kept."""

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self._rows: Iterator[Mapping[str, Any]] = iter(())
        self._held: deque[Mapping[str, Any]] = deque(maxlen=ROWS_HELD)
        self._next = 0

    def at(self, index: int) -> Mapping[str, Any]:
        if index < self._next - len(self._held) or self._next == 0:
            self._rows, self._next = iter(self._source.rows()), 0
            self._held.clear()
        while self._next <= index:
            row = next(self._rows, None)
            if row is None:
                raise UsageError(f"{self._source.name} has fewer rows than when it was sent")
            self._held.append(row)
            self._next += 1
        return self._held[index - self._next]


@dataclass(slots=True)
class AnswerReader(Generic[T]):
    """Reads the answers of one job. Requests are known by their numbers, from 0, in the order of rows."""

    open_app: Callable[[], Backstay]
    job_id: int
    requests: int
    # the position of each request's item; of a copy, -1 - position; None: each request has its own item
    positions: "array[int] | None"
    endpoints: Sequence[Endpoint]
    type: AnswerType[T]
    rows: RowSource
    id_column: str | None = None
    samples: int = 1
    unsent: AnswerError = AnswerError("not_sent", "the run was stopped before this row was sent")
    page_requests: int = ROWS_FIRST  # that are read at once; it follows the length of the texts

    def pages(self, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
        """Each page is cut when the one before it has been read."""
        at = 0
        while at < len(numbers):
            page = numbers[at : at + self.page_requests]
            at += len(page)
            yield page

    def answers(self, pages: Iterable[Sequence[int]]) -> "Iterator[Answer[T]]":
        """The answers to these requests. The database is open as long as they are read."""
        app, rows = self.open_app(), RowWindow(self.rows)
        chat = ChatReplies(self.endpoints)
        try:
            for numbers in pages:
                items = self._items(numbers)
                found = BACKGROUND.run(self._read(app, items)) if items else {}
                for number, item in zip(numbers, items, strict=True):
                    row = found.get(item)
                    given = rows.at(number // self.samples)
                    yield self._answer(number, given, None if row is None else chat.translate(row))
        finally:
            BACKGROUND.clean_up(app.close())

    def _items(self, numbers: Sequence[int]) -> list[int]:
        first, positions = item_id(self.job_id, 0), self.positions
        if positions is None:
            return [first + number for number in numbers]
        return [first + (at if at >= 0 else -1 - at) for at in (positions[number] for number in numbers)]

    async def _read(self, app: Backstay, items: Sequence[int]) -> dict[int, AnswerRow]:
        found = await (await app.open()).store.results.answers_of(sorted(set(items)))
        if found:
            self.page_requests = rows_next(self.page_requests, [len(row.body) + len(row.result or "") for row in found])
        return {row.id: row for row in found}

    def _answer(self, number: int, given: Mapping[str, Any], row: AnswerRow | None) -> "Answer[T]":
        index, sample = divmod(number, self.samples)
        label = str(index) if self.id_column is None else str(given.get(self.id_column))
        if row is None:
            return Answer(index, label, given, error=self.unsent, sample=sample, cost=0.0)
        copied = self.positions is not None and self.positions[number] < 0
        reused = copied or (row.state == ItemState.SUCCEEDED and row.attempt_count == 0)
        cost = None if row.cost_micros is None else row.cost_micros / 1_000_000
        reply = _reply_of(row)
        text = None if reply is None else text_of_reply(reply)
        value, error = self._value(row, text)
        choice = next(iter((reply or {}).get("choices") or ()), None)
        return Answer(
            index,
            label,
            given,
            value,
            text,
            error,
            sample,
            (reply or {}).get("model"),
            row.handler.partition("@")[0] or None,
            choice.get("finish_reason") if isinstance(choice, dict) else (reply or {}).get("status"),
            row.attempt_count,
            reused,
            TokensUsed(0, 0) if reused else TokensUsed(row.input_tokens, row.output_tokens),
            0.0 if reused else cost,
            show_item(row.id),
            reply,
        )

    def _value(self, row: AnswerRow, text: str | None) -> tuple[Any, AnswerError | None]:
        if row.state != ItemState.SUCCEEDED:
            ended = ended_request(row)
            kind = ended.code or "UNKNOWN"
            return None, AnswerError(kind, ended.message or "no reason was recorded", kind not in _FOR_GOOD)
        if row.flaw in _NO_ANSWERS:
            return None, AnswerError(str(row.flaw), f"the answer was {row.flaw}", False)
        if text is None and self.type.schema is None:
            return None, None  # an embedding, or a call of a tool: it is in the reply
        try:
            return self.type.parse(text or ""), None
        except Exception as problem:  # the user's own check may raise anything
            kind = Flaw.TRUNCATED.value if row.flaw == Flaw.TRUNCATED else INVALID
            return None, AnswerError(kind, _first_line(problem))


def _first_line(problem: Exception) -> str:
    return " ".join(str(problem).split())[:500] or type(problem).__name__


def _reply_of(row: AnswerRow) -> Mapping[str, Any] | None:
    try:
        body = json.loads(row.result or "null")["body"]
    except (ValueError, TypeError, KeyError):
        return None
    return body if isinstance(body, dict) else None
