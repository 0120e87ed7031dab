"""A function for `Dataset.map` of Hugging Face: `rows.map(dataset_mapper("…{text}", model=…), batched=True)`."""

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final, Unpack

from backstay.adapters.requests import Purse, prepare_good
from backstay.core.errors import UsageError
from backstay.rows.answers import AnswerType
from backstay.rows.mapping import AnswerStream
from backstay.rows.options import MapOptions, read_options
from backstay.rows.prompts import Prompt
from backstay.rows.results import COST, ERROR, AnswerTable

_NOT_HERE: Final = ("samples", "sample", "confirm", "on_error")


def dataset_mapper(prompt: Prompt, *, schema: Any = None, **options: Unpack[MapOptions]) -> "DatasetMapper":
    """Asks about every row of a dataset: `dataset.map(dataset_mapper("…{text}", model=…), batched=True)`. Adds the
    columns that `backstay.map` adds to a table; `error` is empty where there is none. Each batch is one run; `budget`
    is for all of them."""
    return DatasetMapper(prompt, schema, options)


class DatasetMapper:
    """Its pickle has only what it was made of, so that datasets' cache knows it again."""

    def __init__(self, prompt: Prompt, schema: Any, options: MapOptions) -> None:
        for name in _NOT_HERE:
            if name in options:
                raise UsageError(f"{name} works with map(), not with a dataset's own map")
        self._prompt = prompt
        self._schema = schema
        self._options = options
        self._is_copy = False
        read_options(options)
        self._purse = Purse(options.get("budget"))

    def __getstate__(self) -> tuple[Any, ...]:
        return self._prompt, self._schema, dict(self._options)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(*state)  # type: ignore[misc]
        self._is_copy = True

    def __call__(self, batch: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        if self._is_copy and self._options.get("budget") is not None:
            said = "a budget cannot be kept by several processes"
            raise UsageError(said, hint="leave num_proc out: the calls of one process are concurrent")
        names = list(batch)
        if not names:
            raise UsageError("the function got no columns", hint="call map with batched=True")
        rows = [dict(zip(names, values, strict=True)) for values in zip(*(batch[name] for name in names), strict=True)]
        table = AnswerTable(names, AnswerType(self._schema), 1, self._options.get("prefix", ""))
        table.check()
        records = self._records(rows, table)
        columns = {name: [each.get(name) for each in records] for name in table.added}
        return {name: [_typed(table, name, value) for value in values] for name, values in columns.items()}

    def _records(self, rows: list[dict[str, Any]], table: AnswerTable) -> list[dict[str, Any]]:
        """A row that cannot be sent has only an error."""
        records: list[dict[str, Any]] = [{} for _ in rows]
        with self._purse as purse:
            terms = read_options({**self._options, "budget": purse.left})
            good, bad, prepared = prepare_good(rows, self._prompt, self._schema, terms)
            for place, why in bad.items():
                records[place] = {f"{table.prefix}{COST}": 0.0, f"{table.prefix}{ERROR}": f"not_sent: the row {why}"}
            if prepared is None:
                return records
            stream = AnswerStream(prepared, retry_failed=not prepared.order.new)
            try:
                with closing(stream.answers()) as answers:
                    for answer in answers:
                        records[good[answer.index]] = table.record(answer)
            finally:
                purse.book(stream.run.ended)
        return records


def _typed(table: AnswerTable, name: str, value: Any) -> Any:
    """A dataset takes the type of a column from its first batch, in which these two may be empty."""
    if value is None and name == f"{table.prefix}{ERROR}":
        return ""
    return math.nan if value is None and name == f"{table.prefix}{COST}" else value
