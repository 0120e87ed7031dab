"""A service, a remote worker outside, and items between the two."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from backstay.core.ids import read_item
from backstay.core.limits import Limits
from tests.databases import Leaping, Site
from tests.server.receiver import Receiver, Visit, receiving
from tests.server.rig import Reply, Rig, practice_app, rigged
from tests.stories.stage import until

PUBLIC = "https://backstay.example"


class Remote:
    """One item at a time; what the remote worker answers to its request is 202, until told otherwise."""

    def __init__(self, rig: Rig, receiver: Receiver) -> None:
        self.rig = rig
        self.receiver = receiver
        self.job = ""

    async def submit(self, payload: Any = None, handler: str = "remote", **options: Any) -> None:
        item = {"url": self.receiver.url, "payload": payload}
        self.job = await self.rig.submit(handler, [item], **options)

    async def send(self, **options: Any) -> str:
        """Submits an item and has it sent; gives the address that its answer is to come in at."""
        sent = len(self.receiver.visits)
        await self.submit({"n": 1}, **options)
        await self.rig.work()
        return self.address(self.receiver.visits[sent])

    def address(self, visit: Visit) -> str:
        url: str = json.loads(visit.body)["callback_url"]
        return url.removeprefix(PUBLIC)

    async def say(self, address: str, **said: Any) -> Reply:
        return await self.rig.holder(None).post(address, json=said)

    async def item(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.rig.ada.get(f"/api/items/{self.job}-0")).json
        return found

    async def state(self) -> str:
        return str((await self.item())["state"])

    async def shown_job(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.rig.ada.get(f"/api/jobs/{self.job}")).json
        return found

    async def results(self) -> list[dict[str, Any]]:
        return (await self.rig.ada.get(f"/api/jobs/{self.job}/results")).lines

    async def late(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.rig.ada.get("/api/late-results")).json["data"]
        return found

    async def miss_deadline(self) -> str:
        """An item that was sent and has failed since; gives the address that is still open."""
        address = await self.send(deadline_seconds=60)
        await self.pass_deadline()
        await self.ended("failed")
        return address

    async def pass_deadline(self) -> None:
        await self.rows(f"UPDATE items SET deadline_at = 1 WHERE id = {read_item(f'{self.job}-0')}")

    async def ended(self, state: str) -> None:
        async def there() -> bool:
            await self.rig.work()  # a look for deadlines does not always begin with the oldest
            return await self.state() == state

        await until(there, f"the item has {state}")

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return await Site(self.rig.made.url, Leaping()).rows(sql)


@asynccontextmanager
async def remote_work(url: str, data: Path, **more: Any) -> AsyncIterator[Remote]:
    made = practice_app(url, limits=Limits(poll_interval_seconds=0.01))
    async with receiving() as receiver:
        receiver.says(202)
        settings: dict[str, Any] = {
            "inside_hosts": receiver.place,
            "public_url": PUBLIC + "/",
            "remote_kinds": "writing:1200",
            **more,
        }
        async with rigged(url, data, made, **settings) as rig:
            yield Remote(rig, receiver)
