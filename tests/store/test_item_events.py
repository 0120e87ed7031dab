"""The setting `item_events`: every change of an item's state is an event, written in the transaction of the change."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from backstay import Backstay
from backstay.core.signing import Signer
from backstay.core.states import StopReason
from backstay.handlers.outgoing import Outgoing
from backstay.messaging.webhook_relay import Relay
from backstay.store.outbox import CHANGES, EVENT_ITEMS_MAX, MESSAGES, ItemEventsDatabase
from backstay.store.queries import statements
from backstay.store.store import Store
from backstay.store.webhooks import ITEM_EVENTS
from tests.databases import Site
from tests.server.receiver import receiving
from tests.store.audit import AuditedDatabase
from tests.store.store_rig import BROKEN, LEASE_MS, OK, TASK, WRONG, Scene, decided

# They set no other state than failed, of which `item.failed` tells.
FAIL_ONLY = {"expire_waiting", "expire_processing", "end_submitting", "end_processing"}


@pytest.fixture
async def scene(site: Site) -> AsyncIterator[Scene]:
    made = Scene(site)
    made.store = Store(ItemEventsDatabase(AuditedDatabase(site.database(), made.auditor)))
    await made.store.open()
    await made.store.outbox.open_sink(MESSAGES)
    yield made
    await made.store.close()


async def told(scene: Scene) -> list[tuple[Any, ...]]:
    """The events since the last call: name, state before, reason, items."""
    sql = "SELECT message_type, payload FROM outbox WHERE message_type LIKE 'item.%' ORDER BY id"
    rows = [(name, json.loads(payload)) for name, payload in await scene.site.rows(sql)]
    await scene.site.rows("DELETE FROM outbox")
    return [(name, said["from"], said["reason"], sorted(item["id"] for item in said["items"])) for name, said in rows]


async def test_the_life_of_an_item_is_told_change_by_change(scene: Scene) -> None:
    job = await scene.submit(1)
    item = [f"{job}-0"]
    for outcome in (BROKEN, TASK):
        [claimed] = await scene.claim()
        await scene.settle(claimed, outcome)
        await scene.site.advance(600)
    polled = await scene.store.items.poll("echo", "account-1", 10, "w1", LEASE_MS)
    await scene.settle(polled.items[0], TASK)  # still under way: no change
    await scene.site.advance(600)
    polled = await scene.store.items.poll("echo", "account-1", 10, "w1", LEASE_MS)
    await scene.settle(polled.items[0], OK)
    assert await told(scene) == [
        ("item.submitting", "queued", "claimed", item),
        ("item.queued", "submitting", "settled", item),
        ("item.submitting", "queued", "claimed", item),
        ("item.processing", "submitting", "settled", item),
        ("item.succeeded", "processing", "settled", item),
    ]


async def test_lost_released_retried_and_cancelled_items_are_told(scene: Scene) -> None:
    job = await scene.submit(3)
    one, two, three = (f"{job}-{n}" for n in range(3))
    [first] = await scene.claim(1)
    [second] = await scene.claim(1, worker="w2")
    await told(scene)
    await scene.store.items.return_lost_claim("w2")
    assert await told(scene) == [("item.queued", "submitting", "released", [two])]
    await scene.site.advance(LEASE_MS / 1000 + 1)
    rescued = (await scene.store.items.rescue("echo", False, 10, "w3", LEASE_MS)).items
    assert await told(scene) == [("item.submitting", "submitting", "rescued", [one])]
    assert not (await scene.settle(first, OK)).applied, "its lease was lost"
    await scene.settle(second, OK)
    assert await told(scene) == []
    await scene.settle(rescued[0], WRONG)
    assert await told(scene) == []  # that is told by item.failed
    await scene.store.jobs.retry(job, "ann")
    assert await told(scene) == [("item.queued", "failed", "retried", [one])]
    await scene.store.jobs.cancel(job, "ann")
    await scene.store.sweeps.end_stopped(job, StopReason.CANCEL)
    assert await told(scene) == [("item.cancelled", "queued", "cancelled", [one, two, three])]


async def test_many_items_are_few_rows_and_each_job_has_its_own(scene: Scene) -> None:
    items = 2 * EVENT_ITEMS_MAX + 50
    ann, bob = await scene.submit(items), await scene.submit(3, owner="bob")
    claimed = await scene.claim(items + 3)
    await scene.store.items.settle([decided(item, OK, scene.site.clock.ms) for item in claimed])
    events = await told(scene)
    assert [len(named) for *_, named in events] == [100, 100, 50, 3] * 2
    assert {name for *_, named in events for name in named} == {
        *(f"{ann}-{n}" for n in range(items)),
        *(f"{bob}-{n}" for n in range(3)),
    }


async def test_without_anyone_to_tell_no_event_is_written(scene: Scene) -> None:
    await scene.store.outbox.close_sink(MESSAGES)
    await scene.store.webhooks.add("wh_1", "ann", "https://example.com", ("item.succeeded",))
    await scene.ended(OK, owner="bob")
    assert await told(scene) == []
    job = await scene.ended(OK)
    assert await told(scene) == [("item.succeeded", "submitting", "settled", [f"{job}-0"])]


async def test_a_change_and_its_event_are_there_together_or_not_at_all(scene: Scene) -> None:
    await scene.submit(2)
    [first] = await scene.claim(1)
    await told(scene)
    await scene.site.rows("ALTER TABLE outbox RENAME TO elsewhere")
    try:
        with pytest.raises(Exception, match="outbox"):
            await scene.claim(1)
        with pytest.raises(Exception, match="outbox"):
            await scene.settle(first, OK)
    finally:
        await scene.site.rows("ALTER TABLE elsewhere RENAME TO outbox")
    states = await scene.site.rows("SELECT state FROM items ORDER BY id")
    assert [state for (state,) in states] == ["submitting", "queued"]
    await scene.settle(first, OK)
    assert [name for name, *_ in await told(scene)] == ["item.succeeded"]


def test_every_statement_that_changes_the_state_of_items_is_known() -> None:
    written = r"(?<![.\w])state = (?!items)|\{take\}|\{settled_values\}"
    changing = {
        name.partition(".")[0]
        for name, text in statements()
        if re.search(
            rf"UPDATE items SET(?:(?!\bWHERE\b).)*?(?:{written})|\{{(?:few_settled|claim_ready)\}}", text, re.DOTALL
        )
    }
    elsewhere = {"rescue", "copy_answers"}  # one changes the holder, not the state; items begin with the other's
    assert changing == {*CHANGES, *FAIL_ONLY} - elsewhere


async def test_the_setting_switches_it_on_for_an_application(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKSTAY_ITEM_EVENTS", "true")
    app = Backstay(database_url)

    @app.handler()
    async def echo(item: int) -> int:
        return item

    async with receiving() as receiver, app:
        client = await app.open()
        await client.store.webhooks.add("wh_1", "local", receiver.url, ITEM_EVENTS)
        job = await app.submit(echo, range(3))
        async with app.working():
            await job.wait()
        outgoing = Outgoing(receiver.place)
        await Relay(client.store.webhooks, outgoing, Signer("key" * 20), client.clock, app.bus).run_once()
        await outgoing.close()
        events = [json.loads(visit.body) for visit in receiver.visits]
    seen = sorted((event["type"], item["id"]) for event in events for item in event["data"]["items"])
    assert seen == [(name, f"{job.id}-{n}") for name in ("item.submitting", "item.succeeded") for n in range(3)]
