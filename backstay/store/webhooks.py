"""Webhooks: the URLs that get events, and every delivery, which is tried until the receiver confirms it."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, get_args

from backstay.clock import new_id
from backstay.core.errors import NotAllowed, NotFound
from backstay.store.databases.database import Database, Front
from backstay.store.outbox import ITEM_EVENT, TOPIC, USER_EVENT, tell_failed
from backstay.store.queries import Ask, Script, one, record

EventName = Literal[
    "batch.completed",
    "batch.failed",
    "batch.expired",
    "batch.cancelled",
    "job.completed",
    "job.failed",
    "job.cancelled",
    "alarm.raised",
    "alarm.cleared",
    "item.failed",
]
# Written only with the setting `item_events`, and sent only to webhooks that name them.
ItemEventName = Literal[
    "item.queued", "item.submitting", "item.processing", "item.succeeded", "item.skipped", "item.cancelled"
]
EVENTS: Final[tuple[EventName, ...]] = get_args(EventName)
ITEM_EVENTS: Final[tuple[ItemEventName, ...]] = get_args(ItemEventName)
USER_EVENTS: Final = rf"^{re.escape(USER_EVENT)}{TOPIC}$"  # users' own messages, by their topics
TEST_EVENT: Final = "webhook.test"
EVENTS_MAX: Final = 100  # of one webhook
WEBHOOKS_MAX: Final = 50  # of one owner
MESSAGES_MAX: Final = 200  # of one pass
SPREAD_CHARACTERS: Final = 4 << 20  # of the deliveries that one pass writes, and one message more
LOOKED_MAX: Final = 1_000  # webhooks, by one claim
FORGOTTEN_MAX: Final = 500
FORGOTTEN_CHUNKS_MAX: Final = 100  # by one call
AGE_MS: Final = 30 * 86_400_000
LEASE_MS: Final = 60_000
LASTING_MS: Final = 3 * 86_400_000  # a webhook that fails for this time is disabled
ROTATION_MS: Final = 86_400_000
RESENT_MAX: Final = 1_000
LAST_ID: Final = (1 << 63) - 1


@record
class Webhook(NamedTuple):
    id: str
    owner: str
    name: str
    url: str
    events: tuple[str, ...]
    created_at: int
    updated_at: int
    secret_version: int
    old_secret_until: int | None
    failing_since: int | None
    disabled_at: int | None
    disabled_why: str | None


@record
class WebhookDelivery(NamedTuple):
    """The delivery of one event to one webhook, as its owner sees it."""

    id: int
    event_id: str
    event_type: str
    created_at: int
    due_at: int | None
    tries: int
    delivered_at: int | None
    given_up_at: int | None
    last_status: int | None
    last_error: str | None

    @property
    def state(self) -> str:
        if self.due_at is not None:
            return "pending"
        return "delivered" if self.delivered_at is not None else "failed"


@record
class DueDelivery(NamedTuple):
    """A claimed delivery to make now; without a URL its webhook no longer accepts any."""

    id: int
    webhook_id: str
    event_id: str
    event_type: str
    body: str
    tries: int
    now: int
    url: str | None
    secret_version: int
    two_secrets: int


@record
class OutboxEvent(NamedTuple):
    """A message of the outbox: an event of a job, batch, items or an alarm, or a user's own message, with its owner."""

    id: int
    owner: str
    aggregate_id: str
    message_type: str
    payload: str
    created_at: int

    def event_data(self) -> tuple[str, Any]:
        """The id of the event, and its data: a user's message, the data of items, or else the id to ask for."""
        if self.message_type.startswith((USER_EVENT, ITEM_EVENT)):
            return f"evt_{self.aggregate_id}", json.loads(self.payload)
        return f"evt_{new_id()}", {"id": self.aggregate_id}


class DeliveryResult(NamedTuple):
    """The result of one delivery attempt. If it was not delivered and has no delay, it is given up."""

    delivered: bool
    status: int | None = None
    error: str | None = None
    delay_ms: int | None = None
    gone: bool = False  # the webhook answered that it is gone permanently


class WebhookChange(NamedTuple):
    """A person's changes to a webhook; None leaves a field unchanged."""

    name: str | None = None
    url: str | None = None
    events: tuple[str, ...] | None = None
    enabled: bool | None = None


class Webhooks:
    def __init__(self, database: Database) -> None:
        self._db = database
        self._front = Front(database)

    async def add(self, webhook_id: str, owner: str, url: str, events: tuple[str, ...], name: str = "") -> Webhook:
        values = {"id": webhook_id, "owner": owner, "name": name, "url": url, "events": json.dumps(events)}
        await self._db.write(one("add_webhook", {**values, "n": WEBHOOKS_MAX}))
        try:
            return await self.show(webhook_id, owner)
        except NotFound:
            hint = "delete one that is no longer needed"
            raise NotAllowed(f"there are {WEBHOOKS_MAX} webhooks already", hint=hint) from None

    async def show(self, webhook_id: str, owner: str) -> Webhook:
        rows: list[Webhook] = await self._db.read(one("webhook", {"id": webhook_id, "owner": owner}))
        if not rows:
            raise _webhook_not_found(webhook_id)
        return rows[0]

    async def of(self, owner: str) -> list[Webhook]:
        return await self._db.read(one("webhooks", {"owner": owner, "n": WEBHOOKS_MAX}))

    async def change(self, webhook_id: str, owner: str, change: WebhookChange) -> Webhook:
        values = {
            "name": change.name,
            "url": change.url,
            "events": None if change.events is None else json.dumps(change.events),
            "enabled": None if change.enabled is None else int(change.enabled),
        }
        await self._act("change_webhook", webhook_id, owner, values, give_up=change.enabled is False)
        return await self.show(webhook_id, owner)

    async def rotate(self, webhook_id: str, owner: str, keep_old: bool) -> Webhook:
        await self._act("rotate_webhook", webhook_id, owner, {"grace_ms": ROTATION_MS if keep_old else 0})
        return await self.show(webhook_id, owner)

    async def delete(self, webhook_id: str, owner: str) -> None:
        await self._act("delete_webhook", webhook_id, owner, {}, give_up=True)

    async def _act(
        self, name: str, webhook_id: str, owner: str, values: Mapping[str, object], give_up: bool = False
    ) -> None:
        def script() -> Script[None]:
            if not (yield Ask(name, {"id": webhook_id, "owner": owner, **values})):
                raise _webhook_not_found(webhook_id)
            if give_up:
                yield Ask("give_up_deliveries", {"id": webhook_id})

        await self._db.write(script)

    # deliveries

    async def announce(self, webhook: Webhook, event_type: str, data: dict[str, str], at_ms: int) -> WebhookDelivery:
        """Sends an event to one webhook only, whatever events it subscribes to."""
        row = delivery_row(webhook.id, webhook.owner, f"evt_{new_id()}", event_type, data, at_ms)
        [added] = await self._db.write(one("add_deliveries", batch=[row]))
        return await self.delivery(webhook.id, webhook.owner, added["id"])

    async def deliveries(
        self, webhook_id: str, owner: str, before: int | None = None, n: int = 50
    ) -> list[WebhookDelivery]:
        """Newest first, from a cursor on."""
        values = {"id": webhook_id, "owner": owner, "before": LAST_ID if before is None else before, "n": n}
        return await self._db.read(one("deliveries_page", values))

    async def delivery(self, webhook_id: str, owner: str, delivery: int) -> WebhookDelivery:
        values = {"id": webhook_id, "owner": owner, "delivery": delivery}
        rows: list[WebhookDelivery] = await self._db.read(one("delivery", values))
        if not rows:
            raise NotFound(f"no delivery {delivery}")
        return rows[0]

    async def resend(self, webhook_id: str, owner: str, delivery: int) -> WebhookDelivery:
        """Delivers it again with the same event id, so that a receiver recognises a repeat."""
        values = {"id": webhook_id, "owner": owner, "delivery": delivery}
        await self._db.write(one("resend_delivery", values))
        return await self.delivery(webhook_id, owner, delivery)

    async def resend_failed(self, webhook_id: str, owner: str) -> int:
        values = {"id": webhook_id, "owner": owner, "n": RESENT_MAX}
        return len(await self._db.write(one("resend_failed", values)))

    # the relay's side

    async def tell_failed(self) -> int:
        """Writes events about items that have failed; returns how many events."""
        return await tell_failed(self._db)

    async def create_deliveries(self) -> int:
        """Creates the deliveries of new events, one per subscribed webhook; returns how many messages there were."""
        return await self._db.write(lambda: _create_deliveries(self._front))

    async def claim(self, n: int, busy: list[str], past: str = "") -> tuple[list[DueDelivery], str]:
        """Claims due deliveries, one for each of n idle webhooks after `past`; and where to continue.

        So webhooks take turns: many waiting deliveries of one do not delay the others.
        """
        return await self._db.write(lambda: _claim(n, frozenset(busy), past))

    async def settle(self, due: DueDelivery, result: DeliveryResult) -> bool:
        """Stores the result of a delivery attempt; returns whether it disabled the webhook."""
        return await self._db.write(lambda: _settle(due, result))

    async def forget(self) -> None:
        """Deletes a bounded number of old messages and deliveries."""
        for name in ("forget_messages", "forget_deliveries"):
            for _ in range(FORGOTTEN_CHUNKS_MAX):
                if len(await self._db.write(one(name, {"age_ms": AGE_MS, "n": FORGOTTEN_MAX}))) < FORGOTTEN_MAX:
                    break


def _create_deliveries(front: Front) -> Script[int]:
    messages: list[OutboxEvent] = yield from front.look_back(
        lambda back_ms: Ask("pending_messages", {"n": MESSAGES_MAX, "back_ms": back_ms}), MESSAGES_MAX
    )
    if not messages:
        return 0
    owners = sorted({message.owner for message in messages})
    wanted: list[Webhook] = yield Ask("webhooks_of", batch=[(owner,) for owner in owners])
    rows: list[tuple[str, ...]] = []
    spread, characters = 0, 0
    for message in messages:
        if characters > SPREAD_CHARACTERS:
            break  # the rest is for the next pass
        event_id, data = message.event_data()
        for webhook in wanted:
            if webhook.owner == message.owner and message.message_type in webhook.events:
                event = (message.owner, event_id, message.message_type, data, message.created_at)
                *_, body = row = delivery_row(webhook.id, *event)
                rows.append(row)
                characters += len(body)
        spread += 1
    if rows:
        yield Ask("add_deliveries", batch=rows)
    yield Ask("publish_messages", batch=[(message.id,) for message in messages[:spread]])
    return spread


def _claim(n: int, busy: frozenset[str], past: str) -> Script[tuple[list[DueDelivery], str]]:
    ready, end = yield from _ready(busy, past)
    if not ready and past and not end:  # the end of the list: start again from its beginning
        ready, end = yield from _ready(busy, "")
    if not ready:
        return [], end
    rows = yield Ask("claim_deliveries", {"lease_ms": LEASE_MS}, [(webhook,) for webhook in ready[:n]])
    return rows, ready[n - 1] if len(ready) > n else end


def _ready(busy: frozenset[str], past: str) -> Script[tuple[list[str], str]]:
    """Webhooks with a due delivery, and the last one that was read; empty: all were read."""
    waiting = yield Ask("waiting_webhooks", {"past": past, "n": LOOKED_MAX})
    ready = [row["id"] for row in waiting if row["due_at"] <= row["now"] and row["id"] not in busy]
    return ready, waiting[-1]["id"] if len(waiting) == LOOKED_MAX else ""


def _settle(due: DueDelivery, result: DeliveryResult) -> Script[bool]:
    values = {"told": int(result.delivered), "delay_ms": result.delay_ms, "answered": result.status}
    if not (yield Ask("settle_delivery", {"delivery": due.id, "tries": due.tries, **values, "error": result.error})):
        return False  # another process has claimed it since
    yield Ask("mark_webhook", {"id": due.webhook_id, "failed": int(not result.delivered)})
    if result.delivered:
        return False
    failed_long = f"its deliveries failed for {LASTING_MS // 3_600_000} hours"
    reason = "the URL answered 410 Gone" if result.gone else failed_long
    lasting_ms = 0 if result.gone else LASTING_MS
    ended = yield Ask("disable_webhook", {"id": due.webhook_id, "reason": reason, "lasting_ms": lasting_ms})
    if ended:
        yield Ask("give_up_deliveries", {"id": due.webhook_id})
    return bool(ended)


def delivery_row(webhook_id: str, owner: str, event_id: str, event_type: str, data: Any, at_ms: int) -> tuple[str, ...]:
    """A delivery's row. The body of our own events is short: the receiver asks the API for more."""
    body = {"id": event_id, "object": "event", "created_at": at_ms // 1000, "type": event_type, "data": data}
    return webhook_id, owner, event_id, event_type, json.dumps(body, separators=(",", ":"))


def _webhook_not_found(webhook_id: str) -> NotFound:
    return NotFound(f"no webhook {webhook_id}")
