"""/webhook_endpoints: the same webhooks as under /api, as OpenAI's client manages them."""

import re
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from backstay.core.errors import HandlerError, NotAllowed, UsageError
from backstay.server.auth import Reader, Writer
from backstay.server.idempotency import EffectId
from backstay.server.openai.shapes import page
from backstay.server.problems import Problem
from backstay.server.service import Service, Serving
from backstay.store.webhooks import EVENTS, ITEM_EVENTS, USER_EVENTS, Webhook, WebhookChange

router = APIRouter(tags=["OpenAI webhooks"])

NO_STORE: Final = {"cache-control": "no-store"}  # the answer contains a secret
LIST_MAX: Final = 100
_HINT_LENGTH: Final = 4

EndpointId = Annotated[str, Path(max_length=100, pattern=r"^[^\x00]*$")]
EventTypes = Annotated[list[str], Field(min_length=1, max_length=100)]
Name = Annotated[str, Field(max_length=100, pattern=r"^[^\x00-\x1f]*$")]
Url = Annotated[str, Field(min_length=1, max_length=2_048)]


class NewEndpoint(BaseModel):
    event_types: EventTypes
    name: Name
    url: Url


class ChangedEndpoint(BaseModel):
    event_types: EventTypes | None = None
    name: Name | None = None
    url: Url | None = None


class EndpointRotation(BaseModel):
    keep_old_secret_active_for_24_hours: bool = False


class Knock(BaseModel):
    event_type: str = Field(max_length=100)


@router.get("/webhook_event_types")
async def list_event_types(who: Reader) -> Response:
    return JSONResponse({"object": "list", "data": [*EVENTS, *ITEM_EVENTS]})


@router.post("/webhook_endpoints")
async def create_endpoint(given: NewEndpoint, who: Writer, service: Serving, effect: EffectId) -> Response:
    """The answer contains the signing secret; it is not shown again."""
    await _check_url(service, given.url)
    made = await service.store.webhooks.add(
        f"wh_{effect}", who.owner, given.url, _known_events(given.event_types), given.name
    )
    return _with_secret(service, made)


@router.get("/webhook_endpoints")
async def list_endpoints(
    who: Reader,
    service: Serving,
    after: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=LIST_MAX)] = 20,
) -> Response:
    found = [one for one in await service.store.webhooks.of(who.owner) if after is None or one.id > after]
    return JSONResponse(page([endpoint_object(service, one) for one in found[:limit]], len(found) > limit))


@router.get("/webhook_endpoints/{endpoint_id}")
async def show_endpoint(who: Reader, service: Serving, endpoint_id: EndpointId) -> Response:
    return JSONResponse(endpoint_object(service, await service.store.webhooks.show(endpoint_id, who.owner)))


@router.post("/webhook_endpoints/{endpoint_id}")
async def change_endpoint(given: ChangedEndpoint, who: Writer, service: Serving, endpoint_id: EndpointId) -> Response:
    await service.store.webhooks.show(endpoint_id, who.owner)
    if given.url is not None:
        await _check_url(service, given.url)
    events = None if given.event_types is None else _known_events(given.event_types)
    changed = await service.store.webhooks.change(endpoint_id, who.owner, WebhookChange(given.name, given.url, events))
    return JSONResponse(endpoint_object(service, changed))


@router.delete("/webhook_endpoints/{endpoint_id}")
async def delete_endpoint(who: Writer, service: Serving, endpoint_id: EndpointId) -> Response:
    await service.store.webhooks.delete(endpoint_id, who.owner)
    return JSONResponse({"id": endpoint_id, "object": "webhook_endpoint.deleted", "deleted": True})


@router.post("/webhook_endpoints/{endpoint_id}/rotate_secret")
async def rotate_secret(
    who: Writer, service: Serving, endpoint_id: EndpointId, given: EndpointRotation | None = None
) -> Response:
    keep_old = given is not None and given.keep_old_secret_active_for_24_hours
    return _with_secret(service, await service.store.webhooks.rotate(endpoint_id, who.owner, keep_old))


@router.post("/webhook_endpoints/{endpoint_id}/test")
async def test_endpoint(given: Knock, who: Writer, service: Serving, endpoint_id: EndpointId) -> Response:
    """Sends a sample event now and returns the answer."""
    [event] = _known_events([given.event_type])
    webhook = await service.store.webhooks.show(endpoint_id, who.owner)
    if webhook.disabled_at is not None:
        raise NotAllowed(f"webhook {endpoint_id} is disabled")
    try:
        answer = await service.relay.send_sample(webhook, event)
    except HandlerError as error:
        raise Problem(400, f"the endpoint could not be reached: {error.message}", param="url") from None
    said = {"object": "webhook_endpoint.test", "event_type": event, "success": True, "status_code": answer.status}
    return JSONResponse({**said, "webhook_endpoint_id": endpoint_id})


async def _check_url(service: Service, url: str) -> None:
    try:
        await service.outgoing.check_name(url)
    except UsageError as error:
        raise Problem(400, error.message, hint=error.hint, param="url", label="invalid_url") from None


def _known_events(events: list[str]) -> tuple[str, ...]:
    known = (*EVENTS, *ITEM_EVENTS)
    unknown = next((event for event in events if event not in known and not re.fullmatch(USER_EVENTS, event)), None)
    if unknown is not None:
        hint = f"known: {', '.join(known)}, and user. with the topic of messages that you publish"
        raise Problem(400, f"there is no event {unknown[:60]!r}", hint=hint, param="event_types")
    return tuple(dict.fromkeys(events))


def _with_secret(service: Service, webhook: Webhook) -> Response:
    secret = service.signer.secret_of(webhook.id, webhook.secret_version)
    return JSONResponse({**endpoint_object(service, webhook), "signing_secret": secret}, headers=NO_STORE)


def endpoint_object(service: Service, webhook: Webhook) -> dict[str, Any]:
    secret = service.signer.secret_of(webhook.id, webhook.secret_version)
    return {
        "id": webhook.id,
        "object": "webhook_endpoint",
        "created_at": webhook.created_at // 1000,
        "updated_at": webhook.updated_at // 1000,
        "event_types": list(webhook.events),
        "name": webhook.name,
        "url": webhook.url,
        "signing_secret_hint": f"whsec_…{secret[-_HINT_LENGTH:]}",
    }
