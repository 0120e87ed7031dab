"""A service with a practice provider behind it, and OpenAI's own client in front."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from openai import AsyncOpenAI
from openai.types import Batch, FileObject

from backstay.app import Backstay
from backstay.llm.endpoint import Endpoint
from backstay.practice import Faults, Practice
from backstay.server.service import ServiceOptions
from backstay.store.keys import Role
from tests.server.rig import Rig, rigged

CHAT: Final = "/v1/chat/completions"
OVER = ("completed", "failed", "expired", "cancelled")
WAIT_SECONDS = 30


def line(custom_id: str, url: str = CHAT, **body: Any) -> str:
    said = {"model": "practice", "messages": [{"role": "user", "content": f"Say {custom_id}"}], **body}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": said})


def requests(n: int, **body: Any) -> bytes:
    return "".join(f"{line(f'request-{i}', **body)}\n" for i in range(n)).encode()


@dataclass(slots=True)
class Desk:
    rig: Rig
    practice: Practice
    base_url: str
    clients: list[AsyncOpenAI] = field(default_factory=list)

    def client(self, owner: str = "ada", **given: Any) -> AsyncOpenAI:
        key = self.rig.keys[owner, Role.ADMIN]
        options = {"base_url": f"{self.rig.url}/v1", "max_retries": 0, "_strict_response_validation": True, **given}
        self.clients.append(AsyncOpenAI(api_key=key, **options))
        return self.clients[-1]

    async def upload(self, content: bytes, owner: str = "ada", **given: Any) -> FileObject:
        return await self.client(owner).files.create(file=("in.jsonl", content), purpose="batch", **given)

    async def create(self, content: bytes, owner: str = "ada", **given: Any) -> Batch:
        file = await self.upload(content, owner)
        order: dict[str, Any] = {"endpoint": CHAT, "completion_window": "24h", **given}
        return await self.client(owner).batches.create(input_file_id=file.id, **order)

    async def until(self, batch: Batch, *statuses: str, owner: str = "ada") -> Batch:
        client = self.client(owner)
        async with asyncio.timeout(WAIT_SECONDS):
            while batch.status not in (statuses or OVER):
                await asyncio.sleep(0.01)
                batch = await client.batches.retrieve(batch.id)
        return batch

    async def done(self, content: bytes, **given: Any) -> Batch:
        return await self.until(await self.create(content, **given))

    async def lines(self, file_id: str | None) -> list[dict[str, Any]]:
        assert file_id is not None
        content = await self.client().files.content(file_id)
        return [json.loads(one) for one in content.text.splitlines()]


@asynccontextmanager
async def opened(
    url: str,
    data: Path,
    faults: Faults | None = None,
    owner: str | None = None,
    price: tuple[int, ...] | None = None,
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[Desk]:
    practice = Practice(faults or Faults())
    async with practice.serving() as base_url:
        given = ServiceOptions(**{"upstream": Endpoint(base_url, price=price), "concurrency": 20, **options})
        async with rigged(url, data, Backstay(url, owner=owner), given, **(settings or {})) as rig:
            desk = Desk(rig, practice, base_url)
            try:
                yield desk
            finally:
                await asyncio.gather(*(client.close() for client in desk.clients))
