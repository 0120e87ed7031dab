"""Webhooks: their URLs, events and secrets, tests, and the list of deliveries."""

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from backstay.core.errors import NotAllowed
from backstay.server import shapes
from backstay.server.auth import Reader, Writer
from backstay.server.idempotency import EffectId
from backstay.server.service import Serving
from backstay.server.shapes import CHANGES, PAGE_DEFAULT, PROBLEMS, Cursor, Limit, PageShape, Strict, page, row_number
from backstay.store.webhooks import (
    EVENTS,
    EVENTS_MAX,
    TEST_EVENT,
    USER_EVENTS,
    EventName,
    ItemEventName,
    Webhook,
    WebhookChange,
    WebhookDelivery,
)

router = APIRouter(prefix="/api/webhooks", tags=["webhooks"], responses=PROBLEMS)

# The answer contains a secret: no cache may store it.
NO_STORE: Final = {"cache-control": "no-store"}

UserEvent = Annotated[str, Field(pattern=USER_EVENTS, max_length=105, examples=["user.orders.created"])]
Events = Annotated[list[EventName | ItemEventName | UserEvent], Field(min_length=1, max_length=EVENTS_MAX)]
Url = Annotated[str, Field(min_length=1, max_length=2_048, examples=["https://example.com/hook"])]
Name = Annotated[str, Field(max_length=100, pattern=r"^[^\x00-\x1f]*$")]
WebhookId = Annotated[str, Path(max_length=100, pattern=r"^[^\x00]*$", examples=["wh_0123456789abcdef01234567"])]
DeliveryId = Annotated[str, Path(examples=["7"])]


class NewWebhook(Strict):
    url: Url
    events: Events | None = Field(
        None, description="the events to send; if left out, all but users' own messages and the events of `item_events`"
    )
    name: Name = ""


class ChangedWebhook(Strict):
    url: Url | None = None
    events: Events | None = None
    name: Name | None = None
    enabled: bool | None = Field(
        None, description="false: send no events; true: send events again and forget earlier failures"
    )


class WebhookRotation(Strict):
    keep_old: bool = Field(True, description="sign with the old secret as well for 24 hours")


class WebhookShape(BaseModel):
    """All moments are milliseconds since 1970, UTC."""

    id: str
    name: str
    url: str
    events: list[str]
    enabled: bool
    created_at: int
    updated_at: int
    old_secret_until: int | None
    failing_since: int | None
    disabled_at: int | None
    disabled_why: str | None


class WebhookWithSecret(WebhookShape):
    secret: str = Field(description="shown here and never again")


class WebhookList(PageShape):
    data: list[WebhookShape]


class DeliveryShape(BaseModel):
    """All moments are milliseconds since 1970, UTC."""

    id: str
    event_id: str = Field(description="the webhook-id header: the same for every try")
    event_type: str
    state: Literal["pending", "delivered", "failed"]
    tries: int
    created_at: int
    next_try_at: int | None
    delivered_at: int | None
    given_up_at: int | None
    last_status: int | None
    last_error: str | None


class DeliveryPage(PageShape):
    data: list[DeliveryShape]


class Resent(BaseModel):
    resent: int


@router.post("", status_code=201, response_model=WebhookWithSecret, responses=CHANGES)
async def create_webhook(given: NewWebhook, who: Writer, service: Serving, effect: EffectId) -> Response:
    """The answer contains the secret that the receiver verifies signatures with; it is not shown again."""
    await service.outgoing.check_name(given.url)
    events = tuple(dict.fromkeys(given.events or EVENTS))
    made = await service.store.webhooks.add(f"wh_{effect}", who.owner, given.url, events, given.name)
    secret = service.signer.secret_of(made.id, made.secret_version)
    return JSONResponse({**webhook_object(made), "secret": secret}, 201, NO_STORE)


@router.get("", response_model=WebhookList)
async def list_webhooks(request: Request, who: Reader, service: Serving) -> Response:
    """Lists all webhooks; an owner has a few dozen at most."""
    return page(request, map(webhook_object, await service.store.webhooks.of(who.owner)), None)


@router.get("/{webhook_id}", response_model=WebhookShape)
async def show_webhook(who: Reader, service: Serving, webhook_id: WebhookId) -> Response:
    return JSONResponse(webhook_object(await service.store.webhooks.show(webhook_id, who.owner)))


@router.patch("/{webhook_id}", response_model=WebhookShape)
async def change_webhook(given: ChangedWebhook, who: Writer, service: Serving, webhook_id: WebhookId) -> Response:
    """Fields that are left out stay as they are."""
    await service.store.webhooks.show(webhook_id, who.owner)
    if given.url is not None:
        await service.outgoing.check_name(given.url)
    events = None if given.events is None else tuple(dict.fromkeys(given.events))
    change = WebhookChange(given.name, given.url, events, given.enabled)
    return JSONResponse(webhook_object(await service.store.webhooks.change(webhook_id, who.owner, change)))


@router.delete("/{webhook_id}", status_code=204, response_class=Response)
async def delete_webhook(who: Writer, service: Serving, webhook_id: WebhookId) -> Response:
    """Deletes the webhook. It gets no more events, not even those that wait for a retry."""
    await service.store.webhooks.delete(webhook_id, who.owner)
    return Response(status_code=204)


@router.post("/{webhook_id}/rotate", response_model=WebhookWithSecret)
async def rotate_webhook(
    who: Writer, service: Serving, webhook_id: WebhookId, given: WebhookRotation | None = None
) -> Response:
    """Creates a new secret. The old one also signs for 24 hours, unless you say otherwise."""
    keep_old = given is None or given.keep_old
    changed = await service.store.webhooks.rotate(webhook_id, who.owner, keep_old)
    secret = service.signer.secret_of(changed.id, changed.secret_version)
    return JSONResponse({**webhook_object(changed), "secret": secret}, 200, NO_STORE)


@router.post("/{webhook_id}/test", status_code=202, response_model=DeliveryShape, responses=CHANGES)
async def test_webhook(who: Writer, service: Serving, webhook_id: WebhookId) -> Response:
    """Sends an event of the type webhook.test; the delivery shows the result."""
    webhook = await _require_enabled(service, webhook_id, who.owner)
    told = await service.store.webhooks.announce(webhook, TEST_EVENT, {"id": webhook_id}, service.main.clock.now_ms())
    return JSONResponse(delivery_object(told), 202)


@router.get("/{webhook_id}/deliveries", response_model=DeliveryPage)
async def list_deliveries(
    request: Request,
    who: Reader,
    service: Serving,
    webhook_id: WebhookId,
    limit: Limit = PAGE_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """Newest first."""
    what = f"deliveries\0{webhook_id}"
    before = shapes.decode(service, who.owner, what, cursor)
    await service.store.webhooks.show(webhook_id, who.owner)
    found = await service.store.webhooks.deliveries(webhook_id, who.owner, before, limit)
    next_cursor = shapes.encode(service, who.owner, what, found[-1].id if len(found) == limit else None)
    return page(request, map(delivery_object, found), next_cursor)


@router.post(
    "/{webhook_id}/deliveries/{delivery_id}/resend", status_code=202, response_model=DeliveryShape, responses=CHANGES
)
async def resend_delivery(who: Writer, service: Serving, webhook_id: WebhookId, delivery_id: DeliveryId) -> Response:
    """Sends the event again with the same id, so that a receiver can recognize it; its attempts are reset."""
    await _require_enabled(service, webhook_id, who.owner)
    number = row_number(delivery_id, "delivery")
    return JSONResponse(delivery_object(await service.store.webhooks.resend(webhook_id, who.owner, number)), 202)


@router.post("/{webhook_id}/resend", status_code=202, response_model=Resent, responses=CHANGES)
async def resend_failed(who: Writer, service: Serving, webhook_id: WebhookId) -> Response:
    """Sends failed events again, the oldest thousand of them."""
    await _require_enabled(service, webhook_id, who.owner)
    return JSONResponse({"resent": await service.store.webhooks.resend_failed(webhook_id, who.owner)}, 202)


async def _require_enabled(service: Serving, webhook_id: str, owner: str) -> Webhook:
    webhook = await service.store.webhooks.show(webhook_id, owner)
    if webhook.disabled_at is not None:
        raise NotAllowed(f"webhook {webhook_id} is disabled", hint="enable it first: PATCH it with enabled: true")
    return webhook


def webhook_object(webhook: Webhook) -> dict[str, Any]:
    return {
        "id": webhook.id,
        "name": webhook.name,
        "url": webhook.url,
        "events": list(webhook.events),
        "enabled": webhook.disabled_at is None,
        "created_at": webhook.created_at,
        "updated_at": webhook.updated_at,
        "old_secret_until": webhook.old_secret_until,
        "failing_since": webhook.failing_since,
        "disabled_at": webhook.disabled_at,
        "disabled_why": webhook.disabled_why,
    }


def delivery_object(told: WebhookDelivery) -> dict[str, Any]:
    return {
        "id": str(told.id),
        "event_id": told.event_id,
        "event_type": told.event_type,
        "state": told.state,
        "tries": told.tries,
        "created_at": told.created_at,
        "next_try_at": told.due_at,
        "delivered_at": told.delivered_at,
        "given_up_at": told.given_up_at,
        "last_status": told.last_status,
        "last_error": told.last_error,
    }
