"""The real engine on a database whose time the test moves: workers and ticks, and what they told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any, TypeVar, Unpack

from backstay.app import Backstay, HandlerOptions
from backstay.client import Client, Job, Result
from backstay.clock import Tasks, new_incarnation
from backstay.core.events import Event
from backstay.core.limits import Limits
from backstay.engine.engine import Engine
from backstay.engine.hints import Hints
from backstay.engine.parts import Parts
from backstay.engine.poller import ItemQuota
from backstay.engine.tick import Tick, TickReport
from backstay.engine.worker import Worker
from backstay.handlers.function import TaskHandler
from backstay.store.item_views import AttemptView, ItemDetail
from backstay.store.store import Store
from tests.databases import Site
from tests.engine.provider import Provider, TaskProvider

E = TypeVar("E", bound=Event)

WAIT_SECONDS = 20


class HeadFirst(Random):
    """Every claim starts at the head of the queue; elsewhere one in twenty, by chance, starts at a lower priority."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return super().randrange(max(start, 1), stop, step) if stop is not None else super().randrange(1, start, step)


class Rig:
    def __init__(self, site: Site, store: Store, **limits: Any) -> None:
        self.site = site
        self.store = store
        self.limits = replace(Limits(), **limits)
        self.app = Backstay(site.url, owner="ann", limits=self.limits)
        self.rng: Random = HeadFirst()
        self.events: list[Event] = []
        self.app.bus.subscribe(self.events.append)
        self.app._client = Client(store, "ann", self.limits, site.clock, self.app.bus)

    def serves(self, provider: Provider, name: str = "call", askable: bool = False, **rules: Any) -> Provider:
        """Registers a handler whose items are calls to this provider."""

        async def handler(item: Any, context: Any) -> Any:
            return await provider.call(item, context)

        self.app.handler(name, find=provider.find if askable else None, **rules)(handler)
        return provider

    def takes_tasks(self, provider: TaskProvider, name: str = "task", **rules: Unpack[HandlerOptions]) -> None:
        self.app.handlers.add(TaskHandler(provider, name, name, self.app._rules(rules), "account-1"))

    async def submit(self, items: Any = ("a",), handler: str = "call", **options: Any) -> Job:
        return await self.app.submit(handler, items, **options)

    def engine(self, concurrency: int = 100, heart: bool = True, hints: Hints | None = None) -> Engine:
        parts = Parts(
            self.store,
            self.app.handlers,
            self.limits,
            self.site.clock,
            self.rng,
            Tasks(),
            self.app.bus,
            new_incarnation(),
            owner="ann",
        )
        return Engine(parts, concurrency, open_store=self.site.lend_store if heart else None, hints=hints)

    @asynccontextmanager
    async def working(
        self, concurrency: int = 100, grace: float = 0.0, heart: bool = True, hints: Hints | None = None
    ) -> AsyncIterator[Worker]:
        worker = Worker(self.engine(concurrency, heart, hints), idle_seconds=0.05)
        await worker.start()
        try:
            yield worker
        finally:
            await worker.stop(grace)

    async def tick(self, depth: int = 0) -> TickReport:
        return await Tick(self.engine(self.limits.tick_concurrency)).run(depth)

    async def sweep(self) -> None:
        """One sweep by a worker of its own."""
        engine = self.engine(heart=False)
        await engine.start()
        await engine.sweeper.run_once()
        await engine.sweeper.rescue(ItemQuota(10_000))
        await engine.stop(0)

    async def abandon(self, items: int = 1, handler: str = "call") -> list[int]:
        """Claims items as a worker that is then killed: nobody extends, settles or hands back."""
        engine = self.engine()
        wants = [want._replace(items=items) for want in await engine.gate.wants(items) if want.handler == handler]
        taken = await self.store.items.claim(wants, engine.parts.worker, engine.parts.lease_ms)
        return [item.id for item in taken.items]

    def told(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    async def item(self, job: Job, position: int = 0) -> ItemDetail:
        return await self.store.item_views.get((job.id << 28) | position, "ann")

    async def attempts(self, job: Job, position: int = 0) -> list[AttemptView]:
        return await self.store.item_views.attempts((job.id << 28) | position)

    async def results(self, job: Job) -> list[Result]:
        return [result async for result in job.results()]

    async def until(self, fact: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
        """Waits for a fact; a plain or an async question."""
        async with asyncio.timeout(seconds):
            while True:
                answer = fact()
                if asyncio.iscoroutine(answer):
                    answer = await answer
                if answer:
                    return answer
                await asyncio.sleep(0.01)

    async def in_state(self, job: Job, state: str, position: int = 0) -> None:
        async def reached() -> bool:
            return (await self.item(job, position)).state == state

        await self.until(reached)
