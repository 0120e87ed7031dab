"""`Results`: the answers to all rows, in the order of rows, and the tables that they make."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, overload

from backstay.core.errors import RowsFailed, UsageError
from backstay.rows.answers import Answer, AnswerReader, AnswerType, MapSummary, TokensUsed
from backstay.rows.tables import open_table

T = TypeVar("T")

PAGE_ANSWERS: Final = 500
SHOWN_ROWS: Final = 10
SHOWN_CHARACTERS: Final = 200
COST, ERROR, SAMPLE = "cost", "error", "sample"


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The tokens and dollars of a whole run; None is unknown."""

    run_id: int
    cost: float | None
    usage: TokensUsed


class Results(Sequence[Answer[T]], Generic[T]):
    """The answers, as many as rows and in their order. They stay in the database and are read as they are needed.

    `for answer in results`, `results[0].value`, `results.values()`, `results.errors`, `results.cost`,
    `results.to_pandas()`. A pickle holds the answers themselves.
    """

    def __init__(
        self,
        answers: "AnswerReader[T] | list[Answer[T]]",
        figures: RunFigures,
        table: "AnswerTable",
        frame: Any = None,
    ) -> None:
        self._answers = answers
        self._figures = figures
        self._table = table
        self.again: Callable[[], Results[T]] | None = None  # sends the rows that failed once more
        self._frame = frame  # the frame of the rows, if they came in one
        self._page: tuple[int, list[Answer[T]]] = (0, [])
        self._counts: Counter[str] | None = None

    @property
    def run_id(self) -> int:
        """The job in the database: `backstay job show`."""
        return self._figures.run_id

    @property
    def cost(self) -> float | None:
        """Dollars for all rows together; None if the price of a model is not known."""
        return self._figures.cost

    @property
    def usage(self) -> TokensUsed:
        return self._figures.usage

    def __len__(self) -> int:
        return len(self._answers) if isinstance(self._answers, list) else self._answers.requests

    @overload
    def __getitem__(self, index: int) -> Answer[T]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Answer[T]]: ...
    def __getitem__(self, index: int | slice) -> "Answer[T] | Sequence[Answer[T]]":
        if isinstance(index, slice):
            return list(self.pick(range(len(self))[index]))
        at = index if index >= 0 else index + len(self)
        if not 0 <= at < len(self):
            raise IndexError(f"there are {len(self):,} answers")
        low, page = self._page
        if not low <= at < low + len(page):
            low = at - at % PAGE_ANSWERS
            page = list(self.pick(range(low, min(low + PAGE_ANSWERS, len(self)))))
            self._page = (low, page)
        return page[at - low]

    def __iter__(self) -> Iterator[Answer[T]]:
        counts: Counter[str] = Counter()
        for answer in self.pick(range(len(self))):
            counts[answer.error.kind if answer.error else "reused" if answer.reused else ""] += 1
            yield answer
        self._counts = counts

    def pick(self, numbers: Sequence[int]) -> Iterator[Answer[T]]:
        """The answers at these places."""
        if isinstance(self._answers, list):
            return map(self._answers.__getitem__, numbers)
        return self._answers.answers(self._answers.pages(numbers))

    @property
    def errors(self) -> "list[Answer[T]]":
        """The answers of the rows that failed."""
        return [answer for answer in self if not answer.ok]

    @property
    def ok(self) -> bool:
        """Whether every row has its answer."""
        return self.summary().failed == 0

    def values(self) -> list[T]:
        """The values of all rows, in their order. Raises `RowsFailed` if a row failed."""
        self.require_ok()
        return [answer.value for answer in self]  # type: ignore[misc]  # an embedding has no value

    def require_ok(self) -> None:
        failed = next((answer for answer in self if answer.error is not None), None)
        if failed is not None and failed.error is not None:
            said = f"{self.summary().failed:,} of {len(self):,} rows failed; the first is row {failed.index + 1}"
            hint = "look at .errors, or try them again with .retry_failed()"
            raise RowsFailed(f"{said}: {failed.error.kind}: {failed.error.message}", hint=hint)

    def _count_by_error(self) -> Counter[str]:
        """Answers by kinds of errors; "" are good, "reused" are good as well."""
        while self._counts is None:
            for _ in self:
                """Reading all answers counts them."""
        return self._counts

    def summary(self) -> MapSummary:
        counts = self._count_by_error()
        good = counts[""] + counts["reused"]
        errors = {kind: count for kind, count in sorted(counts.items()) if kind not in ("", "reused")}
        figures = self._figures
        failed = len(self) - good
        return MapSummary(
            figures.run_id, len(self), good, failed, counts["reused"], figures.cost, figures.usage, errors
        )

    def retry_failed(self) -> "Results[T]":
        """Sends the rows that failed once more, and returns the new results."""
        if self.again is None:
            raise UsageError("these results were stored elsewhere and cannot be sent", hint="call map() again")
        return self.again()

    # tables

    def records(self) -> Iterator[dict[str, Any]]:
        """Each answer as a row of a table: the columns of the input, those of the answer, cost and error."""
        return map(self._table.record, self)

    def to_csv(self, path: str | Path) -> None:
        self._write(path)

    def to_jsonl(self, path: str | Path) -> None:
        self._write(path)

    def to_parquet(self, path: str | Path) -> None:
        self._write(path)

    def _write(self, path: str | Path) -> None:
        with open_table(path, self._table.columns) as table:
            records = self.records()
            while page := list(islice(records, PAGE_ANSWERS)):
                table.write(page)

    def to_pandas(self) -> Any:
        """A pandas frame; one that the rows came in keeps its index."""
        pandas = _library("pandas")
        if not _is_of(self._frame, "pandas"):
            return pandas.DataFrame(self._columns(self._table.columns))
        frame = self._frame.iloc[self._rows()].copy()
        for name, values in self._columns(self._table.added).items():
            frame[name] = values
        return frame

    def to_polars(self) -> Any:
        """A Polars frame; one that the rows came in keeps the types of its columns."""
        polars = _library("polars")
        if not _is_of(self._frame, "polars"):
            return polars.DataFrame(self._columns(self._table.columns), strict=False)
        added = polars.DataFrame(self._columns(self._table.added), strict=False)
        return self._frame[self._rows()].hstack(added)

    def to_dataset(self) -> Any:
        """A dataset of Hugging Face; one that the rows came in keeps its features."""
        datasets = _library("datasets")
        if not isinstance(self._frame, datasets.Dataset):
            return datasets.Dataset.from_dict(self._columns(self._table.columns))
        added = datasets.Dataset.from_dict(self._columns(self._table.added))
        return datasets.concatenate_datasets([self._frame.select(self._rows()), added], axis=1)

    def to_frame(self) -> Any:
        """A frame of the same kind as the rows came in; otherwise of pandas."""
        if _is_of(self._frame, "polars"):
            return self.to_polars()
        return self.to_dataset() if _is_of(self._frame, "datasets") else self.to_pandas()

    def _rows(self) -> list[int]:
        return list(self._table.rows_of(len(self)))

    def _columns(self, names: Sequence[str]) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {name: [] for name in names}
        for record in self.records():
            for name, values in columns.items():
                values.append(record[name])
        return columns

    # how it is shown

    def __repr__(self) -> str:
        return f"<Results of run {self.run_id}: {self.summary()}>"

    def _repr_html_(self) -> str:
        names = self._table.columns
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        rows = []
        for answer in self.pick(range(min(SHOWN_ROWS, len(self)))):
            record = self._table.record(answer)
            rows.append("".join(f"<td>{escape(_short(record[name]))}</td>" for name in names))
        body = "".join(f"<tr>{cells}</tr>" for cells in rows)
        more = f"<p>{escape(str(self.summary()))}</p>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (list(self), self._figures, self._table.plain(), self._frame)


@dataclass(frozen=True, slots=True)
class AnswerTable:
    """The columns of a table of answers. They must not have the names of the input's columns."""

    given: Sequence[str]
    type: AnswerType[Any]
    samples: int = 1
    prefix: str = ""

    @property
    def added(self) -> list[str]:
        own = ["answer"] if self.type.fields is None else self.type.fields
        return [f"{self.prefix}{name}" for name in ([SAMPLE] if self.samples > 1 else []) + [*own, COST, ERROR]]

    @property
    def columns(self) -> list[str]:
        return [*self.given, *self.added]

    def check(self) -> None:
        if len(set(self.added)) != len(self.added):
            raise UsageError("a field of the schema is called cost, error or sample", hint="rename the field")
        for name in self.added:
            if name in self.given:
                hint = "rename the column of the rows, or give a prefix: prefix='answer_'"
                raise UsageError(f"the rows have a column {name!r}, and the answers have one, too", hint=hint)

    def record(self, answer: Answer[Any]) -> dict[str, Any]:
        made: dict[str, Any] = {name: answer.row.get(name) for name in self.given}
        if self.samples > 1:
            made[f"{self.prefix}{SAMPLE}"] = answer.sample
        for name, value in self.type.columns_of(answer.value).items():
            made[f"{self.prefix}{name}"] = value
        made[f"{self.prefix}{COST}"] = answer.cost
        made[f"{self.prefix}{ERROR}"] = None if answer.error is None else f"{answer.error.kind}: {answer.error.message}"
        return made

    def rows_of(self, answers: int) -> Iterator[int]:
        return (number // self.samples for number in range(answers))

    def plain(self) -> tuple[Any, ...]:
        return (list(self.given), self.type.schema, self.samples, self.prefix)


def _restore(answers: list[Answer[T]], figures: RunFigures, table: tuple[Any, ...], frame: Any) -> Results[T]:
    given, schema, samples, prefix = table
    return Results(answers, figures, AnswerTable(given, AnswerType(schema), samples, prefix), frame)


def _is_of(frame: Any, library: str) -> bool:
    return frame is not None and type(frame).__module__.partition(".")[0] == library


def _library(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise UsageError(f"{name} is not installed", hint=f"pip install 'backstay[{name}]'") from None


def _short(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"
