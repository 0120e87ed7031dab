"""The bounds of the dead queue on a real broker: who keeps them, what is told, and queues that are older than them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from backstay import Backstay
from backstay.core.events import DeadMessagesDropped, Event, MessageSetAside, Trouble
from backstay.messaging.broker_session import (
    AGE_LOOKS,
    BOUNDS_SECONDS,
    Consumer,
    DeadQueueBounds,
    broker_here,
    topology_of,
)
from backstay.messaging.connection import connect_once
from backstay.messaging.dead_queue import PREFETCH_MESSAGES
from backstay.messaging.messages import Topology
from backstay.messaging.queues import declare
from tests.databases import Site
from tests.messaging.dead_rig import dead_work, fill, ids, keep_all, replay
from tests.messaging.rig import QUICK, Bystander, Scene, all_known, raw, ready, until, work
from tests.messaging.test_unreadable import UNREADABLE, publish
from tests.servers.rabbitmq import PrivateRabbitMQ

KEPT, DAYS = 3, 2
MANY = PREFETCH_MESSAGES + 10  # more than a replay has in hand


class Shelf:
    """A dead queue that keeps three messages for two days, and processes that look at it."""

    def __init__(self, site: Site, url: str, topology: Topology) -> None:
        self.site = site
        self.url = url
        self.topology = topology
        self.scene = Scene(url, topology)
        self.bystander = Bystander(url)

    async def fill(self, numbers: range, **changed: Any) -> None:
        await fill(self.url, self.topology, [dead_work(self.topology, number, [1]) for number in numbers], **changed)

    async def look(self, processes: int = 1) -> list[tuple[int, str]]:
        """So many processes look, one after the other; what they told."""
        store = await self.site.open_store()
        self.scene.events.clear()
        async with self.scene.broker() as broker:
            await ready(broker)
            for _ in range(processes):
                await DeadQueueBounds(store, broker).run_once()
        return [(event.messages, event.bound) for event in self.scene.of(DeadMessagesDropped)]

    async def kept(self) -> list[int]:
        return ids(await self.bystander.take_all(self.topology.dead))


@pytest.fixture(params=["classic", "quorum"])
def shelf(sqlite_site: Site, rabbitmq: PrivateRabbitMQ, request: pytest.FixtureRequest) -> Shelf:
    return Shelf(sqlite_site, rabbitmq.url, Topology(rabbitmq.prefix(), request.param, KEPT, DAYS))


@pytest.fixture
def classic(sqlite_site: Site, rabbitmq: PrivateRabbitMQ) -> Shelf:
    return Shelf(sqlite_site, rabbitmq.url, Topology(rabbitmq.prefix(), "classic", KEPT, DAYS))


def days_ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


async def test_a_queue_that_is_older_than_its_bounds_keeps_the_newest_and_is_as_declared(shelf: Shelf) -> None:
    """It was declared by a version without bounds, and may not be declared with other arguments."""
    before = Topology(shelf.topology.prefix, shelf.topology.kind)
    await fill(shelf.url, before, [dead_work(before, number, [1]) for number in range(250)])
    assert await shelf.look() == [(247, "count")]
    assert shelf.scene.of(Trouble) == []
    async with connect_once(shelf.url) as connection:
        assert await declare(connection, shelf.topology.exchanges, shelf.topology.fixed_queues) == []
    assert await shelf.kept() == [247, 248, 249]


async def test_within_its_bounds_nothing_is_dropped(shelf: Shelf) -> None:
    await shelf.fill(range(KEPT), timestamp=days_ago(DAYS - 1))
    assert await shelf.look() == []
    assert await shelf.kept() == [0, 1, 2]


async def test_both_bounds_are_told_of(shelf: Shelf) -> None:
    await shelf.fill(range(4), timestamp=days_ago(DAYS + 1))
    await shelf.fill(range(4, 6))
    assert await shelf.look() == [(3, "count"), (1, "age")]
    assert await shelf.kept() == [4, 5]


async def test_many_processes_look_and_one_of_them_drops_until_the_next_minute(classic: Shelf) -> None:
    await classic.fill(range(5))
    assert await classic.look(processes=3) == [(2, "count")]
    await classic.fill(range(5, 7))
    assert await classic.look() == []
    await classic.site.advance(BOUNDS_SECONDS)
    assert await classic.look() == [(2, "count")]
    assert await classic.kept() == [4, 5, 6]


async def test_the_age_is_looked_at_a_hundred_times_in_the_life_of_a_message(classic: Shelf) -> None:
    await classic.fill(range(1))
    assert await classic.look() == []
    await classic.bystander.take_all(classic.topology.dead)
    await classic.fill(range(1, 2), timestamp=days_ago(DAYS + 1))
    await classic.site.advance(BOUNDS_SECONDS)
    assert await classic.look() == []
    await classic.site.advance(DAYS * 86_400 / AGE_LOOKS)
    assert await classic.look() == [(1, "age")]


async def test_during_a_replay_nothing_is_dropped_and_the_next_look_makes_up_for_it(classic: Shelf) -> None:
    await classic.fill(range(MANY))

    async def meanwhile(window: Any) -> Any:
        assert await classic.bystander.messages(classic.topology.dead) in range(MANY)  # some are in hand
        assert await classic.look() == []
        return await keep_all(window)

    await replay(classic.url, classic.topology, meanwhile)
    await classic.site.advance(BOUNDS_SECONDS)
    assert await classic.look() == [(MANY - KEPT, "count")]


@pytest.mark.parametrize("properties", UNREADABLE.values(), ids=UNREADABLE)
async def test_a_message_that_cannot_be_read_is_counted_like_others(classic: Shelf, properties: bytes) -> None:
    await classic.fill(range(2))
    for body in (b"one too many", b"too old"):
        await publish(classic.url, classic.topology.dead, "", body, properties)
    await classic.fill(range(2, 3), timestamp=days_ago(DAYS + 1))
    await classic.fill(range(4, 5))
    assert await classic.look() == [(3, "count"), (2, "age")]
    assert await classic.kept() == [4]


async def test_bad_messages_that_fill_the_queue_are_in_no_way_of_good_ones(classic: Shelf) -> None:
    scene, topology = classic.scene, classic.topology
    store = await classic.site.open_store()
    async with scene.broker() as broker:
        consumer = Consumer(broker, lambda: ["ocr"], 10, all_known)
        consumer.start()
        await ready(broker)
        for number in range(20):
            good = work(topology, number, [number])
            await broker.publish(good if number % 2 else raw(good, "{"))
        await until(lambda: sorted(consumer.take("ocr", 20)) == list(range(1, 20, 2)))
        await until(lambda: len(scene.of(MessageSetAside)) == 10)
        await DeadQueueBounds(store, broker).run_once()
        assert sorted(consumer.take("ocr", 20)) == list(range(1, 20, 2))
        await consumer.stop()
    assert [event.messages for event in scene.of(DeadMessagesDropped)] == [10 - KEPT]
    assert await classic.kept() == [14, 16, 18]


@pytest.fixture
async def app(sqlite_file_url: str, rabbitmq: PrivateRabbitMQ) -> AsyncIterator[Backstay]:
    made = Backstay(sqlite_file_url)
    update = {"broker_url": rabbitmq.url, "broker_prefix": rabbitmq.prefix(), "broker_dead_messages": 2}
    made.settings = made.settings.model_copy(update=update)
    yield made
    await made.close()


async def test_a_process_with_a_broker_keeps_the_bounds_of_its_settings_soon_after_its_start(app: Backstay) -> None:
    events: list[Event] = []
    app.bus.subscribe(events.append)
    url, topology = app.settings.broker_url, topology_of(app.settings)
    assert url is not None
    await fill(url, topology, [dead_work(topology, number, [1]) for number in range(7)])
    async with broker_here(app, await app.open(), QUICK):
        await until(lambda: any(isinstance(event, DeadMessagesDropped) for event in events))
    assert ids(await Bystander(url).take_all(topology.dead)) == [5, 6]
