"""A service that converts at a stand-in gateway."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp

from backstay.core.limits import Limits, profile_named
from backstay.practice import Faults, Practice
from tests.server.rig import Reply, Rig, Visitor, practice_app, rigged

QUICK = {"retry_base_delay_ms": 0, "retry_jitter_max_ms": 0}
TIMEOUT_SECONDS = 2.0


@asynccontextmanager
async def converting(url: str, data: Any, **settings: Any) -> AsyncIterator[tuple[Rig, Practice]]:
    limits = replace(profile_named("balanced"), call_timeout_seconds=TIMEOUT_SECONDS)
    async with converting_as_set(url, data, limits, **QUICK, **settings) as made:
        yield made


@asynccontextmanager
async def converting_as_set(
    url: str, data: Any, limits: Limits | None = None, **settings: Any
) -> AsyncIterator[tuple[Rig, Practice]]:
    """Without `limits`, those that the environment says."""
    provider = Practice(Faults())
    async with provider.serving() as base_url:
        gateway = base_url.removesuffix("/v1") + "/convert"
        made = practice_app(url, limits=limits)
        async with rigged(url, data, made, **{"gateway_url": gateway, **settings}) as rig:
            yield rig, provider


async def upload(visitor: Visitor, content: bytes, name: str = "paper.pdf", kind: str | None = None) -> Reply:
    form = aiohttp.FormData({"type": kind} if kind else {}, quote_fields=False)
    form.add_field("file", content, filename=name, content_type="application/pdf")
    return await visitor.post("/api/uploads", data=form)


async def convert(rig: Rig, *contents: bytes) -> str:
    """A job of ada's over uploads of hers, worked on until nothing more to do now."""
    files = [(await upload(rig.ada, content)).json["id"] for content in contents]
    job = await rig.submit("gateway", [{"file": file} for file in files])
    await rig.work()
    return job


async def settle(rig: Rig, job: str) -> None:
    """Works until the job has ended, whatever waits between its tries."""
    while (await rig.ada.get(f"/api/jobs/{job}")).json["finished_at"] is None:
        await rig.work()


async def item(rig: Rig, job: str, position: int = 0) -> dict[str, Any]:
    shown: dict[str, Any] = (await rig.ada.get(f"/api/items/{job}-{position}")).json
    return shown
