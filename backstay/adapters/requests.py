"""Requests of other libraries as runs: many at once in one run, and single ones that arrive together in one run.

And `dataset_mapper`, a function for `Dataset.map` of Hugging Face, whose every batch is a run.
"""

import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Unpack, cast

from backstay.core.display import NotPlain, plain_value
from backstay.core.errors import BackstayError, RowsFailed, UsageError
from backstay.llm.providers import CHAT
from backstay.rows.answers import Answer, AnswerType
from backstay.rows.mapped_run import BadRows, PreparedMap, prepare
from backstay.rows.mapping import AnswerStream
from backstay.rows.options import MapOptions, MapTerms, SendOptions, body_members, read_options
from backstay.rows.prompts import Prompt
from backstay.rows.results import COST, ERROR, AnswerTable
from backstay.store.job_views import JobView

Body = Mapping[str, Any]
Outcome = Answer[Any] | BackstayError  # an error: the request could not be sent at all

# A group is sent when no request has arrived for this long, or when it has waited for so many of these pauses.
PAUSE_SECONDS: Final = 0.02
PAUSES_MAX: Final = 50
_COLUMN: Final = "request"
_PREFIX: Final = "answer_"  # so that no field of a schema is named like the column
_MICROS: Final = 1_000_000
_NOT_OF_DATASETS: Final = ("samples", "sample", "confirm", "on_error")


class CallFailed(RowsFailed):
    """A request has no answer. `kind` says why, as in `Answer.error`; `retryable`: another try may succeed."""

    def __init__(self, message: str = "", *, kind: str = "UNKNOWN", retryable: bool = True) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable


def reply_of(outcome: Outcome, kept: Sequence[str] = ()) -> Mapping[str, Any]:
    """The provider's reply in OpenAI's chat format. `kept` are kinds of errors whose reply is wanted all the same."""
    if isinstance(outcome, BackstayError):
        raise outcome
    error = outcome.error
    if outcome.reply is not None and (error is None or error.kind in kept):
        return outcome.reply
    kind = "UNKNOWN" if error is None else error.kind
    message = "there is no reply" if error is None else error.message
    raise CallFailed(f"{kind}: {message}", kind=kind, retryable=error is None or error.retryable)


class Purse:
    """One budget for all runs of an adapter: with a budget, they go one after another, and each gets what is left."""

    def __init__(self, budget: float | None) -> None:
        self._budget = budget
        self._used: dict[int, int] = {}  # by run: the same requests again are the same run
        self._busy = threading.Lock()

    def __enter__(self) -> "Purse":
        if self._budget is not None:
            self._busy.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        if self._budget is not None:
            self._busy.release()

    @property
    def left(self) -> float | None:
        """In dollars; never 0, with which known answers could not be used either."""
        if self._budget is None:
            return None
        return max(self._budget - sum(self._used.values()) / _MICROS, 1 / _MICROS)

    def book(self, job: JobView | None) -> None:
        if job is not None:
            self._used[job.id] = job.used_micros


class AdapterSender:
    """Sends the requests of one adapter, all with the same options and under one budget."""

    def __init__(self, options: SendOptions, label: str) -> None:
        self.options: SendOptions = {**options, "label": options.get("label") or label}
        read_options(cast(MapOptions, self.options))  # what is wrong is known at once
        self._purse = Purse(options.get("budget"))

    def body(self, messages: Sequence[Any], members: Mapping[str, Any]) -> dict[str, Any]:
        """A request in OpenAI's chat format. `members` are those of this request alone."""
        named: Any = {name: members[name] for name in ("temperature", "max_tokens") if name in members}
        system = self.options.get("system")
        first = [] if system is None else [{"role": "system", "content": system}]
        rest = {name: value for name, value in members.items() if name not in named}
        return {**body_members({**self.options, **named}), **rest, "messages": [*first, *messages]}

    def run(self, bodies: Sequence[Body], schema: Any = None, **more: Any) -> "RequestRun":
        options: Any = {**self.options, "prefix": _PREFIX, **more}
        return RequestRun(bodies, schema, options, self._purse)


class RequestRun:
    """Requests that are one run. One that cannot be sent is an error of its own; the others are sent."""

    def __init__(self, bodies: Sequence[Body], schema: Any, options: MapOptions, purse: Purse) -> None:
        self._bodies = bodies
        self._schema = schema
        self._options = options
        self._purse = purse
        self._stream: AnswerStream | None = None
        self._stopped = False

    def stop(self) -> None:
        """From any thread: calls under way finish and are saved; the others come as errors."""
        self._stopped = True
        if self._stream is not None:
            self._stream.stop()

    def outcomes(self) -> Iterator[tuple[int, Outcome]]:
        """As they come, each with the place of its request. Raises RequestsRefused if the provider refuses all."""
        with self._purse as purse:
            options: MapOptions = {**self._options, "budget": purse.left}
            rows = [{_COLUMN: body} for body in self._bodies]
            terms = read_options(options)
            terms = replace(terms, reading=replace(terms.reading, endpoint=CHAT))  # also where a body could be another
            good, bad, prepared = prepare_good(rows, lambda row: row[_COLUMN], self._schema, terms)
            for place, why in bad.items():
                yield place, UsageError(f"the request {why}")
            if prepared is None:
                return
            # A request that failed in an earlier call is sent again: its caller asks for it again.
            self._stream = stream = AnswerStream(prepared, retry_failed=not prepared.order.new)
            if self._stopped:
                stream.stop()
            try:
                with closing(stream.answers()) as answers:
                    for answer in answers:
                        yield good[answer.index], answer
            finally:
                purse.book(stream.run.ended)


def prepare_good(
    rows: Sequence[Mapping[str, Any]], prompt: Prompt, schema: Any, terms: MapTerms
) -> tuple[list[int], dict[int, str], PreparedMap | None]:
    """The places of the rows that can be sent, what is wrong with the others, and those that can, prepared."""
    good, bad = list[int](), dict[int, str]()
    for place, row in enumerate(rows):
        try:
            plain_value(row)
            good.append(place)
        except NotPlain as error:
            bad[place] = f"has {error}, which cannot be sent"
    while good:
        try:
            return good, bad, prepare([rows[place] for place in good], prompt, schema, terms)
        except BadRows as refused:
            bad |= {good[at]: why for at, why in refused.reasons.items()}
            good = [place for at, place in enumerate(good) if at not in refused.reasons]
    return good, bad, None


class _Request(NamedTuple):
    """A request and its caller."""

    content: str
    body: Body
    answer: "Future[Answer[Any]]"


@dataclass(slots=True)
class _Waiting:
    """Requests for answers of the same schema."""

    schema: Any
    requests: list[_Request] = field(default_factory=list)


class RequestGroups:
    """Gathers single requests that arrive at about the same time: together they are one run."""

    def __init__(self, sender: AdapterSender) -> None:
        self._sender = sender
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._gatherer: threading.Thread | None = None

    def ask(self, body: Body, schema: Any = None) -> "Future[Answer[Any]]":
        """Whoever no longer wants the answer cancels the future."""
        made: Future[Answer[Any]] = Future()
        asked = _Request(_content_of(body), body, made)
        name = json.dumps(schema, sort_keys=True, default=repr) if isinstance(schema, Mapping) else str(id(schema))
        with self._lock:
            self._waiting.setdefault(name, _Waiting(schema)).requests.append(asked)
            if self._gatherer is None or not self._gatherer.is_alive():  # a fork has the object and not the thread
                self._gatherer = threading.Thread(target=self._gather, name="backstay-requests", daemon=True)
                self._gatherer.start()
        return made

    def _gather(self) -> None:
        pause, before = threading.Event(), 0
        for _ in range(PAUSES_MAX):
            pause.wait(PAUSE_SECONDS)
            arrived = sum(len(each.requests) for each in tuple(self._waiting.values()))
            if arrived == before:
                break
            before = arrived
        with self._lock:
            groups, self._waiting, self._gatherer = list(self._waiting.values()), {}, None
        for group in groups[1:]:
            threading.Thread(target=self._send, args=(group,), name="backstay-requests", daemon=True).start()
        self._send(groups[0])

    def _send(self, group: _Waiting) -> None:
        # In the order of their content: the same group after a crash is the same run, whoever was first.
        asked = sorted(group.requests, key=lambda each: each.content)
        futures = [each.answer for each in asked]
        try:
            progress = self._sender.options.get("progress", False)
            run = self._sender.run([each.body for each in asked], group.schema, progress=progress)
            for made in futures:
                made.add_done_callback(_when_all_cancelled(futures, run.stop))
            for place, outcome in run.outcomes():
                _settle(futures[place], outcome)
        except BaseException as error:  # every caller must hear of it
            for made in futures:
                _settle(made, error)


def _content_of(body: Body) -> str:
    try:
        return json.dumps(body, sort_keys=True, default=repr)
    except (TypeError, ValueError):  # it cannot be sent, and its caller gets the reason
        return ""


def _when_all_cancelled(futures: "Sequence[Future[Any]]", then: Callable[[], None]) -> Callable[["Future[Any]"], None]:
    def look(_: "Future[Any]") -> None:
        if all(each.cancelled() for each in futures):
            then()

    return look


def _settle(made: "Future[Answer[Any]]", outcome: Answer[Any] | BaseException) -> None:
    if made.done() or not made.set_running_or_notify_cancel():
        return
    if isinstance(outcome, BaseException):
        made.set_exception(outcome)
    else:
        made.set_result(outcome)


# A function for `Dataset.map` of Hugging Face


def dataset_mapper(prompt: Prompt, *, schema: Any = None, **options: Unpack[MapOptions]) -> "DatasetMapper":
    """Asks about every row of a dataset: `dataset.map(dataset_mapper("…{text}", model=…), batched=True)`. Adds the
    columns that `backstay.map` adds to a table; `error` is empty where there is none. Each batch is one run; `budget`
    is for all of them."""
    return DatasetMapper(prompt, schema, options)


class DatasetMapper:
    """Its pickle has only what it was made of, so that datasets' cache knows it again."""

    def __init__(self, prompt: Prompt, schema: Any, options: MapOptions) -> None:
        for name in _NOT_OF_DATASETS:
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
