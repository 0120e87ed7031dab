"""The models that the provider names. Any other is as good; some names ask for a mishap."""

from typing import Any

from aiohttp import web

from backstay.practice.refusals import Reply, no_such_model, reply_with

NAMES = ("practice", "practice-mini", "practice-embedding", "practice-moderation")
CREATED = 1_700_000_000


async def list_models(request: web.Request) -> Reply:
    return reply_with({"object": "list", "data": [_model(name) for name in NAMES]})


async def show_model(request: web.Request) -> Reply:
    name = request.match_info["id"]
    if name == "practice-404":
        raise no_such_model(name)
    return reply_with(_model(name))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": CREATED, "owned_by": "practice"}
