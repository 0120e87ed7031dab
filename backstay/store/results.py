"""The results of a job's items and their custom_ids. Every read is bounded."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from backstay.core.ids import item_range
from backstay.store.databases.database import Database
from backstay.store.job_views import JobViews
from backstay.store.queries import one, record

ENDED_ROWS = 10_000
ROWS_FIRST = 100
ROWS_MAX = 1_000
READ_CHARACTERS = 4 << 20  # of bodies that are held in memory at once, roughly


@record
class ResultRow(NamedTuple):
    """An ended item: its result as JSON text, or why it has no result."""

    id: int
    state: str
    error_code: str | None
    attempt_count: int
    repeats: int
    message: str | None
    result: str | None
    body: str
    flaw: str | None = None
    provider_status: int | None = None  # of the reply that `result` holds, if there was one
    expired: bool = False  # its deadline ended it; for the error file of a batch
    handler: str = ""  # its last handler

    @property
    def characters(self) -> int:
        return len(self.body) + len(self.result or "")


@record
class Copy(NamedTuple):
    """A further custom_id that gets an item's answer; `number` is its place among all requests of the file, from 1."""

    item_id: int
    number: int
    custom_id: str


@record
class AnswerRow(NamedTuple):
    """An ended item as a `ResultRow` has it, and its usage in all of its attempts. Unknown is None, never 0."""

    id: int
    state: str
    error_code: str | None
    attempt_count: int
    message: str | None
    result: str | None
    body: str
    flaw: str | None = None
    provider_status: int | None = None
    handler: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_micros: int | None = None


@record
class ItemRequest(NamedTuple):
    """An item's request and state."""

    id: int
    state: str
    body: str


def rows_next(n: int, lengths: Sequence[int]) -> int:
    """How many rows to read next, after a page of `n` rows whose texts have these lengths."""
    return min(max(READ_CHARACTERS * len(lengths) // max(sum(lengths), 1), 1), n * 2, ROWS_MAX)


class ResultViews:
    """Except for `all`, the caller has checked the owner of the job."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def all(self, job_id: int, owner: str, cursor: int | None = None) -> AsyncIterator[ResultRow]:
        """All ended items of a job, in the order they were submitted, a page at a time."""
        await JobViews(self._db).get(job_id, owner)
        async for page in self.pages(job_id, cursor):
            for row in page:
                yield row

    async def ended_items(self, job_id: int) -> AsyncIterator[list[tuple[int, str]]]:
        """The ended items of a job with their states, in order, page by page."""
        first, after = item_range(job_id)
        cursor = first - 1
        while rows := await self._db.read(one("ended_page", {"cursor": cursor, "after": after, "n": ENDED_ROWS})):
            yield [(row["id"], row["state"]) for row in rows]
            cursor = rows[-1]["id"]

    async def pages(self, job_id: int, cursor: int | None = None) -> AsyncIterator[list[ResultRow]]:
        """The ended items of a job behind a cursor, in the order they were submitted, page by page."""
        first, after = item_range(job_id)
        cursor, n = first - 1 if cursor is None else cursor, ROWS_FIRST
        while rows := await self._db.read(one("results_page", {"cursor": cursor, "after": after, "n": n})):
            yield rows
            cursor, n = rows[-1].id, rows_next(n, [row.characters for row in rows])

    async def of_items(self, items: Sequence[int]) -> list[ResultRow]:
        """The named items, as far as they have ended."""
        return await self._db.read(one("results_of", batch=[(item,) for item in items]))

    async def answers_of(self, items: Sequence[int]) -> list[AnswerRow]:
        """The named items with their usage, as far as they have ended."""
        return await self._db.read(one("answers_of", batch=[(item,) for item in items]))

    async def requests_of(self, items: Sequence[int]) -> list[ItemRequest]:
        """The named items with their states and bodies, in any state."""
        return await self._db.read(one("requests_of", batch=[(item,) for item in items]))

    async def copies_of(self, items: Sequence[int]) -> dict[int, list[Copy]]:
        """The further custom_ids that get the answers of the named items."""
        found: dict[int, list[Copy]] = {}
        copies: list[Copy] = await self._db.read(one("copies_of", batch=[(item,) for item in items]))
        for copy in copies:
            found.setdefault(copy.item_id, []).append(copy)
        return found

    async def copies(self, job_id: int) -> AsyncIterator[tuple[int, int]]:
        """Every copy in a job: its item and its number."""
        first, after = item_range(job_id)
        item, number = first, 0
        page = {"after": after, "n": ENDED_ROWS}
        while rows := await self._db.read(one("copies_page", {"item_id": item, "number": number, **page})):
            for row in rows:
                item, number = row["item_id"], row["number"]
                yield item, number

    async def copies_named(self, copies: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """The custom_ids of the copies with these items and numbers."""
        found: list[Copy] = await self._db.read(one("copies_named", batch=copies))
        return {(copy.item_id, copy.number): copy.custom_id for copy in found}
