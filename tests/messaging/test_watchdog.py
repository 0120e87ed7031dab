"""What the watchdog notices of a real RabbitMQ, and that messages come again afterwards."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from backstay.core.events import BrokerConnected, BrokerLost, BrokerWiped, Trouble
from backstay.messaging.broker import Broker
from backstay.messaging.broker_session import Consumer
from backstay.messaging.messages import Exchange, Queue, Topology
from backstay.messaging.queues import declare
from tests.messaging.rig import QUICK, Bystander, Scene, all_known, ready, until, work
from tests.servers.fault_proxy import FaultProxy
from tests.servers.rabbitmq import PrivateRabbitMQ

NEVER_SECONDS = 600.0


@pytest.fixture
def bystander(rabbitmq: PrivateRabbitMQ) -> Bystander:
    return Bystander(rabbitmq.url)


@pytest.fixture
async def proxy(rabbitmq: PrivateRabbitMQ) -> AsyncIterator[FaultProxy]:
    async with FaultProxy.of(rabbitmq.url) as made:
        yield made


@pytest.fixture
def scene(rabbitmq: PrivateRabbitMQ, proxy: FaultProxy) -> Scene:
    return Scene(proxy.url(rabbitmq.url), Topology(rabbitmq.prefix()))


class Republished:
    def __init__(self, failures: int = 0) -> None:
        self.times = 0
        self.failures = failures

    async def __call__(self) -> None:
        self.times += 1
        if self.times <= self.failures:
            raise ConnectionError("the database is away")


@asynccontextmanager
async def consuming(scene: Scene, wiped: Republished | None = None) -> AsyncIterator[tuple[Broker, Consumer]]:
    async with scene.broker(wiped) as broker:
        consumer = Consumer(broker, lambda: ["ocr"], 10, all_known)
        consumer.start()
        await ready(broker)
        try:
            yield broker, consumer
        finally:
            await consumer.stop()


async def comes_through(scene: Scene, broker: Broker, consumer: Consumer, item: int) -> None:
    """A message goes out and comes in."""
    await until(lambda: broker.publish(work(scene.topology, item, [item])))
    await until(lambda: came_in(consumer, item))


def came_in(consumer: Consumer, item: int) -> bool:
    """What else is in hand is done too, so that there is room."""
    items = consumer.take("ocr", 1_000)
    consumer.mark_done(items)
    return item in items


async def test_a_queue_that_was_deleted_is_made_again_and_consumed(scene: Scene, bystander: Bystander):
    wiped = Republished()
    async with consuming(scene, wiped) as (broker, consumer):
        await bystander.delete(scene.topology.work_queue("ocr").name)
        await until(lambda: scene.of(BrokerLost))
        await ready(broker)
        await comes_through(scene, broker, consumer, 1)
        assert "ocr" in scene.of(BrokerLost)[0].reason
        await until(lambda: wiped.times == 1)  # what was in the queue is gone


async def test_a_queue_that_somebody_deleted_and_made_again_gets_its_consumer_back(scene: Scene, bystander: Bystander):
    queue = scene.topology.work_queue("ocr")
    async with consuming(scene) as (broker, consumer):
        await comes_through(scene, broker, consumer, 1)
        await bystander.replace(queue)
        lost = await until(lambda: scene.of(BrokerLost))
        assert lost[0].reason.endswith(f"{queue.name} is gone")
        await ready(broker)
        await comes_through(scene, broker, consumer, 2)


async def test_a_consumer_that_is_registered_and_gets_nothing_while_messages_wait_is_started_again(
    scene: Scene, bystander: Bystander
):
    queue = scene.topology.work_queue("ocr")
    for_one = replace(queue, arguments={**queue.arguments, "x-single-active-consumer": True})
    async with AsyncExitStack() as first:
        await first.enter_async_context(bystander.hogging(scene.topology, for_one))
        async with consuming(scene) as (broker, consumer):
            assert all(await broker.publish_many([work(scene.topology, n, [n]) for n in range(5)]))
            assert await bystander.depth(queue.name) == (4, 2)  # it is registered, and behind the other one
            lost = await until(lambda: scene.of(BrokerLost))
            assert (lost[0].role, lost[0].reason) == (
                "consume",
                f"messages wait in {queue.name}, but none is delivered",
            )
            assert consumer.take("ocr", 10) == []
            await first.aclose()
            await until(lambda: sorted(consumer.take("ocr", 10)) == list(range(5)))


async def test_an_exchange_that_was_deleted_is_a_broker_that_was_wiped(scene: Scene, bystander: Bystander):
    wiped = Republished(failures=2)
    async with consuming(scene, wiped) as (broker, consumer):
        await bystander.delete_exchange(scene.topology.work)
        await until(lambda: scene.of(BrokerWiped))
        await until(lambda: wiped.times == 3)  # it is tried until it succeeds
        assert len(scene.of(Trouble)) == 2
        await comes_through(scene, broker, consumer, 1)


async def test_a_first_start_is_no_wipe_but_one_where_something_was_expected_is(scene: Scene):
    fresh, expecting = Republished(), Republished()
    async with scene.broker(expecting, expected=True) as broker:
        await ready(broker)
        await until(lambda: expecting.times)
    async with scene.broker(fresh) as broker:
        await ready(broker)
    async with scene.broker(fresh, expected=True) as broker:
        await ready(broker)
    assert (expecting.times, fresh.times) == (1, 0)


async def test_a_wipe_is_not_forgotten_when_the_connection_breaks_before_all_is_declared(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    wiped, failed = Republished(), list[str]()

    async def declare_half(connection: Any, exchanges: Iterable[Exchange], queues: Iterable[Queue]) -> Any:
        if failed:
            return await declare(connection, exchanges, queues)
        failed.append("once")
        await declare(connection, exchanges, ())
        raise ConnectionError("it broke")

    monkeypatch.setattr("backstay.messaging.broker.declare", declare_half)
    async with scene.broker(wiped, expected=True) as broker:
        await ready(broker)
        await until(lambda: wiped.times)
    assert wiped.times == 1


@pytest.mark.slow
async def test_a_connection_whose_bytes_vanish_is_replaced(scene: Scene, proxy: FaultProxy):
    async with consuming(scene) as (broker, consumer):
        await comes_through(scene, broker, consumer, 1)
        proxy.black_hole()
        await until(lambda: not broker.alive and not broker.publishing)
        assert await broker.publish_many([work(scene.topology, 2, [2])]) == [False]
        await proxy.pass_on()
        await ready(broker)
        await comes_through(scene, broker, consumer, 3)
    assert "the broker did not answer in time" in {event.reason for event in scene.of(BrokerLost)}


@pytest.mark.slow
async def test_a_connection_that_only_hears_is_replaced(scene: Scene, proxy: FaultProxy):
    async with consuming(scene) as (broker, consumer):
        proxy.half_open()
        await until(lambda: not broker.alive and not broker.publishing)
        await proxy.pass_on()
        await ready(broker)
        await comes_through(scene, broker, consumer, 1)


@pytest.mark.slow
async def test_a_publish_that_hangs_ends_unconfirmed_and_by_itself_is_reason_to_start_again(
    rabbitmq: PrivateRabbitMQ, proxy: FaultProxy
):
    scene = Scene(proxy.url(rabbitmq.url), Topology(rabbitmq.prefix()), replace(QUICK, every_seconds=NEVER_SECONDS))
    async with consuming(scene) as (broker, consumer):
        proxy.hold()
        answers = await broker.publish_many([work(scene.topology, n, [n]) for n in range(100)])
        assert answers == [False] * 100
        lost = await until(lambda: scene.of(BrokerLost))
        assert [(event.role, event.reason) for event in lost] == [
            ("publish", "100 messages were not confirmed in 1.5 s")
        ]
        await proxy.pass_on()
        await ready(broker)
        await comes_through(scene, broker, consumer, 200)


async def test_connections_that_are_cut_come_back(scene: Scene, proxy: FaultProxy):
    async with consuming(scene) as (broker, consumer):
        await comes_through(scene, broker, consumer, 1)
        await broker.publish(work(scene.topology, 2, [2]))
        await until(lambda: consumer.take("ocr", 10) == [2])
        await proxy.cut()
        await until(lambda: not broker.alive and not broker.publishing)
        assert consumer.take("ocr", 10) == []  # nobody could acknowledge it any more
        await proxy.pass_on()
        await ready(broker)
        await until(lambda: consumer.take("ocr", 10) == [2])  # it is delivered again
    assert len(scene.of(BrokerConnected)) == 4


@pytest.mark.slow
async def test_a_slow_network_is_no_reason_to_start_again(scene: Scene, proxy: FaultProxy):
    proxy.delay(0.02)
    async with consuming(scene) as (broker, consumer):
        for number in range(5):
            await comes_through(scene, broker, consumer, number)
    assert not scene.of(BrokerLost)


@pytest.mark.slow
async def test_a_broker_killed_and_restarted_still_has_what_it_confirmed(rabbitmq: PrivateRabbitMQ, scene: Scene):
    topology, wiped = scene.topology, Republished()
    async with scene.broker(wiped) as broker:
        await ready(broker)
        assert all(await broker.publish_many([work(topology, n, [n]) for n in range(50)]))
        rabbitmq.kill()
        await until(lambda: not broker.publishing and not broker.alive)
        rabbitmq.restart()
        await ready(broker)
        assert await Bystander(rabbitmq.url).messages(topology.work_queue("ocr").name) == 50
    assert wiped.times == 0


@pytest.mark.slow
async def test_a_broker_that_was_wiped_is_declared_anew_and_told_of(rabbitmq: PrivateRabbitMQ, scene: Scene):
    wiped = Republished()
    async with consuming(scene, wiped) as (broker, consumer):
        rabbitmq.wipe()
        await until(lambda: wiped.times)
        await ready(broker)
        await comes_through(scene, broker, consumer, 1)


async def test_a_broker_that_hangs_is_left_until_it_goes_on(rabbitmq: PrivateRabbitMQ, scene: Scene):
    async with consuming(scene) as (broker, consumer):
        rabbitmq.hang()
        try:
            await until(lambda: not broker.alive and not broker.publishing)
        finally:
            rabbitmq.go_on()
        await ready(broker)
        await comes_through(scene, broker, consumer, 1)
