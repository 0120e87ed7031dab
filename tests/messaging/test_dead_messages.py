"""What the database makes of dead messages that are replayed: retries, hints told again, and what stays."""

from collections.abc import AsyncIterator

import pytest

from backstay.core.ids import item_id, show_item
from backstay.core.states import ItemState
from backstay.messaging.dead_queue import REASONS_MAX, Choice, DeadMessages
from backstay.messaging.messages import REASON_HEADER, Incoming, OutgoingMessage, Topology, Work, read_work
from backstay.store.outbox import WORK
from tests.databases import Site
from tests.messaging.dead_rig import dead_callback, dead_work, fill, ids, poison, replay
from tests.messaging.rig import Bystander
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.store.store_rig import WRONG
from tests.store.store_rig import Scene as Shop


class Morgue:
    """A shop with jobs of all kinds, and a dead queue that has messages about them."""

    def __init__(self, shop: Shop, url: str, topology: Topology) -> None:
        self.shop = shop
        self.url = url
        self.topology = topology
        self.bystander = Bystander(url)

    async def fill(self, *dead: OutgoingMessage) -> None:
        await fill(self.url, self.topology, dead)

    def work(self, number: int, *items: int) -> OutgoingMessage:
        return dead_work(self.topology, number, items)

    async def replay(self, choice: Choice | None = None, who: str | None = "ada") -> dict[str, int]:
        judge = DeadMessages(self.shop.store, self.topology, choice or Choice(), who)
        await replay(self.url, self.topology, judge)
        return {word: number for word, number in judge.counts.items() if number}

    async def state(self, item: int) -> ItemState:
        return (await self.shop.store.item_views.by_ids([item]))[item].state

    async def dead(self) -> list[int]:
        return ids(await self.bystander.take_all(self.topology.dead))

    async def told_again(self) -> list[Work]:
        messages = await self.bystander.take_all(self.topology.work_queue("echo").name)
        return [work for work in map(read_work, messages) if isinstance(work, Work)]


@pytest.fixture
async def morgue(site: Site, rabbitmq: PrivateRabbitMQ) -> AsyncIterator[Morgue]:
    shop = Shop(site)
    await shop.store.open()
    yield Morgue(shop, rabbitmq.url, Topology(rabbitmq.prefix()))
    await shop.store.close()


async def test_a_message_of_a_failed_item_becomes_one_retry_however_often_it_is_replayed(morgue: Morgue) -> None:
    item = item_id(await morgue.shop.ended(WRONG), 0)
    await morgue.shop.store.outbox.open_sink()
    await morgue.fill(morgue.work(1, item), morgue.work(2, item))
    assert await morgue.replay() == {"seen": 2, "chosen": 2, "replayed": 1}
    assert await morgue.state(item) is ItemState.QUEUED
    assert await morgue.dead() == []
    assert (await morgue.shop.store.outbox.lag(WORK)).rows == 1  # the retry's own hint
    (row,) = await morgue.shop.store.replays.page("ann", None, 10)
    assert (row.by, row.items) == ("ada", 1)
    await morgue.fill(morgue.work(3, item))
    assert await morgue.replay() == {"seen": 1, "chosen": 1, "published": 1}


async def test_a_message_of_a_queued_item_is_told_again_to_its_handlers_queue(morgue: Morgue) -> None:
    job = await morgue.shop.submit(3)
    queued = [item_id(job, position) for position in range(3)]
    await morgue.fill(morgue.work(7, *queued))
    assert await morgue.replay() == {"seen": 1, "chosen": 1, "published": 3}
    assert await morgue.told_again() == [Work("7", "echo", tuple(queued))]
    assert await morgue.dead() == []


async def test_an_item_that_is_done_or_being_done_needs_nothing(morgue: Morgue) -> None:
    done = item_id(await morgue.shop.ended(), 0)
    running = item_id(await morgue.shop.submit(1), 0)
    await morgue.shop.claim(1)
    await morgue.fill(morgue.work(1, done, running))
    assert await morgue.replay() == {"seen": 1, "chosen": 1, "done": 2}
    assert await morgue.dead() == []
    assert await morgue.state(done) is ItemState.SUCCEEDED
    assert await morgue.bystander.messages(morgue.topology.work_queue("echo").name) in (-1, 0)


async def test_poison_stays_with_its_reason_and_so_does_what_names_no_item_that_there_is(morgue: Morgue) -> None:
    queued = item_id(await morgue.shop.submit(1), 0)
    unknown = item_id(999, 9)
    await morgue.fill(poison(morgue.topology, 1), morgue.work(2, unknown), morgue.work(3, queued, unknown))
    said = {"seen": 3, "chosen": 3, "poison": 1, "unknown": 2, "published": 1}
    assert await morgue.replay() == said
    first, second, third = await morgue.bystander.take_all(morgue.topology.dead)
    assert (first.body, first.headers["x-backstay-reason"]) == (b"{", "is not JSON")
    assert read_work(second) == Work("2", "echo", (unknown,))
    assert read_work(third) == Work("3", "echo", (unknown,))


async def test_reasons_are_counted_and_no_more_of_them_than_can_be_told(morgue: Morgue) -> None:
    judge = DeadMessages(morgue.shop.store, morgue.topology, Choice(), None)
    await judge([Incoming(b"{", str(n), "work", headers={REASON_HEADER: f"reason {n % 25}"}) for n in range(50)])
    assert len(judge.reasons) == REASONS_MAX + 1
    assert (judge.reasons["reason 3"], judge.reasons["other reasons"]) == (2, 10)


async def test_of_one_item_only_that_one_is_replayed_and_the_rest_of_its_message_stays(morgue: Morgue) -> None:
    job = await morgue.shop.ended(WRONG, items=3)
    one, two, three = (item_id(job, position) for position in range(3))
    await morgue.fill(morgue.work(1, one), morgue.work(2, one, two, three), poison(morgue.topology, 3))
    assert await morgue.replay(Choice(two)) == {"seen": 3, "chosen": 1, "left": 2, "replayed": 1}
    assert [await morgue.state(item) for item in (one, two, three)] == ["failed", "queued", "failed"]
    first, second, third = await morgue.bystander.take_all(morgue.topology.dead)
    assert [read_work(first), read_work(second)] == [Work("1", "echo", (one,)), Work("2", "echo", (one, three))]
    assert third.body == b"{"


async def test_a_reason_chooses_by_what_backstay_or_the_broker_wrote_down(morgue: Morgue) -> None:
    job = await morgue.shop.ended(WRONG, items=2)
    first, second = item_id(job, 0), item_id(job, 1)
    unknown = dead_work(morgue.topology, 2, [second], headers={"x-backstay-reason": "names an unknown item 1-1"})
    await morgue.fill(morgue.work(1, first), unknown)
    assert await morgue.replay(Choice(reason="Unknown item")) == {"seen": 2, "chosen": 1, "left": 1, "replayed": 1}
    assert await morgue.state(second) is ItemState.QUEUED
    assert await morgue.dead() == [1]


async def test_what_cannot_be_retried_now_stays(morgue: Morgue) -> None:
    job = await morgue.shop.ended(WRONG)
    item = item_id(job, 0)
    await morgue.shop.site.rows(f"UPDATE items SET archive_id = 1 WHERE id = {item}")
    await morgue.fill(morgue.work(1, item))
    assert await morgue.replay() == {"seen": 1, "chosen": 1, "refused": 1}
    assert await morgue.dead() == [1]


async def test_a_callback_is_read_again_whether_it_has_a_type_or_not(morgue: Morgue) -> None:
    item = item_id(await morgue.shop.submit(1), 0)
    name = show_item(item)
    dead = [
        dead_callback(morgue.topology, at, task, kind)
        for at, task, kind in (
            (1, f"{name}/1", "callback"),
            (2, f"{name}/2", ""),
            (3, "77-0/1", "callback"),
            (4, "none", "callback"),
        )
    ]
    await morgue.fill(*dead)
    assert await morgue.replay(Choice(item), who=None) == {"seen": 4, "chosen": 2, "left": 2, "callbacks": 2}
    assert await morgue.replay(Choice(reason="tag")) == {"seen": 4, "chosen": 4, "callbacks": 3, "poison": 1}
    again = await morgue.bystander.take_all(morgue.topology.callbacks)
    assert ids(again) == [1, 2, 3]
    assert {message.type for message in again} == {"callback"}
    assert [message.body for message in again] == [one.body for one in dead[:3]]
    assert await morgue.dead() == [4]


async def test_a_dry_run_counts_and_changes_nothing(morgue: Morgue) -> None:
    failed = item_id(await morgue.shop.ended(WRONG), 0)
    queued = item_id(await morgue.shop.submit(1), 0)
    await morgue.fill(morgue.work(1, failed), morgue.work(2, queued), poison(morgue.topology, 3))
    said = {"seen": 3, "chosen": 3, "replayed": 1, "published": 1, "poison": 1}
    assert await morgue.replay(who=None) == said
    assert await morgue.state(failed) is ItemState.FAILED
    assert await morgue.dead() == [1, 2, 3]
    assert await morgue.bystander.messages(morgue.topology.work_queue("echo").name) in (-1, 0)
