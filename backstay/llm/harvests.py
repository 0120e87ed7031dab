"""How the batches under way are doing, and the harvests of those that have ended: each is asked for once for many."""

import asyncio
from contextlib import suppress
from typing import Final

from backstay.clock import Clock, Tasks
from backstay.core.errors import HandlerError
from backstay.llm.batch_api import BatchApi, BatchView
from backstay.llm.harvest import BatchResults, reap
from backstay.llm.lookup import Lookup
from backstay.llm.task_lane import GONE_SECONDS
from backstay.llm.usage import PriceOf

HARVESTS_MAX: Final = 16  # kept on disk, the longest unused goes first
VIEWS_MAX: Final = 1_000
VIEW_SECONDS: Final = 2.0  # a batch is polled in chunks of its requests, and changes slowly
REAP_SECONDS: Final = 20.0  # to wait for a download; it goes on, and is there for a later poll


class Harvests:
    def __init__(self, api: BatchApi, lookup: Lookup, price_of: PriceOf, clock: Clock, tasks: Tasks) -> None:
        self._api = api
        self._lookup = lookup
        self._price_of = price_of
        self._clock = clock
        self._tasks = tasks
        self._views: dict[str, tuple[float, BatchView]] = {}
        self._reaping: dict[str, asyncio.Task[BatchResults]] = {}
        self._kept: dict[str, BatchResults] = {}

    async def look(self, batch_id: str) -> BatchResults | BatchView | None:
        """The batch as far as it is: its harvest if it has ended and was downloaded; None if it is gone."""
        if (kept := self._kept.pop(batch_id, None)) is not None:
            self._kept[batch_id] = kept  # the latest used stands last
            return kept
        view = await self._view(batch_id)
        if view is None or not view.ended:
            return view
        task = self._reaping.get(batch_id)
        if task is None:
            task = self._reaping[batch_id] = self._tasks.spawn(self._reap(view))
        await asyncio.wait((task,), timeout=REAP_SECONDS)
        if not task.done():
            return view
        del self._reaping[batch_id]
        return self._keep(task.result())

    @property
    def requests_under_way(self) -> int:
        """In all batches that were looked at and had not ended."""
        return sum(view.total for _, view in self._views.values() if not view.ended)

    async def close(self) -> None:
        for task in self._reaping.values():
            task.cancel()
        await asyncio.gather(*self._reaping.values(), return_exceptions=True)
        self._reaping.clear()
        while self._kept:
            self._kept.popitem()[1].close()

    async def _view(self, batch_id: str) -> BatchView | None:
        now = self._clock.monotonic()
        seen_at, view = self._views.get(batch_id, (float("-inf"), None))
        if view is not None and (now < seen_at + VIEW_SECONDS or view.ended):
            return view
        found = await self._api.show(batch_id)
        if found is None:
            await self._clock.sleep(GONE_SECONDS)
            found = await self._api.show(batch_id)
        if len(self._views) >= VIEWS_MAX:
            self._views.clear()
        self._views.pop(batch_id, None)
        if found is not None:
            self._views[batch_id] = (now, found)
        return found

    async def _reap(self, view: BatchView) -> BatchResults:
        named = None
        if any(error.line is not None for error in view.errors) and view.input_file_id is not None:
            named = await self._lookup.index(view.input_file_id)
        harvest = await reap(self._api, view, named, self._price_of)
        if harvest.tells_all and view.marked and view.input_file_id is not None:
            with suppress(HandlerError):  # what is not deleted here goes when its time at the provider is over
                await self._api.delete(view.input_file_id)
        return harvest

    def _keep(self, harvest: BatchResults) -> BatchResults:
        self._kept[harvest.batch.id] = harvest
        while len(self._kept) > HARVESTS_MAX:
            self._kept.pop(next(iter(self._kept))).close()
        return harvest
