"""A whole worker over a real RabbitMQ: hints out, hints in, and the database as the truth whatever becomes of them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backstay import Backstay, Job
from backstay.core.events import BrokerLost, BrokerWiped, Event
from backstay.messaging.broker_session import Consumer, broker_here, dispatching, topology_of
from tests.messaging.rig import QUICK, Bystander, until
from tests.servers.rabbitmq import PrivateRabbitMQ

NEVER_SECONDS = 10_000.0


class Shop:
    """An application whose one handler keeps count, and can be made to wait."""

    def __init__(self, url: str, broker_url: str, prefix: str) -> None:
        self.backstay = Backstay(url)
        update = {"broker_url": broker_url, "broker_prefix": prefix}
        self.backstay.settings = self.backstay.settings.model_copy(update=update)
        self.events: list[Event] = []
        self.backstay.bus.subscribe(self.events.append)
        self.calls: Counter[Any] = Counter()
        self.order: list[Any] = []
        self.seconds = 0.0
        self.gate = asyncio.Event()
        self.gate.set()

        @self.backstay.handler(name="count")
        async def count(item: Any) -> None:
            self.calls[item] += 1
            await self.gate.wait()
            await asyncio.sleep(self.seconds)
            self.order.append(item)

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def queue(self) -> str:
        return topology_of(self.backstay.settings).work_queue("count").name

    @asynccontextmanager
    async def worker(self, concurrency: int = 10, wait: bool = True) -> AsyncIterator[Consumer]:
        client = await self.backstay.open()
        async with (
            broker_here(self.backstay, client, QUICK) as broker,
            dispatching(self.backstay, client, broker, concurrency) as hints,
            self.backstay.working(concurrency, hints=hints),
        ):
            assert hints is not None
            assert broker is not None
            if wait:
                await until(lambda: hints.alive and broker.publishing)
            yield hints

    async def submit(self, prefix: str, items: int, **options: Any) -> Job:
        return await self.backstay.submit("count", [f"{prefix}{n}" for n in range(items)], **options)


@pytest.fixture
async def shop(sqlite_file_url: str, rabbitmq: PrivateRabbitMQ) -> AsyncIterator[Shop]:
    made = Shop(sqlite_file_url, rabbitmq.url, rabbitmq.prefix())
    yield made
    await made.backstay.close()


@pytest.fixture
def only_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database has one turn at the start and then no more: whatever is done after that was hinted at."""
    monkeypatch.setattr("backstay.engine.hints.DATABASE_SECONDS", NEVER_SECONDS)


async def test_what_is_submitted_is_done_by_its_hints(shop: Shop, only_hints: None, rabbitmq: PrivateRabbitMQ):
    async with shop.worker():
        job = await shop.submit("a", 500)
        await asyncio.wait_for(job.wait(), 30)
        await until(lambda: _drained(rabbitmq, shop))
    assert set(shop.calls.values()) == {1}
    assert len(shop.calls) == 500


async def _drained(rabbitmq: PrivateRabbitMQ, shop: Shop) -> bool:
    return await Bystander(rabbitmq.url).messages(shop.queue) == 0


async def test_priority_9_overtakes_10_000_queued_items_of_priority_0(shop: Shop, only_hints: None):
    shop.seconds = 0.005
    async with shop.worker():
        shop.gate.clear()
        await shop.submit("low", 10_000)
        await until(lambda: shop.calls)
        high = await shop.submit("high", 100, priority=9)
        shop.gate.set()
        await asyncio.wait_for(high.wait(), 60)
        before = sum(item.startswith("low") for item in shop.order)
    assert before < 2_000


async def test_an_item_of_priority_0_is_not_starved_by_hints_of_priority_9(shop: Shop):
    shop.seconds = 0.005
    async with shop.worker(concurrency=5):
        shop.gate.clear()
        await shop.submit("high", 4_000, priority=9)
        await until(lambda: len(shop.calls) == 5)
        await shop.submit("low", 20)
        shop.gate.set()
        await until(lambda: any(item.startswith("low") for item in shop.order))
        high_left = 4_000 - sum(item.startswith("high") for item in shop.order)
    assert high_left > 0


async def test_with_the_broker_away_from_the_start_work_is_done_from_the_database(sqlite_file_url: str):
    shop = Shop(sqlite_file_url, "amqp://guest:canary@127.0.0.1:1/", "away")
    async with shop.worker(wait=False) as hints:
        job = await shop.submit("a", 50)
        await asyncio.wait_for(job.wait(), 30)
        await until(lambda: shop.of(BrokerLost))
        assert not hints.alive
    await shop.backstay.close()
    assert set(shop.calls.values()) == {1}
    assert "canary" not in repr(shop.events)


@pytest.mark.slow
async def test_a_wiped_broker_is_told_again_of_all_that_is_ready(
    shop: Shop, only_hints: None, rabbitmq: PrivateRabbitMQ
):
    async with shop.worker(concurrency=2) as hints:
        shop.gate.clear()
        job = await shop.submit("a", 300)
        await until(lambda: len(shop.calls) == 2)
        await asyncio.to_thread(rabbitmq.wipe)
        await until(lambda: shop.of(BrokerWiped))
        await until(lambda: hints.alive)
        shop.gate.set()
        await asyncio.wait_for(job.wait(), 60)
    assert set(shop.calls.values()) == {1}
    assert len(shop.calls) == 300


async def test_a_consumer_that_dies_between_claim_and_ack_makes_nothing_happen_twice(
    shop: Shop, rabbitmq: PrivateRabbitMQ, monkeypatch: pytest.MonkeyPatch
):
    async def no_ack(_: object) -> None:
        return

    with monkeypatch.context() as patched:
        patched.setattr("backstay.messaging.queues.MessageDelivery.ack", no_ack)
        async with shop.worker():
            job = await shop.submit("a", 200)
            await asyncio.wait_for(job.wait(), 30)
    await until(lambda: _holds(rabbitmq, shop, 4))  # all of them come again
    async with shop.worker():
        await until(lambda: _drained(rabbitmq, shop))
        later = await shop.submit("b", 10)
        await asyncio.wait_for(later.wait(), 30)
    assert set(shop.calls.values()) == {1}


async def _holds(rabbitmq: PrivateRabbitMQ, shop: Shop, messages: int) -> bool:
    return await Bystander(rabbitmq.url).messages(shop.queue) == messages
