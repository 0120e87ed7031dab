"""A lane at work: the real engine on a real database, over HTTP to the practice provider."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from backstay.client import Job
from backstay.llm.background import BackgroundHandler
from backstay.llm.batch import BatchHandler
from backstay.llm.endpoint import Endpoint, Lane
from backstay.llm.shards import ShardBounds
from backstay.llm.wire import Wire
from backstay.practice import Faults, Practice
from backstay.practice.refusals import Reply, Severed
from backstay.practice.routes import Parts
from tests.engine.rig import Rig
from tests.sites import Site

KEY = "sk-practice-0123456789"
PRICE = (150_000, 600_000)
HALF = (75_000, 300_000)
CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MINUTES_10 = 600

Answering = Callable[[web.Request], Awaitable[Reply]]


class Provider(Practice):
    """The practice provider, whose answers a test can count, lose on the way, or keep from being made."""

    def __init__(self, **faults: Any) -> None:
        super().__init__(Faults(**{"batch_seconds": 0.05, "background_seconds": 0.05, **faults}))
        self.asked: Counter[str] = Counter()
        self.lose: Counter[str] = Counter()  # what is done, but whose answer never arrives
        self.drop: Counter[str] = Counter()  # what never arrives
        self.before: dict[str, Callable[[], Awaitable[None]]] = {}

    def _parts(self, folder: Path) -> Parts:
        parts = super()._parts(folder)
        for owner, names in (
            (parts.batches, ("create", "show", "cancel", "list_")),
            (parts.files, ("content", "upload")),
        ):
            for name in names:
                setattr(owner, name, self._watched(f"{type(owner).__name__}.{name}", getattr(owner, name)))
        return parts

    def _watched(self, name: str, answer: Answering) -> Answering:
        async def watched(request: web.Request) -> Reply:
            self.asked[name] += 1
            if self.drop[name] > 0:
                self.drop[name] -= 1
                raise Severed
            if name in self.before:
                await self.before[name]()
            reply = await answer(request)
            if self.lose[name] > 0:
                self.lose[name] -= 1
                raise Severed
            return reply

        return watched


class LaneRig(Rig):
    """One lane's handler, registered with an engine whose time the test moves."""

    provider: Provider
    handler: BatchHandler | BackgroundHandler
    wire: Wire
    base_url: str

    async def request(self, bodies: list[dict[str, Any]], url: str = CHAT, **options: Any) -> Job:
        items = [{"custom_id": f"r{n}", "url": url, "body": body} for n, body in enumerate(bodies)]
        return await self.submit(items, self.handler.name, **options)

    async def done(self, job: Job) -> Any:
        """Works until the job has ended."""
        async with self.working(concurrency=20_000):
            return await job.wait(timeout_seconds=30)

    async def ask(self, method: str, path: str) -> Any:
        async with aiohttp.ClientSession() as session:
            async with session.request(
                method, f"{self.base_url}{path}", headers={"Authorization": f"Bearer {KEY}"}
            ) as reply:
                return await reply.json(content_type=None)

    async def content(self, file_id: str) -> str:
        async with aiohttp.ClientSession() as session, session.get(f"{self.base_url}/files/{file_id}/content") as reply:
            return await reply.text()

    async def batches(self) -> list[dict[str, Any]]:
        """The newest first."""
        return list((await self.ask("GET", "/batches?limit=100"))["data"])

    async def states(self, job: Job) -> list[str]:
        return [result.state.value for result in await self.results(job)]


@asynccontextmanager
async def lane(
    site: Site,
    kind: Lane,
    provider: Provider | None = None,
    bounds: ShardBounds | None = None,
    price: tuple[int, ...] = PRICE,
    **limits: Any,
) -> AsyncIterator[LaneRig]:
    provider = provider or Provider()
    async with provider.serving() as base_url:
        rig = LaneRig(site, await site.open_store(), **{"poll_interval_seconds": 0.05, **limits})
        rig.provider, rig.base_url = provider, base_url
        endpoint = Endpoint(base_url, kind, price=price)
        rig.wire = Wire(endpoint, KEY, connections_max=50)
        await rig.wire.open()
        rig.handler = (
            BatchHandler(endpoint, rig.wire, bounds=bounds, clock=site.clock, quiet_seconds=0.1)
            if kind is Lane.BATCH
            else BackgroundHandler(endpoint, rig.wire, clock=site.clock)
        )
        rig.app.handlers.add(rig.handler)
        await rig.store.set_pace(rig.handler.provider, (None, None), 80_000)
        try:
            yield rig
        finally:
            if isinstance(rig.handler, BatchHandler):
                await rig.handler.close()
            await rig.wire.close()


def chats(count: int, **more: Any) -> list[dict[str, Any]]:
    """Requests of which no two are the same."""
    return [{"model": "m", "messages": [{"role": "user", "content": f"say {n}"}], **more} for n in range(count)]


def inputs(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"model": "m", "input": f"say {n}", **more} for n in range(count)]
