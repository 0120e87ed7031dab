"""The event `item.failed`: failed items are told in batches, to their owner only, none is lost and none invented."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from backstay.core.events import Event, Trouble
from backstay.core.failures import ErrorCode, Failure, FailureKind
from backstay.core.ids import show_item
from backstay.core.models import Failed
from backstay.core.signing import Signer
from backstay.handlers.outgoing import Outgoing
from backstay.messaging.webhook_relay import Relay
from backstay.observe.bus import Bus
from backstay.store.outbox import EVENT_ITEMS_MAX, MESSAGE_AGE_MS, MESSAGES, NOTICE_WAIT_MS, NOTICES_TOLD
from backstay.store.store import Store
from backstay.store.submissions import Chunk
from backstay.store.webhooks import EVENTS
from tests.databases import Site
from tests.server.receiver import Receiver, receiving
from tests.store.store_rig import BROKEN, OK, TASK, WRONG, Scene, decided, new_job
from tests.upkeep.upkeep_rig import Desk

FAILED = ("item.failed",)
WAIT = NOTICE_WAIT_MS / 1000
NOTICES = "SELECT count(*) FROM failure_notices"


class Post:
    """The relay of webhooks on one database, and a receiver for all owners."""

    def __init__(self, site: Site, store: Store, receiver: Receiver) -> None:
        self.site = site
        self.store = store
        self.receiver = receiver
        self.troubles: list[Event] = []
        bus = Bus()
        bus.subscribe(lambda event: self.troubles.append(event) if isinstance(event, Trouble) else None)
        self.outgoing = Outgoing(receiver.place)
        self.relay = Relay(store.webhooks, self.outgoing, Signer("key" * 20), site.clock, bus)

    def allow(self, other: Receiver) -> None:
        """The relay may send to another receiver as well."""
        self.outgoing = self.relay._outgoing = Outgoing(f"{self.receiver.place},{other.place}")

    async def add(
        self, owner: str = "ann", events: tuple[str, ...] = FAILED, name: str = "", receiver: Receiver | None = None
    ) -> None:
        await self.store.webhooks.add(f"wh_{owner}{name}", owner, (receiver or self.receiver).url, events)

    async def told(self) -> list[dict[str, Any]]:
        """What the receiver has been told since the last call, after the wait of a batch."""
        await self.site.advance(WAIT)
        await self.relay.run_once()
        bodies = [json.loads(visit.body) for visit in self.receiver.visits]
        self.receiver.visits.clear()
        return [body["data"] | {"event": body["id"]} for body in bodies if body["type"] == "item.failed"]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


@pytest.fixture
async def post(scene: Scene, receiver: Receiver) -> AsyncIterator[Post]:
    made = Post(scene.site, scene.store, receiver)
    yield made
    await made.outgoing.close()


def names(told: list[dict[str, Any]]) -> list[str]:
    return sorted(item["id"] for event in told for item in event["items"])


async def dead_letters(desk: Desk) -> list[str]:
    return sorted(map(show_item, await desk.here()))


async def test_full_events_leave_at_once_and_the_rest_after_a_short_wait(scene: Scene, post: Post) -> None:
    await post.add()
    await scene.submit(2 * EVENT_ITEMS_MAX + 7)
    claimed = await scene.claim(2 * EVENT_ITEMS_MAX + 7)
    await scene.store.items.settle([decided(item, WRONG, scene.site.clock.ms) for item in claimed])
    assert await post.relay.run_once() == 2
    await scene.site.advance(WAIT - 0.001)
    assert await post.relay.run_once() == 0
    await scene.site.advance(0.001)
    assert await post.relay.run_once() == 1
    told = await post.told()
    assert sorted(len(event["items"]) for event in told) == [7, EVENT_ITEMS_MAX, EVENT_ITEMS_MAX]
    assert names(told) == sorted(show_item(item.id) for item in claimed)
    assert await scene.site.one(NOTICES) == 0


async def test_ten_thousand_failures_are_a_hundred_messages(site: Site, receiver: Receiver) -> None:
    store = await site.open_store()
    post = Post(site, store, receiver)
    await post.add()
    bodies = [f'"{number}"' for number in range(10_000)]
    await store.submissions.open(new_job(), Chunk(0, bodies, "digest", True))
    await site.rows("UPDATE items SET state = 'failed', fence = fence + 1, error_code = 'GW_4XX', finished_at = 0")
    assert await site.one(NOTICES) == 10_000
    written = []
    while told := await store.webhooks.tell_failed():
        written.append(told)
    assert written == [NOTICES_TOLD // EVENT_ITEMS_MAX] * (10_000 // NOTICES_TOLD)
    payloads = [json.loads(row[0])["items"] for row in await site.rows("SELECT payload FROM outbox")]
    assert [len(items) for items in payloads] == [EVENT_ITEMS_MAX] * 100
    assert len({item["id"] for items in payloads for item in items}) == 10_000
    await post.outgoing.close()


async def test_an_event_tells_what_a_ticket_needs_and_no_secret(scene: Scene, post: Post) -> None:
    await post.add()
    body = json.dumps({"custom_id": 'row "7" ü', "url": "/v1/x", "body": {"prompt": "secret prompt"}})
    plain = '{"custom_id": 7}'
    opened = await scene.store.submissions.open(
        new_job(), Chunk(0, [body, plain], "digest", True, None, ["order-7", "order-8"])
    )
    message = "refused: Authorization: Bearer sk-abcdefghijklmnop1234 /etc/keys/mine.pem " + "x" * 1_000
    for item in await scene.claim(2):
        await scene.settle(item, Failed(Failure(ErrorCode.GW_4XX, FailureKind.BUSINESS, "no", None, 422)))
    await scene.site.rows(f"UPDATE attempts SET message = '{message}'")  # whoever wrote it, and however
    now = scene.site.clock.ms
    [event] = await post.told()
    assert {name: event[name] for name in ("id", "owner", "handler")} == {
        "id": str(opened.id),
        "owner": "ann",
        "handler": "echo",
    }
    first, second = event["items"]
    assert len(first.pop("message")) <= 300
    assert first == {
        "id": f"{opened.id}-0",
        "custom_id": 'row "7" ü',
        "key": "order-7",
        "handler": "echo",
        "attempts": 1,
        "calls": 1,
        "error_code": "GW_4XX",
        "flaw": None,
        "provider_status": 422,
        "failed_at": now,
    }
    assert (second["custom_id"], second["key"]) == (None, "order-8")
    assert not any(word in json.dumps(event) for word in ("sk-abc", "/etc/keys", "secret prompt"))


async def test_a_retried_item_that_fails_again_is_told_again(scene: Scene, post: Post, desk: Desk) -> None:
    await post.add()
    job = await scene.ended(WRONG)
    [first] = await post.told()
    assert await post.told() == []
    assert await scene.store.jobs.retry(job, "ann") == 1
    assert await post.told() == []
    [item] = await scene.claim()
    await scene.settle(item, WRONG)
    [second] = await post.told()
    assert names([first]) == names([second]) == await dead_letters(desk)
    assert first["event"] != second["event"]
    assert first["items"][0]["failed_at"] < second["items"][0]["failed_at"]


async def test_a_failure_is_told_as_it_was_although_its_item_was_retried_before(scene: Scene, post: Post) -> None:
    await post.add()
    job = await scene.ended(WRONG)
    await scene.store.jobs.retry(job, "ann")
    [item] = await scene.claim()
    await scene.settle(item, OK)
    [event] = await post.told()
    assert [(it["attempts"], it["error_code"], it["message"]) for it in event["items"]] == [(1, "GW_4XX", "400")]


async def test_one_owner_never_hears_of_the_items_of_another(scene: Scene, post: Post) -> None:
    for owner in ("ann", "bob", "eve"):
        await post.add(owner)
    jobs = {owner: await scene.ended(WRONG, 3, owner=owner) for owner in ("ann", "bob")}
    await scene.ended(WRONG, owner="dan")
    told = await post.told()
    assert {event["owner"]: names([event]) for event in told} == {
        owner: [f"{job}-{n}" for n in range(3)] for owner, job in jobs.items()
    }
    deliveries = await scene.site.rows("SELECT webhook_id, body FROM deliveries ORDER BY webhook_id")
    assert [(hook, json.loads(body)["data"]["owner"]) for hook, body in deliveries] == [
        ("wh_ann", "ann"),
        ("wh_bob", "bob"),
    ]


@pytest.mark.parametrize("by", ["deadline", "timeout", "cancel"])
async def test_exactly_the_dead_letters_are_told(scene: Scene, post: Post, desk: Desk, by: str) -> None:
    """A deadline and a job's time limit fail what waits, runs or is a task; a cancel does not fail what waits."""
    await post.add()
    job = await scene.submit(4, deadline_ms=600_000)
    waits, _, task, wrong = await scene.claim(4)
    await scene.settle(waits, BROKEN)
    await scene.settle(task, TASK)
    await scene.settle(wrong, WRONG)
    await scene.end(job, by)
    told = names(await post.told())
    assert told == await dead_letters(desk)
    assert len(told) == (1 if by == "cancel" else 4)


async def test_without_anyone_to_tell_nothing_is_written(scene: Scene, post: Post) -> None:
    await post.add("bob")
    await post.add("ann", ("job.failed",))
    await post.add("ann", FAILED, "off")
    await scene.store.webhooks.delete("wh_annoff", "ann")
    await scene.ended(OK, owner="bob")
    await scene.ended(WRONG)
    assert await scene.site.one(NOTICES) == 0
    assert "item.failed" in EVENTS  # a webhook that names no events gets it


async def test_a_poison_receiver_gets_its_copies_under_one_id_and_holds_up_nobody(scene: Scene, post: Post) -> None:
    async with receiving() as poison:
        poison.says(500)
        post.allow(poison)
        await post.add(receiver=poison)
        for owner in ("bob", "eve"):
            await post.add(owner)
        await post.add("ann", name="too")
        for owner in ("ann", "bob", "eve"):
            await scene.ended(WRONG, 2, owner=owner)
        good = await post.told()
        assert sorted(event["owner"] for event in good) == ["ann", "bob", "eve"]
        for _ in range(2):
            await scene.site.advance(400)
            await post.relay.run_once()
        [ann] = [event["event"] for event in good if event["owner"] == "ann"]
        assert [visit.headers["webhook-id"] for visit in poison.visits] == [ann] * 3
        assert len({visit.body for visit in poison.visits}) == 1
        assert await post.told() == []


async def test_items_of_a_job_that_was_deleted_are_not_told(scene: Scene, post: Post) -> None:
    await post.add()
    await scene.store.outbox.open_sink(MESSAGES)
    half_deleted, deleted, kept = [await scene.ended(WRONG) for _ in range(3)]
    for job in (half_deleted, deleted):
        await scene.store.jobs.disown(job, "ann")
    await scene.store.jobs.purge(deleted)
    assert names(await post.told()) == [f"{kept}-0"]
    assert await scene.site.rows("SELECT aggregate_type, owner FROM outbox WHERE sink = 'messages'") == [
        ("items", "ann")
    ]
    assert await scene.site.one(NOTICES) == 0


async def test_trouble_with_failed_items_does_not_hold_up_other_events(scene: Scene, post: Post) -> None:
    await post.add(events=("job.failed",))
    await scene.ended(WRONG)
    await scene.site.rows("ALTER TABLE failure_notices RENAME TO elsewhere")
    try:
        assert await post.relay.run_once() == 1
    finally:
        await scene.site.rows("ALTER TABLE elsewhere RENAME TO failure_notices")
    assert [event.where for event in post.troubles if isinstance(event, Trouble)]


async def test_relays_at_once_tell_each_item_once(site: Site) -> None:
    stores = [await site.open_store() for _ in range(4)]
    await stores[0].outbox.open_sink(MESSAGES)
    bodies = [f'"{number}"' for number in range(1_050)]
    await stores[0].submissions.open(new_job(), Chunk(0, bodies, "digest", True))
    await site.rows(f"UPDATE items SET state = 'failed', finished_at = {site.clock.ms}")
    await site.advance(WAIT)
    assert sum(await asyncio.gather(*(store.outbox.tell_failed() for store in stores))) >= 11
    payloads = [json.loads(row[0])["items"] for row in await site.rows("SELECT payload FROM outbox")]
    told = [item["id"] for items in payloads for item in items]
    assert len(told) == len(set(told)) == 1_050


async def test_notices_that_nobody_collects_are_dropped_after_a_month(scene: Scene) -> None:
    await scene.store.outbox.open_sink(MESSAGES)
    await scene.ended(WRONG)
    assert await scene.store.outbox.prune() == 0
    await scene.site.advance(MESSAGE_AGE_MS / 1000 + 1)
    assert await scene.store.outbox.prune() == 1
    assert await scene.site.one(NOTICES) == 0
