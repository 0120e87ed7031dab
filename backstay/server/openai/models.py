"""/models: what the service behind lists, or else the models that were asked for here."""

import json
from typing import Any, Final

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from backstay.core.errors import BackstayError, NotFound
from backstay.llm.endpoint import key_of
from backstay.llm.http.wire import Wire
from backstay.server.auth import Reader
from backstay.server.service import Service, Serving

router = APIRouter(tags=["OpenAI models"])

KEPT_SECONDS: Final = 60.0
ASK_SECONDS: Final = 10.0
MODELS_MAX: Final = 10_000


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
    listed = await upstream_models(service)
    if listed is not None:
        return listed
    return [_model({"id": name}) for name in await service.store.batches.models(owner)]


async def upstream_models(service: Service) -> list[dict[str, Any]] | None:
    """As the service behind lists them, at most a minute ago; None if it does not."""
    kept = service.kept_models
    now = service.main.clock.monotonic()
    if kept is None or now >= kept[0] + KEPT_SECONDS:
        kept = service.kept_models = (now, await _ask_for_models(service))
    return kept[1]


async def _ask_for_models(service: Service) -> list[dict[str, Any]] | None:
    upstream = service.options.upstream
    if upstream is None:
        return None
    wire = Wire(upstream, key_of(upstream), 1, http=service.backstay.settings.http)
    await wire.open()
    try:
        reply = await wire.get("/v1/models", timeout_seconds=ASK_SECONDS)
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
