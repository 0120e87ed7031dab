"""A client that sends each request once and returns the reply, and clocks that a test moves."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

from backstay.clock import Clock
from backstay.practice import Faults, Practice

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
EMBEDDINGS = "/v1/embeddings"
BATCHES = "/v1/batches"
BATCH_ENDS = ("completed", "failed", "expired", "cancelled")


class Answer(NamedTuple):
    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        said: str = self.json["choices"][0]["message"]["content"]
        return said

    @property
    def error(self) -> Any:
        return self.json["error"]


class Visitor:
    def __init__(self, practice: Practice, root: str, session: aiohttp.ClientSession) -> None:
        self.practice = practice
        self.root = root
        self._session = session

    async def ask(self, method: str, path: str, headers: dict[str, str] | None = None, **sent: Any) -> Answer:
        async with self._session.request(method, self.root + path, headers=headers, **sent) as response:
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path: str, **query: Any) -> Answer:
        return await self.ask("GET", path, params=query)

    async def post(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        return await self.ask("POST", path, headers, json=body)

    async def chat(self, said: str = "hello", headers: dict[str, str] | None = None, **more: Any) -> Answer:
        return await self.post(CHAT, chat_body(said, **more), headers)

    async def bill(self, **query: Any) -> Any:
        return (await self.get("/bill", **query)).json

    async def counts(self) -> Any:
        return (await self.get("/counts")).json

    async def upload(self, content: bytes, name: str = "in.jsonl", **fields: str) -> Answer:
        form = aiohttp.FormData()
        form.add_field("file", content, filename=name)
        for field, value in ({"purpose": "batch"} | fields).items():
            form.add_field(field, value)
        return await self.ask("POST", "/v1/files", data=form)


class MovedClock(Clock):
    """The monotonic clock stands still until the test moves it; timers follow the machine."""

    ahead = 0.0

    def monotonic(self) -> float:
        return self.ahead


class HeldClock(MovedClock):
    """Sleepers wait until the test wakes them, in the order in which they came."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(0)
        self.sleeping = 0

    async def sleep(self, seconds: float) -> None:
        if seconds == 0:
            await super().sleep(0)
            return
        self.sleeping += 1
        await self._turns.acquire()
        self.sleeping -= 1

    def wake(self, sleepers: int = 1) -> None:
        for _ in range(sleepers):
            self._turns.release()


def chat_body(said: str = "hello", **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": said}], **more}


def batch_lines(*bodies: dict[str, Any], url: str = CHAT) -> bytes:
    rows = [
        {"custom_id": f"r{number}", "method": "POST", "url": url, "body": body} for number, body in enumerate(bodies)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


async def create_batch(visitor: Visitor, file_id: str, **more: Any) -> Answer:
    body = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h", **more}
    return await visitor.post(BATCHES, body)


async def begin_batch(visitor: Visitor, lines: bytes, **more: Any) -> Any:
    file = (await visitor.upload(lines)).json
    return (await create_batch(visitor, file["id"], **more)).json


async def wait_for_batch(visitor: Visitor, batch: Any, *statuses: str) -> Any:
    """Waits for one of these statuses, or for the end, and updates the batch."""

    async def is_reached() -> bool:
        batch.update((await visitor.get(f"{BATCHES}/{batch['id']}")).json)
        return batch["status"] in (statuses or BATCH_ENDS)

    await eventually(is_reached)
    return batch


async def run_batch(visitor: Visitor, lines: bytes, **more: Any) -> Any:
    return await wait_for_batch(visitor, await begin_batch(visitor, lines, **more))


async def read_results(visitor: Visitor, file_id: str | None) -> dict[str, Any]:
    """The lines of a result file by their custom_id."""
    if file_id is None:
        return {}
    content = await visitor.get(f"/v1/files/{file_id}/content")
    rows = [json.loads(line) for line in content.body.splitlines()]
    return {row["custom_id"]: row for row in rows}


async def eventually(fact: Callable[[], bool | Awaitable[bool]]) -> None:
    """Waits until a fact holds, in this process or at the provider."""
    async with asyncio.timeout(20):
        while True:
            found = fact()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.005)


@asynccontextmanager
async def visiting(practice: Practice | None = None, **faults: Any) -> AsyncIterator[Visitor]:
    """A provider with these faults, and a client at its door."""
    provider = practice or Practice(Faults(**faults))
    async with provider.serving() as base_url, aiohttp.ClientSession() as session:
        yield Visitor(provider, base_url.removesuffix("/v1"), session)
