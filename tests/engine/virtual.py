"""The engine in virtual time: workers and ticks on one database in memory, and a provider that takes its time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from backstay.app import Backstay
from backstay.client import Client, Job
from backstay.clock import Tasks, new_incarnation
from backstay.core.ids import item_id
from backstay.core.limits import Limits
from backstay.engine.engine import Engine
from backstay.engine.hints import Hints
from backstay.engine.parts import Parts, beat, drop_lost_items
from backstay.engine.tick import Tick, TickReport
from backstay.engine.worker import Worker
from backstay.handlers.function import done, running
from backstay.handlers.handler import Context
from backstay.store.item_views import ItemDetail
from backstay.testing import rehearsal


class SlowProvider:
    """Of what is asked, by the names of its methods, some hangs and some fails; the rest is answered at once."""

    def __init__(self, name: str, *hangs: str, fails: Sequence[str] = ()) -> None:
        self.name = name
        self.hangs = set(hangs)
        self.fails = set(fails)
        self.error: Exception = ConnectionError("no route")
        self.fails_left: float = float("inf")
        self.asked: list[tuple[str, float]] = []  # what, and when
        self.now: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        self.ended = False

    def calls(self, *what: str) -> int:
        return len(self.times(*what))

    def times(self, *what: str) -> list[float]:
        return [at for asked, at in self.asked if asked in what or not what]

    async def _ask(self, what: str) -> None:
        self.asked.append((what, asyncio.get_running_loop().time()))
        self.now[what] += 1
        self.peak[what] = max(self.peak[what], self.now[what])
        try:
            if what in self.hangs:
                await asyncio.Event().wait()
            if what in self.fails and self.fails_left > 0:
                self.fails_left -= 1
                raise self.error
        finally:
            self.now[what] -= 1

    async def submit(self, item: Any, context: Context) -> str:
        await self._ask("submit")
        return f"{self.name}-{context.item_id}"

    async def poll(self, task_ids: Sequence[str]) -> dict[str, Any]:
        await self._ask("poll")
        return {task: done("good") if self.ended else running() for task in task_ids}

    async def cancel(self, task_id: str) -> None:
        await self._ask("cancel")


class AskableProvider(SlowProvider):
    """Its tasks can be looked up."""

    async def find(self, ref: str) -> str | None:
        await self._ask("find")
        return None


class VirtualRig:
    def __init__(self, app: Backstay, client: Client) -> None:
        self.app = app
        self.client = client
        self.clock = client.clock

    def takes_tasks(self, provider: SlowProvider, **rules: Any) -> SlowProvider:
        self.app.task(provider.name, **rules)(lambda: provider)  # type: ignore[arg-type]
        return provider

    def engine(self, concurrency: int = 100, hints: Hints | None = None) -> Engine:
        app, client = self.app, self.client
        name = new_incarnation()
        parts = Parts(
            client.store, app.handlers, app.limits, client.clock, Random(1), Tasks(), app.bus, name, owner=client.owner
        )
        return Engine(parts, concurrency, hints=hints)

    @asynccontextmanager
    async def working(self, heart: bool = True, hints: Hints | None = None) -> AsyncIterator[Worker]:
        """A worker that goes on while the block runs; without its heart it keeps no claim longer than a lease."""
        worker = Worker(self.engine(hints=hints), idle_seconds=1.0)
        await worker.start()
        beating = asyncio.create_task(self._beat(worker.engine)) if heart else None
        try:
            yield worker
        finally:
            if beating is not None:
                beating.cancel()
            await worker.stop(0)

    async def tick(self, depth: int = 0) -> TickReport:
        engine = self.engine(self.app.limits.tick_concurrency)
        beating = asyncio.create_task(self._beat(engine))
        try:
            return await Tick(engine).run(depth)
        finally:
            beating.cancel()

    async def _beat(self, engine: Engine) -> None:
        while True:
            await self.clock.sleep(engine.parts.limits.heartbeat_seconds)
            drop_lost_items(await beat(engine.parts.store, engine.flights, engine.parts), engine.flights, engine.parts)

    async def submit(self, provider: SlowProvider, items: int = 1, **options: Any) -> Job:
        return await self.app.submit(provider.name, range(items), **options)

    async def under_way(self, provider: SlowProvider, items: int = 1, **options: Any) -> Job:
        """A job all of whose items are tasks at the provider."""
        job = await self.submit(provider, items, **options)
        while (await job.show()).processing < items:
            await self.tick()
        return job

    async def lose(self, provider: SlowProvider, items: int = 1, **options: Any) -> Job:
        """A job whose worker died with all of its items in hand."""
        job = await self.submit(provider, items, **options)
        engine = self.engine()
        wants = [want for want in await engine.gate.wants(items) if want.handler == provider.name]
        taken = await self.client.store.items.claim(wants, engine.parts.worker, engine.parts.lease_ms)
        assert len(taken.items) == items
        return job

    async def item(self, job: Job, position: int = 0) -> ItemDetail:
        return await self.client.store.item_views.get(item_id(job.id, position), self.client.owner)


@asynccontextmanager
async def virtual_rig(**limits: Any) -> AsyncIterator[VirtualRig]:
    app = Backstay("sqlite:///never-made.db", limits=Limits(**limits))
    async with rehearsal(app):
        yield VirtualRig(app, await app.open())
