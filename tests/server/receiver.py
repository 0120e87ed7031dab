"""Someone outside who is told things, or asked to work: a small HTTP server that answers as the test says."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web

WAIT_SECONDS = 20


class Visit(NamedTuple):
    headers: dict[str, str]
    body: str


class Receiver:
    """Answers 200 until told otherwise, and remembers who came."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []
        self.answer: Callable[[Visit], Any] = lambda visit: web.Response()
        self.port = 0
        self._came = asyncio.Event()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.place}/hook"

    def says(self, status: int, text: str = "", **headers: str) -> None:
        self.answer = lambda visit: web.Response(status=status, text=text, headers=headers)

    async def visit(self, request: web.Request) -> web.StreamResponse:
        came = Visit({name.lower(): value for name, value in request.headers.items()}, await request.text())
        self.visits.append(came)
        self._came.set()
        answer = self.answer(came)
        said: web.StreamResponse = await answer if asyncio.iscoroutine(answer) else answer
        return said

    async def wait(self, visits: int) -> Visit:
        """The last visit, once there were so many."""
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.visits) < visits:
                self._came.clear()
                await self._came.wait()
        return self.visits[visits - 1]


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    made = Receiver()
    app = web.Application()
    app.router.add_post("/{path:.*}", made.visit)  # a browser of another test may still look for a page at this port
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()
