"""One call of `map`: the rows as requests, the run that sends them, and the answers that it leaves in the database."""

import asyncio
import gc
import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, repeat
from typing import Any, Final, NamedTuple

from backstay.client import Client
from backstay.clock import collect_rarely
from backstay.core.display import show_count
from backstay.core.errors import BackstayError, RequestsRefused, UsageError
from backstay.core.events import Event, ItemsSettled
from backstay.core.ids import job_of, position_of
from backstay.core.states import TERMINAL, ItemState
from backstay.llm.formats import Format, ParsedRequest
from backstay.llm.intake import FileSurvey, RequestSource, survey
from backstay.llm.lines import LinePart
from backstay.llm.prices import PriceList, given_price
from backstay.llm.provider import TokenEstimate
from backstay.llm.repeated_requests import LOOK_UP_REQUESTS, Originals, RequestKeys, Suspicion, same_text, sample_of
from backstay.rows.answers import AnswerError, AnswerReader, AnswerType, TokensUsed
from backstay.rows.options import MapTerms, in_python, open_app
from backstay.rows.progress import LastState
from backstay.rows.prompts import CalledOnce, Prompt, RowPrompt, RowRequests
from backstay.rows.results import AnswerTable, Results, RunFigures
from backstay.rows.sources import RowSource, open_rows
from backstay.run.options import RunOptions
from backstay.run.result_file import Positions
from backstay.run.run import Run
from backstay.run.submission import Order, Submission, WeighedRun
from backstay.run.summary import Ending, Summary, what_to_check
from backstay.store.job_views import JobView

OVER_BUDGET: Final = AnswerError("budget", "the budget is reached; give a higher budget to send this row")
STOPPED: Final = AnswerError("not_sent", "the run was stopped before this row was sent")


class BadRows(UsageError):
    """Rows that cannot be sent: `reasons` has the first of them, by their places from 0."""

    def __init__(self, message: str = "", *, hint: str | None = None, reasons: Mapping[int, str] | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reasons = dict(reasons or {})


class RequestTally:
    """Checks every request before the first is sent: its maximum cost under a budget, whether it repeats another one,
    and its model."""

    def __init__(self, weighed: WeighedRun | None, dedupe: bool) -> None:
        self._weighed = weighed
        self._dedupe = dedupe
        self.clear()

    def clear(self) -> None:
        self.items = 0
        self.places: array[int] | None = None  # of the items of the requests, of copies -1 - place; None: no copies
        self.models: set[tuple[str, str | None]] = set()
        self.first: ParsedRequest | None = None
        self._seen = Suspicion()

    def add(self, parsed: ParsedRequest) -> None:
        if self._weighed is not None:
            self._weighed.add(parsed)
        self.first = self.first or parsed
        self.models.add((parsed.api, parsed.model))
        self.items += 1
        if self._dedupe:
            self._seen.add(same_text(parsed.request, parsed.api))

    def find_copies(self, source: RequestSource) -> None:
        """Reads the requests once more if some seem to be the same: only those are looked at closely."""
        if not self._dedupe or not self._seen.narrow():
            return
        places, items = array("q"), 0
        with Originals() as originals:
            for _, parsed in source.entries():
                assert isinstance(parsed, ParsedRequest)  # all rows are good
                first = items
                if same_text(parsed.request, parsed.api) in self._seen:
                    first = originals.first(parsed.request, items, parsed.api)
                places.append(items if first == items else -1 - first)
                items += first == items
        self.places, self.items = None if items == len(places) else places, items


@dataclass(slots=True)
class PreparedMap:
    """Everything is checked, and nothing is sent or written yet."""

    terms: MapTerms
    run: RunOptions  # those of the terms, with the schema
    rows: RowSource
    prompt: Prompt
    source: RequestSource
    surveyed: FileSurvey
    tally: RequestTally
    order: Order
    type: AnswerType[Any]
    table: AnswerTable

    @property
    def priced(self) -> bool:
        """Whether the price of every model is known."""
        for endpoint in self.order.endpoints:
            prices = PriceList(endpoint.base_url, endpoint.lane, given_price(endpoint), None, endpoint.api)
            asked = {model for api, model in self.tally.models if api == endpoint.api}
            models = {endpoint.model} if endpoint.model is not None else asked
            if any(prices.price(TokenEstimate(0, 0, 0, 0, model=model)) is None for model in models):
                return False
        return True


def prepare(rows: Any, prompt: Prompt, schema: Any, terms: MapTerms, rows_max: int | None = None) -> PreparedMap:
    """Reads every row once. Raises one error, which names the row and the column, if anything is wrong."""
    try:
        source = rows if isinstance(rows, RowSource) else open_rows(rows)
        return _prepare(source, CalledOnce(prompt) if callable(prompt) else prompt, schema, terms, rows_max)
    except BadRows:
        raise
    except UsageError as error:
        raise in_python(error) from error.__cause__


def first_rows(everything: PreparedMap, schema: Any, rows_max: int) -> PreparedMap:
    """The first rows of what is prepared, as a call of its own."""
    return _prepare(everything.rows, everything.prompt, schema, everything.terms, rows_max)


def _prepare(source: RowSource, prompt: Prompt, schema: Any, terms: MapTerms, rows_max: int | None) -> PreparedMap:
    answer_type = AnswerType[Any](schema, terms.check)
    run = terms.run._replace(schema=answer_type.answers, reasks=terms.reasks if answer_type.is_checked else None)
    run.check()
    if next(iter(source.rows()), None) is None:
        raise UsageError(f"there are no rows in {source.name}")
    if rows_max is not None:
        source = _first_rows(source, rows_max)
    if terms.id is not None and terms.id not in source.columns:
        raise UsageError(f"id names {terms.id!r}, which is not a column", hint=f"there are {', '.join(source.columns)}")
    table = AnswerTable(source.columns, answer_type, terms.samples, terms.prefix)
    table.check()
    made = RowRequests(source.rows, RowPrompt(prompt, source.columns, terms.prompt), terms.id, terms.samples)
    reading = run.destination.input_options(terms.reading)
    requests = RequestSource(source.name, Format.ROWS, lambda: made.entries(reading))
    tally = RequestTally(run.weigher(), run.dedupe)
    surveyed = survey(requests, tally)
    _refuse_bad_rows(surveyed, terms, source)
    tally.find_copies(requests)
    run.destination.require_keys(surveyed.providers)
    run = run.fit(surveyed)
    differ = run.dedupe and tally.places is None
    more: dict[str, Any] = {"wait": terms.wait, "label": terms.label or source.name, "all_differ": differ}
    check = answer_type.parse if answer_type.is_checked else None
    order = run.order(surveyed.routes, out=None, check=check, **more)
    if run.fallback is not None and not order.has_fallbacks:
        raise UsageError(f"every request goes to {run.fallback} already", hint="name another fallback=")
    return PreparedMap(terms, run, source, prompt, requests, surveyed, tally, order, answer_type, table)


def _first_rows(source: RowSource, rows_max: int) -> RowSource:
    rows = source.rows
    return replace(source, rows=lambda: islice(rows(), rows_max))


def _refuse_bad_rows(surveyed: FileSurvey, terms: MapTerms, source: RowSource) -> None:
    if not surveyed.bad:
        return
    reasons: dict[int, str] = {}
    for bad in surveyed.bad:
        reason = bad.reason.replace("a custom_id", "an id").replace("the custom_id", "the id")
        if bad.part is LinePart.CUSTOM_ID:
            reason = f"(column {terms.id!r}) {reason.replace(' of line ', ' of row ')}"
        reasons.setdefault((bad.line - 1) // terms.samples, reason)
    row, reason = next(iter(reasons.items()))
    is_empty = surveyed.bad[0].part is LinePart.VALUE
    others = surveyed.bad_count - 1
    more = f" ({show_count(others, 'more row')} {'is' if others == 1 else 'are'} wrong)" if others else ""
    hint = "fill the value in, leave the row out, or give nulls=''" if is_empty else "nothing was sent"
    said = in_python(UsageError(f"row {row + 1} of {source.name} {reason}{more}", hint=hint))
    raise BadRows(said.message, hint=said.hint, reasons=reasons)


class EndedItems:
    """Collects the items of a job as they end, for callers that want answers as they come."""

    def __init__(self, tell: Callable[[list[int]], None]) -> None:
        self._tell = tell
        self.job_id: int | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, ItemsSettled):
            ended = [
                position_of(settled.id)
                for settled in event.settlements
                if settled.state in TERMINAL and job_of(settled.id) == self.job_id
            ]
            if ended:
                self._tell(ended)


class KnownAnswers(NamedTuple):
    """The requests that a call would not send."""

    answered: int = 0
    failed: int = 0  # of the same call: only `retry_failed` sends them again


async def _look_in_job(
    client: Client, job_id: int, originals: Iterator[ParsedRequest], unknown: Callable[[ParsedRequest], None]
) -> KnownAnswers:
    """Those that the same call has ended."""
    ended, answered = Positions(), 0
    async for page in client.store.results.ended_items(job_id):
        for item, state in page:
            ended.add(position_of(item))
            answered += state == ItemState.SUCCEEDED
    for position, original in enumerate(originals):
        if position not in ended:
            unknown(original)
    return KnownAnswers(answered, len(ended) - answered)


class MappedRun:
    """Sends the prepared requests. `stop` ends the run cleanly, `hurry` at once; both may be called from any thread."""

    def __init__(
        self, prepared: PreparedMap, retry_failed: bool = False, tell: Callable[[list[int]], None] | None = None
    ):
        self.ended: JobView | None = None  # the job, once nothing more is sent
        self.prepared = prepared
        self.view = LastState()
        self.app = open_app(prepared.terms.db)
        self._order = replace(prepared.order, retry_failed=retry_failed, new=prepared.order.new and not retry_failed)
        self._tell = tell
        self._run: Run | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True
        if self._run is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._run.stop)

    def hurry(self) -> None:
        if self._run is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._run.stop_now)

    async def go(self) -> Results[Any]:
        self._loop = asyncio.get_running_loop()
        thresholds = gc.get_threshold()
        collect_rarely()
        try:
            known = await self._find_ended_job()
            if known is not None:
                return self._results(known, STOPPED)
            return await self._send()
        except UsageError as error:
            raise in_python(error) from None
        finally:
            gc.set_threshold(*thresholds)
            await self.app.close()

    async def look_up(self, unknown: Callable[[ParsedRequest], None]) -> KnownAnswers:
        """Counts the requests that need not be sent, and passes on the others. Does not create a database."""
        prepared, file = self.prepared, self.app.url.removeprefix("sqlite:///")
        originals = (
            found
            for (_, found), place in zip(prepared.source.entries(), prepared.tally.places or repeat(0), strict=False)
            if isinstance(found, ParsedRequest) and place >= 0
        )
        if file != self.app.url and not os.path.exists(file):  # noqa: ASYNC240 - one look, in our own thread
            for original in originals:
                unknown(original)
            return KnownAnswers()
        try:
            client = await self.app.open()
            job_id = await Submission(self._order, prepared.source, prepared.surveyed).find(client)
            if job_id is not None:
                return await _look_in_job(client, job_id, originals, unknown)
            return await self._look_in_answers(client, originals, unknown)
        finally:
            await self.app.close()

    async def _look_in_answers(
        self, client: Client, originals: Iterator[ParsedRequest], unknown: Callable[[ParsedRequest], None]
    ) -> KnownAnswers:
        """Those that other runs have answered."""
        search, answered = self._order.search, 0
        keys = {start.api: RequestKeys.of(client.owner, start) for start in self._order.endpoint.starts}
        while page := list(islice(originals, LOOK_UP_REQUESTS)):
            wanted = [keys[each.api].key(each.url, each.fields, each.model, sample_of(each.metadata)) for each in page]
            known = set() if search is None else await client.store.answers.find(client.owner, wanted, search)
            answered += len(known)
            for number, each in enumerate(page):
                if number not in known:
                    unknown(each)
        return KnownAnswers(answered)

    async def _find_ended_job(self) -> JobView | None:
        """The job of the same call, if it has ended and there is nothing to send."""
        if self._order.new:
            return None
        client = await self.app.open()
        prepared = self.prepared
        job_id = await Submission(self._order, prepared.source, prepared.surveyed).find(client)
        if job_id is None:
            return None
        seen = await client.job(job_id).show()
        if self._order.retry_failed and seen.succeeded < seen.total:
            return None
        return seen if seen.ended and seen.sealed and seen.total == prepared.tally.items else None

    async def _send(self) -> Results[Any]:
        prepared = self.prepared
        self._run = Run(self.app, self._order, prepared.source, prepared.surveyed, "backstay {}".format)
        if self._stopped:  # not KeyboardInterrupt: in a task it would end the loop of all calls
            raise BackstayError("the run was stopped before anything was sent")
        heard = None if self._tell is None else EndedItems(self._tell)
        if heard is not None:
            self.app.bus.subscribe(heard)
        commands = prepared.terms.run.destination.key_commands(self._order.endpoint.api)
        if commands is not None:
            self.app.settings = self.app.settings.model_copy(update={"api_key_command": commands})

        def show(job_id: int) -> Any:
            if heard is not None:
                heard.job_id = job_id
            return self.view.open(job_id)

        summary = await self._run.run(show)
        self._refuse(summary)
        seen = await (await self.app.open()).job(summary.job_id).show()
        return self._results(seen, OVER_BUDGET if summary.ending is Ending.BUDGET else STOPPED)

    def _refuse(self, summary: Summary) -> None:
        if summary.left and summary.ending is Ending.REFUSED and summary.refusal is not None:
            said = f"the provider refused the first requests: {summary.refusal.message}"
            raise RequestsRefused(said, hint=f"check {what_to_check(summary.refusal)}, and make the same call again")

    def _results(self, seen: JobView, unsent: AnswerError) -> Results[Any]:
        prepared = self.prepared
        self.ended = seen
        return Results(
            reader_of(prepared, seen.id, unsent),
            RunFigures(
                seen.id,
                seen.spent_micros / 1_000_000 if prepared.priced else None,
                TokensUsed(seen.input_tokens, seen.output_tokens),
            ),
            prepared.table,
            prepared.rows.frame,
        )


def reader_of(prepared: PreparedMap, job_id: int, unsent: AnswerError = STOPPED) -> AnswerReader[Any]:
    return AnswerReader(
        lambda: open_app(prepared.terms.db),
        job_id,
        prepared.surveyed.requests,
        prepared.tally.places,
        prepared.order.endpoints,
        prepared.type,
        prepared.rows,
        prepared.terms.id,
        prepared.terms.samples,
        unsent,
    )


def numbers_of(prepared: PreparedMap) -> Callable[[int], list[int]]:
    """The requests that an item answers, by its position."""
    places = prepared.tally.places
    if places is None:
        return lambda position: [position]
    items = [place if place >= 0 else -1 - place for place in places]
    order = sorted(range(len(items)), key=items.__getitem__)
    return lambda position: order[
        bisect_left(order, position, key=items.__getitem__) : bisect_right(order, position, key=items.__getitem__)
    ]
