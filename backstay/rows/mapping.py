"""`map` and its relatives: a prompt for every row, an answer for every row."""

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 - so that its own exit function comes after ours
import os
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar, Unpack, overload
from weakref import WeakSet

from backstay.clock import Clock
from backstay.core.display import show_count, show_money, visible
from backstay.core.errors import UsageError
from backstay.llm.forecast import Forecast
from backstay.rows.answers import Answer, MapSummary
from backstay.rows.mapped_run import KnownAnswers, MappedRun, PreparedMap, first_rows, numbers_of, prepare, reader_of
from backstay.rows.options import MapOptions, MapTerms, in_python, read_options
from backstay.rows.progress import BACKGROUND, ProgressLine, choose_progress
from backstay.rows.prompts import Prompt
from backstay.rows.results import Results
from backstay.rows.tables import check_place
from backstay.run.options import Reuse
from backstay.run.result_file import Positions

T = TypeVar("T")

LOOK_SECONDS: Final = 0.1
LINE_END: Final = "\n"
_CLOCK: Final = Clock()
_STOPPING: Final = "stopping: calls under way finish first. Ctrl-C again cuts them off, and you may pay for them twice."

Rows = Any  # a list or an iterator of strings, dicts or models, a frame, a dataset, or the path of a file


@overload
def map(rows: Rows, prompt: Prompt, *, schema: type[T], **options: Unpack[MapOptions]) -> Results[T]: ...
@overload
def map(rows: Rows, prompt: Prompt, *, schema: None = None, **options: Unpack[MapOptions]) -> Results[str]: ...
@overload
def map(
    rows: Rows, prompt: Prompt, *, schema: Mapping[str, Any], **options: Unpack[MapOptions]
) -> Results[dict[str, Any]]: ...
def map(rows: Rows, prompt: Prompt, *, schema: Any = None, **options: Unpack[MapOptions]) -> Results[Any]:
    """Sends a request for every row and returns the answers, as many as rows and in their order:
    `backstay.map(reviews, "Classify: {text}", model="gpt-5-mini", schema=Review, budget=5.00)`.

    The same call again returns what is there and sends only what is missing. Works in scripts, notebooks, threads and
    inside a running event loop."""
    return _try_and_map(prepare(rows, prompt, schema, read_options(options)), schema)


@overload
async def amap(rows: Rows, prompt: Prompt, *, schema: type[T], **options: Unpack[MapOptions]) -> Results[T]: ...
@overload
async def amap(rows: Rows, prompt: Prompt, *, schema: None = None, **options: Unpack[MapOptions]) -> Results[str]: ...
@overload
async def amap(
    rows: Rows, prompt: Prompt, *, schema: Mapping[str, Any], **options: Unpack[MapOptions]
) -> Results[dict[str, Any]]: ...
async def amap(rows: Rows, prompt: Prompt, *, schema: Any = None, **options: Unpack[MapOptions]) -> Results[Any]:
    """`map` for programs with asyncio: `results = await backstay.amap(rows, "…{text}", model="gpt-5-mini")`. Cancelled,
    it lets calls under way finish and saves their answers."""
    terms = read_options(options)
    _refuse_sample(terms, "amap")
    prepared = await asyncio.to_thread(prepare, rows, prompt, schema, terms)
    run, progress = MappedRun(prepared), choose_progress(terms.progress)
    going = asyncio.wrap_future(BACKGROUND.start(run.go()))
    try:
        while not (await asyncio.wait((going,), timeout=LOOK_SECONDS))[0]:
            progress.draw(run.view)
    except asyncio.CancelledError:
        run.stop()
        raise
    finally:
        progress.close(run.view)
    return await asyncio.to_thread(_finish_results, going.result(), prepared)


@overload
def imap(
    rows: Rows, prompt: Prompt, *, schema: type[T], ordered: bool = False, **options: Unpack[MapOptions]
) -> Iterator[Answer[T]]: ...
@overload
def imap(
    rows: Rows, prompt: Prompt, *, schema: None = None, ordered: bool = False, **options: Unpack[MapOptions]
) -> Iterator[Answer[str]]: ...
@overload
def imap(
    rows: Rows, prompt: Prompt, *, schema: Mapping[str, Any], ordered: bool = False, **options: Unpack[MapOptions]
) -> Iterator[Answer[dict[str, Any]]]: ...
def imap(
    rows: Rows, prompt: Prompt, *, schema: Any = None, ordered: bool = False, **options: Unpack[MapOptions]
) -> Iterator[Answer[Any]]:
    """The answers as they come, or in the order of rows: `for answer in backstay.imap(rows, "…{text}", model=…)`.
    Leaving the loop stops the run; the same call again goes on."""
    terms = read_options(options)
    _refuse_sample(terms, "imap")
    answers = AnswerStream(prepare(rows, prompt, schema, terms)).answers(ordered)
    _OPEN_STREAMS.add(answers)
    return answers


def run_file(
    source: str | Path, prompt: Prompt, out: str | Path, *, schema: Any = None, **options: Unpack[MapOptions]
) -> MapSummary:
    """A file of rows in, a table of answers out: `backstay.run_file("in.csv", "…{text}", "out.csv", model=…)`. CSV,
    JSONL or Parquet, by the names of the files; the columns of the input are kept. `out` is refused before anything
    is sent if it holds anything but an earlier table of this call."""
    terms = read_options(options)
    everything = prepare(Path(source), prompt, schema, replace(terms, on_error="return"))
    try:
        check_place(out, everything.table.columns, source, everything.surveyed.requests)
    except UsageError as error:
        raise in_python(error) from None
    results = _try_and_map(everything, schema)
    results.to_csv(out)
    if terms.on_error == "raise":
        results.require_ok()
    return results.summary()


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a call: how many requests it would send, and their cost in dollars; None is unknown. Nothing is
    sent."""

    rows: int
    requests: int
    unique: int
    reused: int  # answers that are known already
    failed: int  # in an earlier call: only `retry_failed` sends them again
    to_send: int
    input_tokens: int  # these and the cost are of what will be sent
    output_tokens: int
    cost_low: float | None
    cost_expected: float | None
    cost_high: float | None
    models: Mapping[str, int]
    first_request: Mapping[str, Any]
    schema_losses: Mapping[str, Sequence[str]]  # by provider: what it cannot enforce, so that only Backstay checks it

    def __str__(self) -> str:
        cost = "cost unknown" if self.cost_expected is None else f"about {_show_dollars(self.cost_expected)}"
        worst = "" if self.cost_high is None else f", at most {_show_dollars(self.cost_high)}"
        failed = f", {self.failed:,} failed" if self.failed else ""
        return f"{self.reused:,} of {self.unique:,} are known{failed}; {self.to_send:,} will be sent, {cost}{worst}"


def plan(rows: Rows, prompt: Prompt, *, schema: Any = None, **options: Unpack[MapOptions]) -> Plan:
    """What the same `map` would send and cost, without sending anything: `print(backstay.plan(rows, "…{text}", …))`."""
    terms = read_options(options)
    prepared = prepare(rows, prompt, schema, terms)
    forecast, known = _forecast(prepared)
    total, first, unique = forecast.total, prepared.tally.first, prepared.tally.items
    assert first is not None
    return Plan(
        rows=prepared.surveyed.requests // terms.samples,
        requests=prepared.surveyed.requests,
        unique=unique,
        reused=known.answered,
        failed=known.failed,
        to_send=unique - known.answered - known.failed,
        input_tokens=total.input_tokens,
        output_tokens=total.output_tokens,
        cost_low=_dollars(total.low_micros),
        cost_expected=_dollars(total.expected_micros),
        cost_high=_dollars(total.worst_micros),
        models=prepared.surveyed.models,
        first_request={"url": first.url, "body": first.fields},
        schema_losses=prepared.run.destination.schema_losses(prepared.surveyed.providers),
    )


def _forecast(prepared: PreparedMap) -> tuple[Forecast, KnownAnswers]:
    """What the requests cost that would be sent, and how many would not."""
    run = prepared.run
    forecast = run.destination.forecast(run.price, run.reasks or 0)
    return forecast, BACKGROUND.run(MappedRun(prepared).look_up(forecast.add))


def _dollars(micros: int | None) -> float | None:
    return None if micros is None else micros / 1_000_000


def _refuse_sample(terms: MapTerms, name: str) -> None:
    if terms.sample is not None:
        raise UsageError(f"sample works with map(), not with {name}()", hint="call map() with sample first")


def _try_and_map(everything: PreparedMap, schema: Any) -> Results[Any]:
    """The first rows alone, if the call wants to see them before it sends the others."""
    terms = everything.terms
    if terms.sample is None or everything.surveyed.requests <= terms.sample * terms.samples:
        return _map(everything)
    started = _CLOCK.monotonic()
    first = first_rows(everything, schema, terms.sample)
    tried = _map(first)
    forecast, known = _forecast(everything)
    left = everything.tally.items - max(known.answered + known.failed, first.tally.items)
    if left > 0 and not _ask_to_continue(tried, left, forecast, terms):
        return tried
    return _map(_after_sample(everything, tried, _CLOCK.monotonic() - started))


def _show_dollars(dollars: float) -> str:
    return show_money(round(dollars * 1_000_000))


def _map(prepared: PreparedMap, retry_failed: bool = False) -> Results[Any]:
    run = MappedRun(prepared, retry_failed)
    results = _wait(run, BACKGROUND.start(run.go()), choose_progress(prepared.terms.progress))
    return _finish_results(results, prepared)


def _after_sample(everything: PreparedMap, tried: Results[Any], seconds: float) -> PreparedMap:
    """All rows: what the first ones cost is spent, and their answers are used whatever `reuse` says."""
    order = everything.order
    left = None if order.budget_micros is None else order.budget_micros - round((tried.cost or 0) * 1_000_000)
    if left is not None and left < 1:
        raise UsageError("the sample has used the budget", hint="give a higher budget=")
    reuse = order.reuse
    if reuse.age_seconds is not None or not reuse.wanted:
        reuse = Reuse(age_seconds=max(seconds + 1, reuse.age_seconds or 0))
    return replace(everything, order=replace(order, budget_micros=left, reuse=reuse))


def _finish_results(results: Results[Any], prepared: PreparedMap) -> Results[Any]:
    results.again = lambda: _map(prepared, retry_failed=True)
    if prepared.terms.on_error == "raise":
        results.require_ok()
    return results


def _wait(run: MappedRun, going: "Future[T]", progress: ProgressLine) -> T:
    """Draws the progress until the run has ended. Ctrl-C stops it, a second one at once; then it is raised again."""
    asked = 0
    while True:
        try:
            while not wait_for((going,), LOOK_SECONDS).done:
                progress.draw(run.view)
            progress.close(run.view)
            break
        except KeyboardInterrupt:
            asked += 1
            progress.say(_STOPPING)
            run.stop() if asked == 1 else run.hurry()
    if asked:
        raise KeyboardInterrupt
    return going.result()


def _ask_to_continue(tried: Results[Any], left: int, forecast: Forecast, terms: MapTerms) -> bool:
    """Shows the answers of the sample, their cost and a forecast, and asks whether to send the rest."""
    if terms.confirm is not None:
        return bool(terms.confirm(tried))
    for answer in tried:
        shown = answer.text if answer.error is None else answer.error.message
        print(f"row {answer.index + 1}: {visible(shown or '', keeping=LINE_END)}")
    try:
        typed = input(f"{_forecast_words(tried, left, forecast)}. Send the other {show_count(left, 'request')}? [y/N] ")
    except (EOFError, NotImplementedError, RuntimeError):  # nobody there; a notebook that takes no input; no stdin
        print("\nnobody can answer, so the others are not sent; confirm= takes a function that decides")
        return False
    return typed.strip().lower() in ("y", "yes")


def _forecast_words(tried: Results[Any], left: int, forecast: Forecast) -> str:
    """What the sample cost, and all would cost. Rows that cost nothing, because an earlier call has answered them or
    because they failed, tell nothing about the others: if there is no other one, the forecast is that of `plan`."""
    cost, paid = tried.cost, sum(1 for answer in tried if answer.cost)
    if cost is None:
        return "the cost is unknown"
    rest = cost / paid * left if paid else (forecast.total.expected_micros or 0) / 1_000_000
    return f"these cost {_show_dollars(cost)}; all would cost about {_show_dollars(cost + rest)}"


class AnswerStream:
    """The answers of a run: those that end while it goes on, then the others: of earlier calls, of other processes, or
    not sent. `stop` may be called from any thread; what was not sent by then comes with an error."""

    def __init__(self, prepared: PreparedMap, retry_failed: bool = False) -> None:
        self._ended: SimpleQueue[list[int]] = SimpleQueue()
        self.run = MappedRun(prepared, retry_failed, self._ended.put)

    def stop(self) -> None:
        self.run.stop()

    def answers(self, ordered: bool = False) -> Generator[Answer[Any], None, None]:
        run, prepared = self.run, self.run.prepared
        progress = choose_progress(prepared.terms.progress)
        going, given = BACKGROUND.start(run.go()), Positions()
        try:
            while not wait_for((going,), 0).done and run.view.job_id is None:
                wait_for((going,), LOOK_SECONDS)
            if run.view.job_id is not None:
                ready = _ready(run, going, self._ended, progress, ordered)
                yield from reader_of(prepared, run.view.job_id).answers(_fresh(ready, given))
            results = _wait(run, going, progress)
            yield from results.pick([number for number in range(len(results)) if number not in given])
            if prepared.terms.on_error == "raise":
                results.require_ok()
        finally:
            run.stop()
            wait_for((going,))
            progress.close(run.view)


_OPEN_STREAMS: Final[WeakSet[Generator[Any, None, None]]] = WeakSet()


def _close_streams() -> None:
    """Leaves the loops that a program has left open at its end."""
    for answers in list(_OPEN_STREAMS):
        with suppress(ValueError):  # another thread is in it
            answers.close()


# When Python clears the modules of a program, the thread of its runs is dead, and an open loop would wait for ever. A
# run that stops needs executors: `atexit` comes after their end, this one before it.
getattr(threading, "_register_atexit", atexit.register)(_close_streams)
os.register_at_fork(after_in_child=_OPEN_STREAMS.clear)  # these loops are the parent's


def _ready(
    run: MappedRun, going: "Future[Any]", ended: "SimpleQueue[list[int]]", progress: ProgressLine, ordered: bool
) -> Iterator[list[int]]:
    """The requests that have ended, while the run goes on."""
    numbers_at, waiting, turn = numbers_of(run.prepared), Positions(), 0
    while not going.done() or not ended.empty():
        progress.draw(run.view)
        try:
            numbers = [number for position in ended.get(timeout=LOOK_SECONDS) for number in numbers_at(position)]
        except Empty:
            continue
        if ordered:
            for number in numbers:
                waiting.add(number)
            numbers = []
            while turn in waiting:
                numbers.append(turn)
                turn += 1
        yield numbers


def _fresh(pages: Iterator[list[int]], given: Positions) -> Iterator[list[int]]:
    for numbers in pages:
        yield [number for number in numbers if given.add(number)]
