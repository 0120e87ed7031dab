"""Carries committed results from the database into the result files, as they come."""

import asyncio
import json
from array import array
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from backstay.core.events import Event, ItemsSettled
from backstay.core.ids import item_id, job_of, position_of
from backstay.core.models import Attempt, Flaw, Settlement
from backstay.core.states import TERMINAL, ItemState
from backstay.llm.chat_format import reply_in_chat
from backstay.llm.endpoint import Endpoint
from backstay.llm.fallbacks import Fallback
from backstay.llm.lines import unseal
from backstay.llm.providers import provider_named, provider_of_url
from backstay.run.output import ResultFiles
from backstay.run.result_file import EndedRequest, Positions, ended_request
from backstay.store.results import AnswerRow, Copy, ResultRow
from backstay.store.store import Store


class LinePlace(NamedTuple):
    """A request: an item, or with a number a copy of it."""

    position: int
    number: int | None = None


class FileOrder:
    """The order of the requests of a file, with their copies. It needs four bytes for a request, so millions fit in
    memory."""

    def __init__(self) -> None:
        self._items = array("i")  # by number: one more than the position of the item that it is a copy of, or 0

    def add(self, position: int, number: int) -> None:
        if number >= len(self._items):
            self._items.extend([0] * (number + 1 - len(self._items)))
        self._items[number] = position + 1

    def places(self, items: int) -> Iterator[LinePlace]:
        """Every request in its order. A request that is not a copy is the next item."""
        position = 0
        for number, copied in enumerate(self._items):
            if copied:
                yield LinePlace(copied - 1, number)
            elif number and position < items:
                yield LinePlace(position)
                position += 1
        for left in range(position, items):
            yield LinePlace(left)


PAGE_ITEMS = 500
HELD_CHARACTERS_MAX = 8_000_000  # of results that wait to be written; the database has them too

T = TypeVar("T")
Row = TypeVar("Row", ResultRow, AnswerRow)


class Collector:
    """Collects the items that ended in this process, and looks for items that another process ended. A thread writes
    the files."""

    def __init__(
        self,
        store: Store,
        files: ResultFiles,
        job_id: int,
        owner: str,
        copies: bool,
        chat: "ChatReplies | None" = None,
        places: "AnswerPlaces | None" = None,
    ) -> None:
        self._results, self._jobs = store.results, store.job_views
        self._files = files
        self._job_id = job_id
        self._owner = owner
        self._copies = copies
        self._chat = chat
        self._places = places
        self._retries: int | None = None  # of the job, when the first line was written
        self._unknown = False  # a line says that the outcome is unknown, which may change
        self._ended: list[ResultRow] = []
        self._unread: list[int] = []
        self._size = 0

    def __call__(self, event: Event) -> None:
        """Listens to the engine. Settled items are committed, so they are not read again, unless there are very
        many."""
        if not isinstance(event, ItemsSettled):
            return
        for settled, body in zip(event.settlements, event.bodies, strict=True):
            if settled.state not in TERMINAL or job_of(settled.id) != self._job_id:
                continue
            # an event does not name the provider that answered
            known = settled.attempt is not None and self._places is None
            if body and known and settled.attempt is not None and self._size < HELD_CHARACTERS_MAX:
                self._ended.append(_row(settled, settled.attempt, body))
                self._size += len(settled.attempt.result or "") + len(body)
            else:
                self._unread.append(settled.id)

    @property
    def written(self) -> int:
        return self._files.succeeded + self._files.failed

    async def write(self) -> None:
        """Writes the items that were collected; the first call also writes those of earlier tries and of other
        processes."""
        if self._retries is None:
            self._retries = await self._jobs.retries(self._job_id)
            self._ended, self._unread, self._size = [], [], 0  # may have been retried before; the database knows
            if self._files.failed:
                await self._files.renew_errors(self._failures())
            if self._files.succeeded and self._copies:
                await self._drop_torn()
            await self.catch_up()
        rows, self._ended, self._size = sorted(self._ended, key=lambda row: row.id), [], 0
        for low in range(0, len(rows), PAGE_ITEMS):
            await self._write(rows[low : low + PAGE_ITEMS])
        while self._unread:
            items, self._unread = self._unread[:PAGE_ITEMS], self._unread[PAGE_ITEMS:]
            await self._write(await self._results.of_items(items))

    async def _drop_torn(self) -> None:
        """Somebody may have cut the lines of copies out of the results. All lines of their items are removed, and
        written again."""
        torn = Positions()
        async for item, number in self._results.copies(self._job_id):
            if self._files.lacks_copy(position_of(item), number):
                torn.add(position_of(item))
        if torn:
            await asyncio.to_thread(self._files.drop_results, torn)

    async def catch_up(self) -> None:
        """Writes every ended item that has no line yet, no matter which process ended it."""
        async for page in self._results.ended_items(self._job_id):
            ended = ((item, state == ItemState.SUCCEEDED) for item, state in page)
            for missing in _pages(item for item, ok in ended if self._files.lacks_line(position_of(item), ok)):
                await self._write(await self._results.of_items(missing))

    async def finish(self) -> None:
        """Writes the remaining lines, and rewrites the errors: an item that was retried or has a late result by now has
        an old failure there."""
        await self.write()
        if self._unknown or await self._jobs.retries(self._job_id) != self._retries:
            await self._files.renew_errors(self._failures())
        await self.catch_up()

    async def _failures(self) -> AsyncIterator[EndedRequest]:
        async for page in self._results.ended_items(self._job_id):
            for failed in _pages(item for item, state in page if state != ItemState.SUCCEEDED):
                for ended in await self._with_copies(await self._results.of_items(failed)):
                    yield ended

    async def finish_ordered(self) -> None:
        """Writes everything at once, in the order of requests."""
        await self._files.rewrite_in_order(self._in_order())

    async def _in_order(self) -> AsyncIterator[EndedRequest]:
        order = FileOrder()
        if self._copies:
            async for item, number in self._results.copies(self._job_id):
                order.add(position_of(item), number)
        items = (await self._jobs.get(self._job_id, self._owner)).total
        for page in _pages(order.places(items)):
            for ended in await self._read_places(page):
                yield ended

    async def _read_places(self, places: Sequence[LinePlace]) -> list[EndedRequest]:
        """The items at these places that have ended."""
        items = sorted({item_id(self._job_id, place.position) for place in places})
        ended = {position_of(row.id): self._ended_request(row) for row in await self._results.of_items(items)}
        copies = [(item_id(self._job_id, at), number) for at, number in places if number is not None]
        names = await self._results.copies_named(copies) if copies else {}
        return [
            ended[at]
            if number is None
            else ended[at]._replace(number=number, custom_id=names[item_id(self._job_id, at), number])
            for at, number in places
            if at in ended
        ]

    async def _write(self, rows: Sequence[ResultRow]) -> None:
        self._unknown = self._unknown or any(row.flaw == Flaw.UNKNOWN for row in rows)
        ended = await self._with_copies(rows)
        await asyncio.to_thread(self._files.write, ended)

    async def _with_copies(self, rows: Sequence[ResultRow]) -> list[EndedRequest]:
        copies: dict[int, list[Copy]] = {}
        if self._copies and rows:
            copies = await self._results.copies_of([row.id for row in rows])
        return [self._ended_request(row, copies.get(row.id, ())) for row in rows]

    def _ended_request(self, row: ResultRow, copies: Sequence[Copy] = ()) -> EndedRequest:
        ended = ended_request(row if self._chat is None else self._chat.translate(row), copies)
        return ended if self._places is None else ended._replace(answered_by=self._places.of_row(row))


class AnswerPlaces:
    """The provider and the model that requests ended with, in a run with fallbacks."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._endpoints = {endpoint.name: endpoint for endpoint in endpoints}

    def of_row(self, row: ResultRow) -> Fallback:
        endpoint = self._endpoints[row.handler]
        return Fallback(endpoint.api, endpoint.model or _model_of(endpoint.api, row.body))

    def count(self, answered: Iterable[tuple[str, int]]) -> dict[str, int]:
        """How many requests each provider answered; a fallback counts under its model. In the order of the
        endpoints."""
        by_handler, found = dict(answered), dict[str, int]()
        for name, endpoint in self._endpoints.items():
            shown = endpoint.api if endpoint.model is None else f"{endpoint.api}:{endpoint.model}"
            found[shown] = found.get(shown, 0) + by_handler.get(name, 0)
        return found


def _model_of(api: str, body: str) -> str:
    request = unseal(body)
    return provider_named(api).requests.estimate(request.url, request.body, json.loads(request.body)).model or ""


class ChatReplies:
    """Writes the replies of providers that have a format of their own in OpenAI's chat format."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = {endpoint.name: endpoint for endpoint in endpoints}
        apis = {endpoint.api for endpoint in endpoints}
        self._only = next(iter(apis)) if len(apis) == 1 else None
        self._any = any(provider_named(api).chat is not None for api in apis)

    def translate(self, row: Row) -> Row:
        if not self._any:
            return row
        ended_at = self._endpoints.get(row.handler)
        api = self._only or (None if ended_at is None else ended_at.api) or provider_of_url(unseal(row.body).url)
        return row if api is None else row_in_chat(row, api, None if ended_at is None else ended_at.model)


def row_in_chat(row: Row, api: str, model: str | None = None) -> Row:
    """The row with its reply in OpenAI's chat format. A failure stays as it is. `model`: the one that was asked, if it
    is not the request's own."""
    chat = provider_named(api).chat
    if chat is None or row.state != ItemState.SUCCEEDED or row.result is None:
        return row
    response = json.loads(row.result)
    body = reply_in_chat(chat, response["body"])
    if body is not response["body"]:  # not every provider tells these, but every chat completion has them
        if not isinstance(body.get("id"), str):
            body["id"] = response.get("request_id") or f"request-{row.id}"
        if not isinstance(body.get("model"), str):
            body["model"] = model or _model_of(api, row.body)
    return row._replace(result=json.dumps({**response, "body": body}))


async def verify(store: Store, files: ResultFiles, job_id: int) -> None:
    """Refuses files that are not this job's."""
    items = [item_id(job_id, witness.position) for witness in files.witnesses]
    known = {
        position_of(item.id): (unseal(item.body).custom_id, item.state == ItemState.SUCCEEDED)
        for item in await store.results.requests_of(items)
    }
    files.verify(known)


def _pages(all_of: Iterable[T]) -> Iterator[list[T]]:
    left = iter(all_of)
    while page := list(islice(left, PAGE_ITEMS)):
        yield page


def _row(settled: Settlement, attempt: Attempt, body: str) -> ResultRow:
    """The row that the store would return for a settlement."""
    return ResultRow(
        settled.id,
        settled.state,
        settled.error_code,
        settled.attempt_count,
        settled.repeats,
        attempt.message,
        attempt.result,
        body,
        settled.flaw,
        attempt.provider_status,
    )
