"""The OpenAI SDK on aiohttp, in a semaphore loop that stores nothing."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

from typing import Any

import uvloop
from openai import AsyncOpenAI, DefaultAioHttpClient

from bench.prompts import body
from bench.semaphore_loop import rate_of

# Tuned, in its favour: aiohttp below it, which is several times as fast as its default, and no retries.

_at = {"base_url": ""}


def prepare(base_url: str) -> None:
    _at["base_url"] = base_url


def rate(n: int) -> dict[str, float]:
    return uvloop.run(_rate(n))


async def _rate(n: int) -> dict[str, float]:
    http = DefaultAioHttpClient()
    async with AsyncOpenAI(base_url=_at["base_url"], api_key="bench", max_retries=0, http_client=http) as client:

        async def ask(number: int) -> Any:
            request: dict[str, Any] = body(number)
            return await client.chat.completions.create(**request)

        return await rate_of(ask, n)
