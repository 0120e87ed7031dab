"""/models: what the services behind list, or else the models that were asked for here."""

import asyncio
import json
from typing import Any, Final

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from backstay.core.errors import BackstayError, NotFound
from backstay.llm.credentials import credentials_for
from backstay.llm.endpoint import Endpoint
from backstay.llm.http.wire import Wire
from backstay.llm.providers import provider_named, provider_shown
from backstay.server.auth import Reader
from backstay.server.service import Service, Serving

router = APIRouter(tags=["OpenAI models"])

KEPT_SECONDS: Final = 60.0
ASK_SECONDS: Final = 10.0
MODELS_MAX: Final = 10_000

ModelLists = dict[str, list[dict[str, Any]] | None]  # by provider


@router.get("/models")
async def list_models(service: Serving, who: Reader) -> Response:
    return JSONResponse({"object": "list", "data": await models(service, who.owner)})


@router.get("/models/{model_id:path}")
async def show_model(model_id: str, service: Serving, who: Reader) -> Response:
    for model in await models(service, who.owner):
        if model["id"] == model_id:
            return JSONResponse(model)
    raise NotFound(f"The model '{model_id[:100]}' does not exist")


async def models(service: Service, owner: str) -> list[dict[str, Any]]:
    """Of several providers each model has the name that leads to its provider."""
    listed = await listed_models(service)
    if any(some is not None for some in listed.values()):
        return [_named(api, model, len(listed)) for api, some in listed.items() for model in some or ()]
    return [_model({"id": name}) for name in await service.store.batches.models(owner)]


def _named(api: str, model: dict[str, Any], providers: int) -> dict[str, Any]:
    bare = providers == 1 or provider_shown(model["id"], None) == api
    return model if bare else {**model, "id": f"{api}:{model['id']}"}


async def listed_models(service: Service) -> ModelLists:
    """As the services behind list them, at most a minute ago; None for one that does not."""
    kept = service.kept_models
    now = service.main.clock.monotonic()
    if kept is None or now >= kept[0] + KEPT_SECONDS:
        upstream = service.options.upstream
        endpoints = () if upstream is None else upstream.all
        found = await asyncio.gather(*(_ask_for_models(service, endpoint) for endpoint in endpoints))
        lists = {endpoint.api: some for endpoint, some in zip(endpoints, found, strict=True)}
        kept = service.kept_models = (now, lists)
    return kept[1]


async def _ask_for_models(service: Service, endpoint: Endpoint) -> list[dict[str, Any]] | None:
    settings = service.backstay.settings
    key = credentials_for(endpoint, settings)
    wire = Wire(endpoint, key, 1, http=settings.http)
    await wire.open()
    try:
        if wire.credentials is not None:
            await wire.credentials.wait()
        reply = await wire.get(provider_named(endpoint.api).access.models_path, timeout_seconds=ASK_SECONDS)
        data = json.loads(reply.text).get("data") if reply.status == 200 else None
    except (BackstayError, ValueError, AttributeError, RecursionError):
        return None  # it has no such list, or none now
    finally:
        await wire.close()
    if not isinstance(data, list):
        return None
    return [_model(one) for one in data[:MODELS_MAX] if isinstance(one, dict) and isinstance(one.get("id"), str)]


def _model(said: dict[str, Any]) -> dict[str, Any]:
    created = said.get("created")
    return {
        "id": said["id"],
        "object": "model",
        "created": created if isinstance(created, int) else 0,
        "owned_by": str(said.get("owned_by") or "upstream"),
    }
