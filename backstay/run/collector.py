"""Carries committed results from the database into the result files, as they come."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from backstay.core.events import Event, ItemsSettled
from backstay.core.ids import item_id, job_of, position_of
from backstay.core.models import Attempt, Settlement
from backstay.core.states import TERMINAL, ItemState
from backstay.llm.envelope import unseal
from backstay.run.output import ResultFiles
from backstay.run.positions import Positions
from backstay.run.result_line import Ended, ended_of
from backstay.store.views import ResultRow, Views

PAGE_ITEMS = 500
HELD_CHARACTERS_MAX = 8_000_000  # of results that wait to be written; the database has them too


class Collector:
    """Hears which items ended here, and looks for those that ended elsewhere. Files are written in a thread."""

    def __init__(self, views: Views, files: ResultFiles, job_id: int, copies: bool) -> None:
        self._views = views
        self._files = files
        self._job_id = job_id
        self._copies = copies
        self._ended: list[ResultRow] = []
        self._unread: list[int] = []
        self._size = 0

    def __call__(self, event: Event) -> None:
        """Listens to the engine: what it settled is committed, and need not be read again unless it is much."""
        if not isinstance(event, ItemsSettled):
            return
        for settled, body in zip(event.settlements, event.bodies, strict=True):
            if settled.state not in TERMINAL or job_of(settled.id) != self._job_id:
                continue
            if body and settled.attempt is not None and self._size < HELD_CHARACTERS_MAX:
                self._ended.append(_row(settled, settled.attempt, body))
                self._size += len(settled.attempt.result or "") + len(body)
            else:
                self._unread.append(settled.id)

    @property
    def written(self) -> int:
        return self._files.succeeded + self._files.failed

    async def write(self) -> None:
        """Writes what was heard of."""
        rows, self._ended, self._size = sorted(self._ended, key=lambda row: row.id), [], 0
        for low in range(0, len(rows), PAGE_ITEMS):
            await self._write(rows[low : low + PAGE_ITEMS])
        while self._unread:
            items, self._unread = self._unread[:PAGE_ITEMS], self._unread[PAGE_ITEMS:]
            await self._write(await self._views.results_of(items))

    async def catch_up(self) -> None:
        """Writes every ended item that has no line yet, whoever ended it."""
        async for page in self._views.ended(self._job_id):
            missing = [item for item, _ in page if self._files.missing(position_of(item))]
            for low in range(0, len(missing), PAGE_ITEMS):
                await self._write(await self._views.results_of(missing[low : low + PAGE_ITEMS]))

    async def continue_files(self) -> None:
        """Holds the files of an earlier try against the database: they must be this run's, and say what is so."""
        known: dict[int, tuple[str, bool]] = {}
        for witness in self._files.witnesses:
            rows = await self._views.results_of([item_id(self._job_id, witness.position)])
            for row in rows:
                known[witness.position] = (unseal(row.body).custom_id, row.state == ItemState.SUCCEEDED)
        self._files.verify(known)
        if self._files.failed:
            failed = Positions()
            async for page in self._views.ended(self._job_id):
                for item, state in page:
                    if state != ItemState.SUCCEEDED:
                        failed.add(position_of(item))
            await asyncio.to_thread(self._files.settle_errors, failed.__contains__)
        await self.catch_up()

    async def write_ordered(self, owner: str) -> None:
        await self._files.ordered(self._in_order(owner))

    async def _in_order(self, owner: str) -> AsyncIterator[Ended]:
        page: list[ResultRow] = []
        async for row in self._views.results(self._job_id, owner):
            page.append(row)
            if len(page) == PAGE_ITEMS:
                for ended in await self._named(page):
                    yield ended
                page = []
        for ended in await self._named(page):
            yield ended

    async def _write(self, rows: Sequence[ResultRow]) -> None:
        """The rows are in the order of their ids."""
        ended = await self._named(rows)
        await asyncio.to_thread(self._files.write, ended)

    async def _named(self, rows: Sequence[ResultRow]) -> list[Ended]:
        copies: dict[int, tuple[str, ...]] = {}
        if self._copies and rows:
            copies = await self._views.copies(rows[0].id, rows[-1].id)
        return [ended_of(row, copies.get(row.id, ())) for row in rows]


def _row(settled: Settlement, attempt: Attempt, body: str) -> ResultRow:
    """What the store would show of it."""
    return ResultRow(
        settled.id,
        settled.state,
        settled.error_code,
        settled.attempt_count,
        settled.repeats,
        attempt.message,
        attempt.result,
        body,
    )
