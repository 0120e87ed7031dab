"""The whole service for a test: a real uvicorn on a free port in the test's own loop, and visitors with keys."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import uvicorn
from fastapi import FastAPI

from backstay.app import Backstay
from backstay.core.errors import ErrorCode, Permanent
from backstay.server.app import create_app, server_config
from backstay.server.service import Service, ServiceOptions
from backstay.store.keys import Role

OWNERS = ("ada", "bob")
START_SECONDS = 30


class Reply:
    """An answer, read to its end."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]

    def __repr__(self) -> str:
        return f"<{self.status} {self.body[:500]!r}>"


@dataclass(slots=True)
class Visitor:
    """Who speaks HTTP to the service, as the holder of a key or of none."""

    url: str
    session: aiohttp.ClientSession
    key: str | None

    async def __call__(self, method: str, path: str, **given: Any) -> Reply:
        """`json=`, `data=`, `params=`, `headers=` as aiohttp takes them."""
        async with self.opened(method, path, **given) as answer:
            return Reply(answer.status, answer.headers, await answer.read())

    @asynccontextmanager
    async def opened(self, method: str, path: str, **given: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer while it comes, for streams."""
        own = {} if self.key is None else {"authorization": f"Bearer {self.key}"}
        given["headers"] = {**own, **(given.get("headers") or {})}
        async with self.session.request(method, self.url + path, allow_redirects=False, **given) as answer:
            yield answer

    async def get(self, path: str, **given: Any) -> Reply:
        return await self("GET", path, **given)

    async def post(self, path: str, **given: Any) -> Reply:
        return await self("POST", path, **given)

    async def delete(self, path: str, **given: Any) -> Reply:
        return await self("DELETE", path, **given)


@dataclass(slots=True)
class Rig:
    """A service that runs, and is ada's. `ada` and `bob` are two owners' visitors that may do everything."""

    made: Backstay
    app: FastAPI
    url: str
    session: aiohttp.ClientSession
    keys: dict[tuple[str, Role], str] = field(default_factory=dict)

    @property
    def service(self) -> Service:
        service: Service = self.app.state.service
        return service

    def visitor(self, owner: str = "ada", role: Role = Role.ADMIN) -> Visitor:
        return self.holder(self.keys[owner, role])

    def holder(self, key: str | None) -> Visitor:
        return Visitor(self.url, self.session, key)

    @property
    def ada(self) -> Visitor:
        return self.visitor("ada")

    @property
    def bob(self) -> Visitor:
        return self.visitor("bob")

    async def work(self) -> None:
        """Does all that can be done now, here in this process; for services that do not work themselves."""
        while (done := await self.made.tick()).pending and done.claimed + done.polled:
            pass

    async def submit(self, handler: str = "echo", items: list[Any] | None = None, **options: Any) -> str:
        """A job of ada's, as its id over HTTP."""
        given = {"handler": handler, "items": [{"n": 1}] if items is None else items, "options": options}
        reply = await self.ada.post("/api/jobs", json=given)
        assert reply.status == 201, reply
        return str(reply.json["id"])


def practice_app(url: str, **given: Any) -> Backstay:
    """Handlers that a test needs: one that says what it got, one that never can, one that fails as it is told."""
    made = Backstay(url, **given)

    @made.handler()
    async def echo(item: Any) -> Any:
        return item

    @made.handler()
    async def refuse(item: Any) -> Any:
        raise Permanent("it never can", ErrorCode.GW_4XX)

    @made.handler()
    async def fail_as_told(item: dict[str, Any]) -> Any:
        if item.get("code"):
            raise Permanent(f"told to fail with {item['code']}", ErrorCode(item["code"]))
        return item

    return made


class InnerServer(uvicorn.Server):
    """Leaves the signals of the process to pytest."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        """As uvicorn's own, which looks ten times a second whether it shall end."""
        while not await self.on_tick(0):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)


@asynccontextmanager
async def rigged(
    url: str, data: Path, made: Backstay | None = None, options: ServiceOptions | None = None, **settings: Any
) -> AsyncIterator[Rig]:
    """The service on a migrated database. Without `options` it does no work itself: `rig.work()` does it."""
    made = made or practice_app(url)
    made.settings = made.settings.model_copy(update={"data": str(data), "owner": OWNERS[0]} | settings)
    app = create_app(made, options or ServiceOptions(works=False))
    async with served(app, made.settings.trusted_proxies) as address, aiohttp.ClientSession() as session:
        rig = Rig(made, app, address, session)
        for owner in OWNERS:
            for role in Role:
                rig.keys[owner, role] = (await rig.service.store.keys.create(owner, role, f"{owner}'s")).text
        yield rig


@asynccontextmanager
async def served(app: Any, trusted_proxies: str = "") -> AsyncIterator[str]:
    """Any ASGI application on a free port while the block runs; gives its address."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = InnerServer(server_config(app, trusted_proxies, lifespan="on", timeout_graceful_shutdown=5))
    running = asyncio.get_running_loop().create_task(server.serve(sockets=[listening]))
    try:
        async with asyncio.timeout(START_SECONDS):
            while not server.started and not running.done():  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.005)
        assert server.started, "the service did not start; the log says why"
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running
        listening.close()
