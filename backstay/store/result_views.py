"""What became of a job's items, and under which names: for whoever writes results down."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from backstay.core.ids import item_range
from backstay.store.queries import Ask, Row, Script

ENDED_ROWS = 10_000
ROWS_FIRST = 100
ROWS_MAX = 1_000
READ_CHARACTERS = 4 << 20  # about so much of the bodies is held at once

Read = Callable[[Callable[[], Script[Any]]], Awaitable[Any]]


class ResultRow(NamedTuple):
    """An ended item: its result as JSON text, or why there is none."""

    id: int
    state: str
    error_code: str | None
    attempt_count: int
    repeats: int
    message: str | None
    result: str | None
    body: str
    flaw: str | None = None

    @property
    def characters(self) -> int:
        return len(self.body) + len(self.result or "")


class Copy(NamedTuple):
    """A further name that an item answers for; `number` is its place among all requests of the file, from 1."""

    number: int
    custom_id: str


def rows_next(n: int, lengths: Sequence[int]) -> int:
    """How many rows to read after a page of `n` whose bodies were so long."""
    return min(max(READ_CHARACTERS * len(lengths) // max(sum(lengths), 1), 1), n * 2, ROWS_MAX)


class ResultViews:
    """Reads of many at once, each bounded. The caller knows that the job is his."""

    def __init__(self, read: Read) -> None:
        self._read = read

    async def _rows(self, name: str, batch: Sequence[Row] | None = None, **values: Any) -> list[Any]:
        def script() -> Script[list[Any]]:
            return (yield Ask(name, values, batch))

        rows: list[Any] = await self._read(script)
        return rows

    async def ended(self, job_id: int) -> AsyncIterator[list[tuple[int, str]]]:
        """The ended items of a job with their states, in order, a page at a time."""
        first, after = item_range(job_id)
        cursor = first - 1
        while rows := await self._rows("ended_page", cursor=cursor, after=after, n=ENDED_ROWS):
            yield [(row[0], row[1]) for row in rows]
            cursor = rows[-1][0]

    async def result_pages(self, job_id: int, cursor: int | None = None) -> AsyncIterator[list[ResultRow]]:
        """The ended items of a job behind a cursor, in the order they were submitted, a page at a time."""
        first, after = item_range(job_id)
        cursor, n = first - 1 if cursor is None else cursor, ROWS_FIRST
        while rows := await self._rows("results_page", cursor=cursor, after=after, n=n):
            found = [ResultRow(*row) for row in rows]
            yield found
            cursor, n = found[-1].id, rows_next(n, [row.characters for row in found])

    async def results_of(self, items: Sequence[int]) -> list[ResultRow]:
        """The named items, as far as they have ended."""
        return [ResultRow(*row) for row in await self._rows("results_of", [(item,) for item in items])]

    async def requests_of(self, items: Sequence[int]) -> list[tuple[int, str, str]]:
        """The named items with their states and bodies, whatever became of them."""
        return [tuple(row) for row in await self._rows("requests_of", [(item,) for item in items])]

    async def copies_of(self, items: Sequence[int]) -> dict[int, list[Copy]]:
        """The further names that the named items answer for."""
        found: dict[int, list[Copy]] = {}
        for item_id, number, custom_id in await self._rows("copies_of", [(item,) for item in items]):
            found.setdefault(item_id, []).append(Copy(number, custom_id))
        return found

    async def copies(self, job_id: int) -> AsyncIterator[tuple[int, int]]:
        """Every copy in a job: its item and its number."""
        first, after = item_range(job_id)
        row = (first, 0)
        while rows := await self._rows("copies_page", item_id=row[0], number=row[1], after=after, n=ENDED_ROWS):
            for row in rows:
                yield row[0], row[1]

    async def copies_named(self, copies: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """The custom_ids of the copies with these items and numbers."""
        return {(item, number): name for item, number, name in await self._rows("copies_named", copies)}
