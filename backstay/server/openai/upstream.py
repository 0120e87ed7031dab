"""The providers behind the service: which one each request of a batch goes to, how its line is read, and /models."""

import asyncio
import json
import os
from dataclasses import replace
from typing import Any, Final

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from backstay.core.errors import BackstayError, NotFound, UsageError
from backstay.llm.credentials import credentials_for
from backstay.llm.endpoint import DEFAULT_API, Endpoint
from backstay.llm.formats import InputOptions
from backstay.llm.http.wire import Wire
from backstay.llm.lines import LinePart, LineRefused, preview
from backstay.llm.providers import provider_named, provider_shown
from backstay.run.submission import Order, Scales
from backstay.server.auth import Reader
from backstay.server.service import Service, ServiceOptions, Serving

MODELS_REMEMBERED_MAX: Final = 10_000
MESSAGES: Final = "/v1/messages"
MESSAGES_API: Final = "anthropic"  # the provider whose format message batches have
_MESSAGE_BATCH: Final = "msgbatch_"


def is_message_batch(batch_id: str) -> bool:
    """Whether it was created over Anthropic's API, in that provider's own format."""
    return batch_id.startswith(_MESSAGE_BATCH)


class ModelNotServed(LineRefused):
    """No provider of this service has the model."""

    def __init__(self, model: str | None, owner: str | None, there: list[str]) -> None:
        listed = ", ".join(there)
        if model is None:
            reason = f"names no model, so its provider is not known; this service has: {listed}"
        elif owner is None:
            how = f"write the provider before it, for example {there[0]}:{model[:60]}"
            reason = f"has the model {preview(model)}, whose provider is not known; this service has: {listed}; {how}"
        else:
            reason = f"has the model {preview(model)} of the provider {owner}; this service has only: {listed}"
        super().__init__(reason, LinePart.MODEL)


def require_upstream(options: ServiceOptions) -> Endpoint:
    if options.upstream is None:
        raise UsageError("this service has no provider to send requests to", hint="start it with --base-url")
    return options.upstream


def input_options_of(options: ServiceOptions) -> InputOptions:
    """How the lines of a batch are read: for the one provider, or each for the provider of its model.

    Requests that batches do not allow are found at the upload; a batch that has begun is read to its end.
    """
    upstream = require_upstream(options)
    known = {endpoint.api: _input_options(endpoint, options) for endpoint in upstream.all}
    own = known[upstream.api]
    if len(known) == 1:
        return own
    chosen: dict[tuple[str | None, str | None], InputOptions] = {}

    def choose(model: str | None, url: str | None) -> InputOptions:
        found = chosen.get((model, url))
        if found is None:
            if len(chosen) >= MODELS_REMEMBERED_MAX:
                chosen.clear()
            found = chosen[model, url] = known[_choose_provider(model, url, sorted(known))]
        return found

    return replace(own, choose=choose)


def _input_options(endpoint: Endpoint, options: ServiceOptions) -> InputOptions:
    return InputOptions(
        base_url=endpoint.base_url,
        background=True,
        api=endpoint.api,
        output_tokens_default=options.output_tokens_default,
        named=endpoint.api != DEFAULT_API or bool(require_upstream(options).beside),
    )


def _choose_provider(model: str | None, url: str | None, there: list[str]) -> str:
    found = provider_shown(model, url)
    if found not in there:
        raise ModelNotServed(model, found, there)
    return found


def scales_of(options: ServiceOptions) -> dict[str, Scales]:
    """By provider, what estimates the tokens and the cost of requests."""
    order = Order(
        require_upstream(options),
        "-",
        budget_micros=options.budget_micros,
        output_tokens_default=options.output_tokens_default,
    )
    return Scales.by_provider(order)


def handlers_of(options: ServiceOptions) -> dict[str, str]:
    """The handler of each provider."""
    return {endpoint.api: endpoint.name for endpoint in require_upstream(options).all}


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
    """With several providers, the name of a model includes its provider where that is not clear."""
    listed = await listed_models(service)
    if any(some is not None for some in listed.values()):
        return [_with_provider_name(api, model, len(listed)) for api, some in listed.items() for model in some or ()]
    return [_model({"id": name}) for name in await service.store.batches.models(owner)]


def _with_provider_name(api: str, model: dict[str, Any], providers: int) -> dict[str, Any]:
    bare = providers == 1 or provider_shown(model["id"], None) == api
    return model if bare else {**model, "id": f"{api}:{model['id']}"}


async def listed_models(service: Service) -> ModelLists:
    """The models that each provider lists, at most a minute old; None for a provider that lists none."""
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
    key = credentials_for(endpoint, settings, os.environ)
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
