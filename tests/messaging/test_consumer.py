"""The consumer on a real RabbitMQ: what is in hand, what is acknowledged when, and where poison goes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from backstay.core.events import MessageSetAside, Trouble
from backstay.core.ids import item_id
from backstay.messaging.broker import Broker
from backstay.messaging.broker_session import Consumer, FindItems
from backstay.messaging.messages import REASON_HEADER, Topology
from tests.messaging.rig import Bystander, Scene, raw, ready, until, work
from tests.servers.rabbitmq import PrivateRabbitMQ

ITEMS = [item_id(7, position) for position in range(100)]


@pytest.fixture
def scene(rabbitmq: PrivateRabbitMQ) -> Scene:
    return Scene(rabbitmq.url, Topology(rabbitmq.prefix()))


@pytest.fixture
def bystander(rabbitmq: PrivateRabbitMQ) -> Bystander:
    return Bystander(rabbitmq.url)


async def known(items: Sequence[int]) -> set[int]:
    return set(items) & set(ITEMS)


@asynccontextmanager
async def consuming(
    scene: Scene, concurrency: int = 10, known: FindItems = known
) -> AsyncIterator[tuple[Broker, Consumer]]:
    async with scene.broker() as broker:
        consumer = Consumer(broker, lambda: ["ocr"], concurrency, known)
        consumer.start()
        await ready(broker)
        try:
            yield broker, consumer
        finally:
            await consumer.stop()


async def test_a_message_is_acknowledged_when_all_of_its_items_are_done(scene: Scene, bystander: Bystander):
    queue = scene.topology.work_queue("ocr").name
    async with consuming(scene) as (broker, consumer):
        await broker.publish(work(scene.topology, 1, ITEMS[:3]))
        await until(lambda: consumer.take("ocr", 10) == ITEMS[:3])
        assert consumer.take("ocr", 2) == ITEMS[:2]
        consumer.mark_done(ITEMS[:2])
        assert consumer.take("ocr", 10) == ITEMS[2:3]
    assert await until(lambda: bystander.messages(queue)) == 1  # it came back, for one item was not done
    async with consuming(scene) as (_, consumer):
        await until(lambda: consumer.take("ocr", 10))
        consumer.mark_done(ITEMS[:3])
    assert await bystander.messages(queue) == 0


async def test_no_more_than_the_concurrency_is_in_hand_and_the_highest_priority_comes_first(scene: Scene):
    async with consuming(scene, concurrency=5) as (broker, consumer):
        await broker.publish_many([work(scene.topology, n, ITEMS[n : n + 1]) for n in range(20)])
        await until(lambda: len(consumer.take("ocr", 100)) == 5)
        await broker.publish(work(scene.topology, 50, ITEMS[50:51], priority=9))
        assert len(consumer.take("ocr", 100)) == 5
        consumer.mark_done(ITEMS[:1])
        await until(lambda: consumer.take("ocr", 1) == ITEMS[50:51])


async def test_a_copy_of_a_message_names_its_items_once(scene: Scene, bystander: Bystander):
    async with consuming(scene) as (broker, consumer):
        for _ in range(3):
            await broker.publish(work(scene.topology, 1, ITEMS[:2]))
        await broker.publish(work(scene.topology, 2, ITEMS[2:3]))  # behind them, so that they are all there with it
        await until(lambda: consumer.take("ocr", 10) == ITEMS[:3])
        consumer.mark_done(ITEMS[:3])
    assert await bystander.messages(scene.topology.work_queue("ocr").name) == 0


@pytest.mark.slow
async def test_what_came_too_early_waits_for_the_rest(scene: Scene):
    async with consuming(scene) as (broker, consumer):
        await broker.publish(work(scene.topology, 1, ITEMS[:1], wait_ms=3_000))  # by way of 2 s and 1 s
        began = scene.means.clock.monotonic()
        await until(lambda: consumer.take("ocr", 1))
        assert scene.means.clock.monotonic() - began >= 2.9


POISON = {
    "is not JSON": b"\xff{",
    "is not a JSON object": b"[1]",
    "its version is not 1": b'{"v": 2, "handler": "ocr", "items": ["7-1"]}',
    "does not name items": b'{"v": 1, "handler": "ocr", "items": []}',
    "does not name a handler": b'{"v": 1, "items": ["7-1"]}',
    "'seven' is not an item id": b'{"v": 1, "handler": "ocr", "items": ["seven"]}',
    "is for the handler 'other', not 'ocr'": b'{"v": 1, "handler": "other", "items": ["7-1"]}',
}


async def test_poison_of_every_kind_ends_in_the_dead_queue_once_and_with_its_reason(scene: Scene, bystander: Bystander):
    topology = scene.topology
    async with consuming(scene) as (broker, consumer):
        model = work(topology, 0, ITEMS[:1])
        sent = [raw(model, body, message_id=f"p{n}") for n, body in enumerate(POISON.values())]
        sent.append(replace(model, message_id="p9", type="nonsense"))
        assert all(await broker.publish_many(sent))
        await until(lambda: len(scene.of(MessageSetAside)) == len(sent))
        await broker.publish(work(topology, 1, ITEMS[:1]))
        await until(lambda: consumer.take("ocr", 10) == ITEMS[:1])  # nothing is in the way of good ones
    dead = await bystander.take_all(topology.dead)
    reasons = {message.message_id: message.headers[REASON_HEADER] for message in dead}
    assert len(dead) == len(sent)
    assert {reasons[f"p{n}"] for n in range(len(POISON))} == POISON.keys()
    assert reasons["p9"] == "its type is 'nonsense', not 'work'"
    assert {message.body for message in dead} == {*POISON.values(), model.body}


async def test_items_that_never_were_are_set_aside_and_those_that_others_have_are_not(
    scene: Scene, bystander: Bystander
):
    unknown = [item_id(9_999, position) for position in range(2)]
    async with consuming(scene) as (broker, consumer):
        await broker.publish_many([work(scene.topology, 1, unknown), work(scene.topology, 2, ITEMS[:2])])
        await until(lambda: len(consumer.take("ocr", 10)) == 4)
        for items in (unknown[:1], ITEMS[:2], unknown[1:]):  # in several claims
            consumer.mark_done(items, missed=items)
        await until(lambda: scene.of(MessageSetAside))
    dead = await bystander.take_all(scene.topology.dead)
    assert [message.headers[REASON_HEADER] for message in dead] == ["there is no item 9999-0"]
    assert await bystander.messages(scene.topology.work_queue("ocr").name) == 0


@pytest.mark.slow
async def test_what_nobody_can_look_up_is_kept_until_somebody_can(scene: Scene, bystander: Bystander):
    answers: list[bool] = []

    async def known_later(items: Sequence[int]) -> set[int]:
        answers.append(len(answers) >= 2)
        if not answers[-1]:
            raise ConnectionError("the database is away")
        return set()

    async with consuming(scene, known=known_later) as (broker, consumer):
        await broker.publish(work(scene.topology, 1, ITEMS[:1]))
        await until(lambda: consumer.take("ocr", 1))
        consumer.mark_done(ITEMS[:1], missed=ITEMS[:1])
        await until(lambda: scene.of(MessageSetAside))
    assert answers == [False, False, True]
    assert len(scene.of(Trouble)) == 2
    assert await bystander.messages(scene.topology.dead) == 1


async def test_a_message_held_for_too_long_is_left_to_the_database(scene: Scene, bystander: Bystander, monkeypatch):
    monkeypatch.setattr("backstay.engine.hints.HELD_SECONDS_MAX", 0.2)
    async with consuming(scene) as (broker, consumer):
        await broker.publish(work(scene.topology, 1, ITEMS[:1]))
        await until(lambda: consumer.take("ocr", 1))
        await until(lambda: not consumer.take("ocr", 1))
    assert await bystander.messages(scene.topology.work_queue("ocr").name) == 0


async def test_a_handler_that_comes_later_is_consumed_too(scene: Scene):
    handlers = ["ocr"]
    async with scene.broker() as broker:
        consumer = Consumer(broker, lambda: handlers, 10, known)
        consumer.start()
        await ready(broker)
        handlers.append("lane:1")
        await broker.publish(work(scene.topology, 1, ITEMS[:1], "lane:1"))
        await until(lambda: consumer.take("lane:1", 1))
        await consumer.stop()


@pytest.mark.slow
async def test_a_hundred_handlers_share_a_channel_for_a_broker_allows_only_so_many(scene: Scene):
    handlers = [f"lane:{number}" for number in range(100)]
    async with scene.broker() as broker:
        consumer = Consumer(broker, lambda: handlers, 10, known)
        consumer.start()
        await ready(broker)
        assert len({subscription.channel for subscription in broker._subscriptions}) == 1
        await broker.publish(work(scene.topology, 1, ITEMS[:1], handlers[-1]))
        await until(lambda: consumer.take(handlers[-1], 1))
        await consumer.stop()
