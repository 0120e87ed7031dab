"""litellm's acompletion in a semaphore loop that stores nothing."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import os
from typing import Any

# Read when litellm is imported: its own price list instead of one from the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
import uvloop

from bench.prompts import MODEL, messages
from bench.semaphore_loop import rate_of

# Tuned, in its favour: aiohttp below it (its default), no retries, no callbacks, no telemetry.

_at = {"base_url": ""}


def prepare(base_url: str) -> None:
    _at["base_url"] = base_url
    litellm.telemetry = False
    litellm.suppress_debug_info = True


def rate(n: int) -> dict[str, float]:
    return uvloop.run(_rate(n))


async def _rate(n: int) -> dict[str, float]:
    terms = {"model": f"openai/{MODEL}", "api_base": _at["base_url"], "api_key": "bench", "max_retries": 0}

    async def ask(number: int) -> Any:
        return await litellm.acompletion(messages=messages(number), max_tokens=16, **terms)

    return await rate_of(ask, n)
