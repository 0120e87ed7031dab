"""The outbox: hints in the transaction of what they tell of, taken by any number of relays, each until it has left."""

import asyncio
import json
from typing import Any

import pytest

from backstay.core.errors import NotAllowed
from backstay.core.ids import item_id
from backstay.store import outbox, webhooks
from backstay.store.dead_letters import LetterFilter, ReplayRequest
from backstay.store.outbox import HINT_AGE_MS, HINT_ITEMS_MAX, PUBLISHED_AGE_MS, WORK, Lag, Message
from backstay.store.webhooks import DeliveryResult
from tests.store.store_rig import BROKEN, OK, WRONG, Scene, chunk, decided, new_job

LEASE_MS = 30_000
ALL = 1_000


def said(message: Message) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(message.payload)
    return told


def items_of(message: Message) -> list[int]:
    told = said(message)
    return list(told["items"]) if "items" in told else list(range(told["first"], told["first"] + told["count"]))


async def hints(scene: Scene) -> list[Message]:
    """All that is to be published now, and published by it."""
    found = await scene.store.outbox.claim(WORK, ALL, LEASE_MS)
    await scene.store.outbox.mark_published([message.id for message in found])
    return found


async def rows(scene: Scene) -> int:
    return int(await scene.site.one("SELECT count(*) FROM outbox"))


# hints


async def test_without_a_sink_not_one_hint_is_written(scene: Scene) -> None:
    job = await scene.submit(3)
    opened = await scene.open_job(100, last=False)
    await scene.store.submissions.add_items("echo", opened, chunk(100, 100, last=True))
    first, *others = await scene.claim(3)
    await scene.settle(first, BROKEN)
    await scene.settle(others[0], WRONG, retry="none")
    await scene.store.jobs.retry(job, "ann")
    assert await scene.store.outbox.republish() == 0
    assert await rows(scene) == 0


async def test_a_small_job_is_one_hint_in_a_row(scene: Scene) -> None:
    await scene.store.outbox.open_sink()
    job = await scene.submit(3, priority=7)
    (message,) = await hints(scene)
    assert said(message) == {"handler": "echo", "priority": 7, "first": item_id(job, 0), "count": 3}
    assert message[1:4] == ("ann", "work.ready", str(item_id(job, 0)))
    assert (message.tries, message.age_ms, message.created_at) == (1, 0, scene.site.clock.ms)


async def test_the_items_of_a_large_job_are_hinted_at_once_each(scene: Scene) -> None:
    await scene.store.outbox.open_sink()
    opened = await scene.open_job(120, last=False, priority=2)
    await scene.store.submissions.add_items("echo", opened, chunk(120, 60, last=True))
    found = await hints(scene)
    assert [item for message in found for item in items_of(message)] == [item_id(opened.id, n) for n in range(180)]
    assert max(len(items_of(message)) for message in found) == HINT_ITEMS_MAX
    assert {(message.owner, said(message)["priority"]) for message in found} == {("ann", 2)}


async def test_a_job_that_is_there_already_or_empty_is_not_hinted_at(scene: Scene) -> None:
    await scene.store.outbox.open_sink()
    for items in (3, 40):
        await scene.submit(items, idempotency_key=f"key-{items}")
    assert len(await hints(scene)) == 2
    for items in (3, 40):
        await scene.submit(items, idempotency_key=f"key-{items}")
    await scene.submit(0)
    assert await hints(scene) == []


async def test_an_item_that_goes_back_is_hinted_at_with_its_wait_by_either_way_of_settling(scene: Scene) -> None:
    await scene.store.outbox.open_sink()
    job = await scene.submit(4, priority=3)
    await hints(scene)
    claimed = await scene.claim(4)
    now = scene.site.clock.ms
    few = [decided(item, BROKEN, now) for item in claimed[:2]]
    await scene.store.items.settle(few)  # few and alike, as one statement could settle them if they ended
    mixed = [decided(claimed[2], BROKEN, now), decided(claimed[3], OK, now)]
    await scene.store.items.settle(mixed)
    found = await hints(scene)
    assert sorted(item for message in found for item in items_of(message)) == [item_id(job, n) for n in range(3)]
    dues = dict(await scene.site.rows("SELECT id, due_at FROM items WHERE due_at IS NOT NULL"))
    for message in found:
        told = said(message)
        assert (told["handler"], told["priority"]) == ("echo", 3)
        for item in told["items"]:
            assert 0 <= message.created_at + told["wait_ms"] - dues[item] < 1_000  # no sooner than it is due


async def test_a_settlement_that_lost_its_lease_hints_at_nothing(scene: Scene) -> None:
    await scene.store.outbox.open_sink()
    await scene.submit(2)
    await hints(scene)
    one, other = await scene.claim(2)
    now = scene.site.clock.ms
    stale = [decided(item._replace(fence=item.fence - 1), BROKEN, now) for item in (one, other)]
    await scene.store.items.settle(stale[:1])
    await scene.store.items.settle([stale[1], decided(one, OK, now)])
    assert await hints(scene) == []


async def test_what_a_person_retries_or_replays_is_hinted_at(scene: Scene) -> None:
    await scene.store.outbox.open_sink()
    retried, replayed = await scene.ended(WRONG, 2), await scene.ended(WRONG, 60)
    await hints(scene)
    await scene.store.jobs.retry(retried, "ann")
    (message,) = await hints(scene)
    assert said(message) == {"handler": "echo", "priority": 0, "items": [item_id(retried, 0), item_id(retried, 1)]}
    await scene.store.replays.replay("ann", LetterFilter(job_id=replayed), ReplayRequest("ann"))
    found = await hints(scene)
    assert sorted(item for message in found for item in items_of(message)) == [item_id(replayed, n) for n in range(60)]
    assert {len(items_of(message)) for message in found} == {HINT_ITEMS_MAX, 60 - HINT_ITEMS_MAX}


async def test_what_could_not_be_written_leaves_no_hint(scene: Scene) -> None:
    await scene.store.outbox.open_sink()
    opened = await scene.open_job(30, last=False)
    await hints(scene)
    with pytest.raises(NotAllowed, match="no more items can be added to job"):
        await scene.store.submissions.add_items(
            "echo", opened, chunk(31, 30, last=True)
        )  # not right behind what is there
    assert await hints(scene) == []


# relays


async def test_relays_share_the_messages_and_the_oldest_go_first(scene: Scene) -> None:
    await scene.store.outbox.open_sink()
    for _ in range(6):
        await scene.submit()
        await scene.site.advance(1)
    first = await scene.store.outbox.claim(WORK, 2, LEASE_MS)
    both = await asyncio.gather(*[scene.store.outbox.claim(WORK, 2, LEASE_MS) for _ in range(2)])
    others = sorted(message.id for part in both for message in part)
    assert [message.id for message in first] < others
    assert len({message.id for message in first} | set(others)) == 6
    assert [message.age_ms for message in first] == [6_000, 5_000]
    assert await scene.store.outbox.claim(WORK, ALL, LEASE_MS) == []


async def test_a_message_of_a_relay_that_died_goes_to_the_next_under_the_same_id(scene: Scene) -> None:
    await scene.store.outbox.open_sink()
    await scene.submit()
    (lost,) = await scene.store.outbox.claim(WORK, ALL, LEASE_MS)
    await scene.site.advance(LEASE_MS / 1000 + 1)
    (found,) = await scene.store.outbox.claim(WORK, ALL, LEASE_MS)
    assert (found.id, found.payload, found.tries) == (lost.id, lost.payload, 2)
    await scene.store.outbox.mark_published([found.id])
    await scene.store.outbox.mark_published([lost.id])
    await scene.site.advance(LEASE_MS / 1000 + 1)
    assert await scene.store.outbox.claim(WORK, ALL, LEASE_MS) == []


async def test_what_was_not_confirmed_is_due_again_after_its_delay(scene: Scene) -> None:
    await scene.store.outbox.open_sink()
    await scene.submit()
    (message,) = await scene.store.outbox.claim(WORK, ALL, LEASE_MS)
    await scene.store.outbox.mark_failed([message.id], "the broker is away\nsince noon", 5_000)
    assert await scene.site.one("SELECT error_message FROM outbox") == "the broker is away"
    await scene.site.advance(4)
    assert await scene.store.outbox.claim(WORK, ALL, LEASE_MS) == []
    await scene.site.advance(1)
    (again,) = await scene.store.outbox.claim(WORK, ALL, LEASE_MS)
    assert (again.id, again.tries) == (message.id, 2)


async def test_the_lag_is_of_what_is_pending_even_in_a_relays_hands(scene: Scene) -> None:
    assert await scene.store.outbox.lag(WORK) == Lag(0, 0)
    await scene.store.outbox.open_sink()
    await scene.submit()
    await scene.site.advance(3)
    await scene.submit()
    (message, _) = await scene.store.outbox.claim(WORK, ALL, LEASE_MS)
    assert await scene.store.outbox.lag(WORK) == Lag(2, 3_000)
    await scene.store.outbox.mark_published([message.id])
    assert await scene.store.outbox.lag(WORK) == Lag(1, 0)


async def test_webhooks_and_work_do_not_take_each_others_messages(scene: Scene) -> None:
    await scene.store.outbox.open_sink()
    await scene.store.webhooks.add("wh_1", "ann", "https://example.com", ("job.completed",))
    await scene.ended(OK)
    (message,) = await scene.store.outbox.claim(WORK, ALL, LEASE_MS)
    assert message.message_type == "work.ready"
    assert await scene.store.webhooks.create_deliveries() == 1
    assert await scene.store.outbox.lag(WORK) == Lag(1, 0)


async def told_webhooks(scene: Scene, *names: str) -> None:
    """Webhooks of which each has one delivery to make."""
    for name in names:
        await scene.store.webhooks.add(name, "ann", "https://example.com", ("job.completed",))
    await scene.ended(OK)
    await scene.store.webhooks.create_deliveries()


async def test_what_nobody_subscribed_to_is_done_with_and_told_to_no_other_owner(scene: Scene) -> None:
    await scene.store.webhooks.add("wh_1", "ann", "https://example.com", ("job.failed",))
    await scene.store.webhooks.add("wh_2", "bob", "https://example.com", ("job.completed",))
    await scene.ended(OK, owner="ann")
    await scene.ended(WRONG, owner="bob")
    assert [await scene.store.webhooks.create_deliveries() for _ in range(2)] == [2, 0]
    assert await scene.store.webhooks.claim(10, []) == ([], "")


async def test_a_round_of_webhooks_that_has_nothing_left_begins_again(scene: Scene) -> None:
    await told_webhooks(scene, "wh_1", "wh_2")
    dues, _ = await scene.store.webhooks.claim(10, [], past="wh_2")
    assert [due.webhook_id for due in dues] == ["wh_1", "wh_2"]


async def test_a_delivery_that_another_process_has_now_is_not_settled_by_the_first(scene: Scene) -> None:
    await told_webhooks(scene, "wh_1")
    ((old,), _) = await scene.store.webhooks.claim(10, [])
    await scene.site.advance(webhooks.LEASE_MS / 1000 + 1)
    ((new,), _) = await scene.store.webhooks.claim(10, [])
    assert (new.id, new.tries) == (old.id, old.tries + 1)
    assert not await scene.store.webhooks.settle(old, DeliveryResult(False, 410, "gone", gone=True))
    assert (await scene.store.webhooks.show("wh_1", "ann")).disabled_why is None
    await scene.store.webhooks.settle(new, DeliveryResult(True, 200))
    assert [row.last_status for row in await scene.store.webhooks.deliveries("wh_1", "ann")] == [200]


# pruning, sinks


async def test_old_hints_are_pruned_and_messages_of_webhooks_are_kept(scene: Scene) -> None:
    await scene.store.outbox.open_sink()
    await scene.store.webhooks.add("wh_1", "ann", "https://example.com", ("job.completed",))
    await scene.ended(OK)  # published
    await hints(scene)
    await scene.submit()  # left lying
    assert await scene.store.outbox.prune() == 0
    await scene.site.advance(PUBLISHED_AGE_MS / 1000 + 1)
    assert await scene.store.outbox.prune() == 1
    assert await scene.store.outbox.prune() == 0
    await scene.site.advance(HINT_AGE_MS / 1000)
    await scene.submit()
    assert await scene.store.outbox.prune() == 1
    assert await scene.site.rows("SELECT sink FROM outbox ORDER BY id") == [("webhooks",), ("work",)]


async def test_a_closed_sink_drops_what_is_pending_and_takes_no_more(scene: Scene) -> None:
    assert not await scene.store.outbox.is_open()
    for _ in range(2):
        await scene.store.outbox.open_sink()
    assert await scene.store.outbox.is_open()
    await scene.submit(120)
    assert await scene.store.outbox.close_sink() == 3
    assert not await scene.store.outbox.is_open()
    await scene.submit()
    assert await rows(scene) == 0


async def test_every_ready_item_is_published_again_page_by_page(scene: Scene, monkeypatch: Any) -> None:
    monkeypatch.setattr(outbox, "REPUBLISH_ITEMS", 7)
    await scene.store.outbox.open_sink()
    ended, first, other = await scene.ended(OK, 2), await scene.submit(20, priority=5), await scene.submit(7)
    paused, waiting = await scene.submit(2), await scene.submit(1, handler="other")
    await scene.store.jobs.pause(paused, "ann")
    (waits,) = await scene.claim(1, handler="other")
    await scene.settle(waits, BROKEN)
    taken = await scene.claim(3)
    await hints(scene)
    assert await scene.store.outbox.republish() == 24
    found = await hints(scene)
    ready = {item_id(first, n) for n in range(20)} | {item_id(other, n) for n in range(7)}
    assert {item for message in found for item in items_of(message)} == ready - {item.id for item in taken}
    assert {said(message)["priority"] for message in found} == {0, 5}
    assert await scene.store.outbox.republish(item_id(other, 5)) == 1
    assert ended < first < waiting


async def test_a_job_of_no_size_can_be_submitted_while_hints_are_taken(scene: Scene) -> None:
    await scene.store.outbox.open_sink()
    job = await scene.store.submissions.open(new_job(), chunk(0, 0, last=True))
    assert (await scene.job(job.id)).total == 0
