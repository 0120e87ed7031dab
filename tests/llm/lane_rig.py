"""A lane at work: the real engine on a real database, over HTTP to the practice provider."""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web

from backstay.client import Job
from backstay.llm.batch import BatchHandler
from backstay.llm.endpoint import DEFAULT_API, Endpoint, Lane
from backstay.llm.http.wire import Wire
from backstay.llm.lane_handler import BackgroundHandler, CallHandler
from backstay.llm.schemas import AnswerSchema
from backstay.llm.shards import ShardBounds
from backstay.practice import Faults, Practice
from tests.databases import Site
from tests.engine.rig import Rig

KEY = "sk-practice-0123456789"
PRICE = (150_000, 600_000)
HALF = (75_000, 300_000)
CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MINUTES_10 = 600

_ID = re.compile(r"(?<=/)(?:batch_|file-|resp_|msgbatch_|xx|batch-x)[^/:]+")
_PASSED = ("Authorization", "Content-Type", "api-key", "x-api-key", "anthropic-version", "x-goog-api-key")
_RETURNED = ("Content-Type", "x-request-id", "request-id", "Location", "X-Together-File-Id", "X-Goog-Upload-URL")


class Provider(Practice):
    """The practice provider behind a door at which a test counts what is asked, and loses, drops or refuses some of it.

    What is asked is named by its method and path, such as GET /files/*/content.
    """

    def __init__(self, **faults: Any) -> None:
        super().__init__(Faults(**{"batch_seconds": 0.05, "background_seconds": 0.05, **faults}))
        self.asked: Counter[str] = Counter()
        self.lose: Counter[str] = Counter()  # what is done, but whose answer never arrives
        self.drop: Counter[str] = Counter()  # what never arrives
        self.refuse: dict[str, int] = {}  # what is answered with a status instead
        self.refuse_once: tuple[str, dict[str, Any]] = ("", {})  # what is answered 400 the next time, and how
        self.bytes_max: dict[str, int] = {}  # what is refused if it is larger
        self.spoil: dict[str, list[Callable[[bytes], bytes]]] = {}  # how the next answers are changed, by ends of paths
        self.retry_after: float | None = 0.0  # what a refusal at the door says
        self.before: dict[str, Callable[[], Awaitable[None]]] = {}
        self.bodies: list[str] = []  # of responses and message batches asked for, as they came

    @asynccontextmanager
    async def behind_a_door(self) -> AsyncIterator[str]:
        door = web.Application(client_max_size=1 << 28)
        runner = web.AppRunner(door, access_log=None, shutdown_timeout=0.1)
        async with self.serving() as inside, aiohttp.ClientSession() as session:

            async def pass_on(request: web.Request) -> web.StreamResponse:
                return await self._pass(request, session, inside.removesuffix("/v1"))

            door.router.add_route("*", "/{rest:.*}", pass_on)
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
            finally:
                await runner.cleanup()

    async def _pass(self, request: web.Request, session: aiohttp.ClientSession, inside: str) -> web.StreamResponse:
        name = f"{request.method} {_ID.sub('*', request.path.removeprefix('/v1'))}"
        body = await request.read()
        self.asked[name] += 1
        if name in ("POST /responses", "POST /messages/batches") or name.endswith(":batchGenerateContent"):
            self.bodies.append(body.decode())
        if self.drop[name] > 0:
            self.drop[name] -= 1
            return _hang_up(request)
        if name in self.bytes_max and len(body) > self.bytes_max[name]:
            return web.json_response({"error": {"message": "too large"}}, status=413)
        if name == self.refuse_once[0]:
            said, self.refuse_once = self.refuse_once[1], ("", {})
            return web.json_response(said, status=400)
        if name in self.refuse:
            said = {"error": {"message": "at the door"}}
            headers = {} if self.retry_after is None else {"Retry-After": f"{self.retry_after:g}"}
            return web.json_response(said, status=self.refuse[name], headers=headers)
        if name in self.before:
            await self.before[name]()
        kept = {key: request.headers[key] for key in _PASSED if key in request.headers}
        kept |= {key: value for key, value in request.headers.items() if key.lower().startswith("x-goog-upload")}
        target = inside + request.path_qs
        sending = session.request(request.method, target, data=body, headers=kept, allow_redirects=False)
        async with sending as reply:
            text = await reply.read()
            if self.lose[name] > 0:
                self.lose[name] -= 1
                return _hang_up(request)
            for end, changes in self.spoil.items():
                if request.method == "GET" and request.path.endswith(end) and changes:
                    text = changes.pop(0)(text)
            headers = {key: reply.headers[key] for key in _RETURNED if key in reply.headers}
            return web.Response(status=reply.status, body=text, headers=headers)


class Arrival(NamedTuple):
    """A request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body) if self.body else None


class Recorder(Provider):
    """Keeps every request, so that ours can be compared with those of an official client."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Arrival] = []

    async def _pass(self, request: web.Request, session: aiohttp.ClientSession, inside: str) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(Arrival(request.method, request.path, dict(request.query), headers, await request.read()))
        return await super()._pass(request, session, inside)

    def take(self) -> list[Arrival]:
        taken, self.seen = self.seen, []
        return taken


def _hang_up(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


class LaneRig(Rig):
    """One lane's handler, registered with an engine whose time the test moves."""

    provider: Provider
    handler: BatchHandler | BackgroundHandler | CallHandler
    endpoint: Endpoint
    bounds: ShardBounds | None
    wire: Wire
    base_url: str

    def restart(self) -> None:
        """Puts the handler of a new process in the place of the old one, which knows nothing of what was done."""
        clock = self.site.clock
        if self.endpoint.lane is Lane.BATCH:
            self.handler = BatchHandler(self.endpoint, self.wire, bounds=self.bounds, clock=clock, quiet_seconds=0.1)
        elif self.endpoint.lane is Lane.CALL:
            self.handler = CallHandler(self.endpoint, self.wire, clock=clock)
        else:
            self.handler = BackgroundHandler(self.endpoint, self.wire, clock=clock)
        self.app.handlers._handlers[self.handler.name] = self.handler

    async def move_to(self, endpoint: Endpoint, key: str | None = KEY) -> None:
        """Takes another endpoint in place of the one there was, with a wire of its own."""
        await self.wire.close()
        self.app.handlers.remove(self.handler.name)
        self.endpoint, self.wire = endpoint, Wire(endpoint, key, connections_max=50)
        await self.wire.open()
        self.restart()
        await self.store.providers.set_pace(self.handler.pace_name, (None, None), 80_000)

    async def request(self, bodies: list[dict[str, Any]], url: str = CHAT, **options: Any) -> Job:
        items = [{"custom_id": f"r{n}", "url": url, "body": body} for n, body in enumerate(bodies)]
        return await self.submit(items, self.handler.name, **options)

    async def done(self, job: Job) -> Any:
        """Works until the job has ended."""
        async with self.working(concurrency=20_000):
            return await job.wait(timeout_seconds=120)

    async def ask(self, method: str, path: str) -> Any:
        session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"})
        async with session, session.request(method, f"{self.base_url}{path}") as reply:
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
    fail_on: tuple[str, ...] = (),
    api: str = DEFAULT_API,
    schema: AnswerSchema | None = None,
    reasks: int = 0,
    **limits: Any,
) -> AsyncIterator[LaneRig]:
    provider = provider or Provider()
    async with provider.behind_a_door() as base_url:
        rig = LaneRig(site, await site.open_store(), **{"poll_interval_seconds": 0.05, **limits})
        rig.provider, rig.base_url = provider, base_url
        text = None if schema is None else schema.dump()
        rig.endpoint = Endpoint(base_url, kind, price=price, fail_on=fail_on, api=api, schema=text, reasks=reasks)
        rig.bounds = bounds
        rig.wire = Wire(rig.endpoint, KEY, connections_max=50)
        await rig.wire.open()
        rig.restart()
        await rig.store.providers.set_pace(rig.handler.pace_name, (None, None), 80_000)
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
