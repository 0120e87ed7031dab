"""The work relay with a real RabbitMQ: every row leaves, and the oldest first."""

import asyncio
import json

import pytest

from backstay.core.events import BrokerLost, Event, MessagesPublished, OutboxLag
from backstay.core.ids import item_id
from backstay.messaging.messages import Topology, Work, read_work
from backstay.messaging.outbox_relay import BATCH_MESSAGES, report_lag
from backstay.observe.metrics import Metrics
from backstay.store.outbox import WEBHOOKS, WORK
from tests.databases import Site
from tests.messaging.relay_rig import Office
from tests.messaging.rig import until
from tests.servers.fault_proxy import FaultProxy
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.store.store_rig import Scene as Shop

MANY = 4 * BATCH_MESSAGES + 3


@pytest.fixture
async def office(leaping_site: Site, rabbitmq: PrivateRabbitMQ) -> Office:
    return Office(leaping_site, await leaping_site.open_store(), rabbitmq.url, Topology(rabbitmq.prefix()))


@pytest.mark.slow
async def test_every_row_leaves_once_and_the_oldest_first(office: Office) -> None:
    await office.add(1, MANY)
    async with office.relay():
        await office.all_left()
    delivered = await office.delivered()
    assert [message.message_id for message in delivered] == [str(number) for number in range(1, MANY + 1)]
    assert read_work(delivered[6]) == Work("7", "echo", (7,))
    assert set(await office.tries()) == {1}
    assert sum(event.messages for event in office.events if isinstance(event, MessagesPublished)) == MANY


async def test_what_a_submit_tells_of_comes_out_at_the_broker(office: Office) -> None:
    shop = Shop(office.site)
    await shop.store.open()
    await office.store.outbox.open_sink()
    async with office.relay():
        job = await shop.submit(120)
        await office.all_left()
    await shop.store.close()
    works = [read_work(message) for message in await office.delivered()]
    assert [len(work.items) for work in works if isinstance(work, Work)] == [50, 50, 20]
    named = [item for work in works if isinstance(work, Work) for item in work.items]
    assert named == [item_id(job, position) for position in range(120)]


async def test_a_hint_that_is_to_wait_goes_to_a_queue_that_is_not_too_slow_for_it(office: Office) -> None:
    payload = """'{"handler": "echo", "priority": 0, "first": 1, "count": 1, "wait_ms": 1000000}'"""
    await office.add(1, 1, payload)
    await office.site.rows(f"UPDATE outbox SET created_at = {office.site.clock.now_ms()}")
    async with office.relay() as broker:
        await office.all_left()
        (waiting,) = await office.bystander.take_all(broker.topology.wait(900_000))
    assert 30_000 < json.loads(waiting.body)["rest_ms"] <= 100_000  # what it has waited here is over


@pytest.mark.slow
async def test_two_relays_at_once_publish_each_row_once(office: Office) -> None:
    await office.add(1, MANY)
    async with office.relay(), office.relay():
        await office.all_left()
    delivered = [int(message.message_id) for message in await office.delivered()]
    assert sorted(delivered) == list(range(1, MANY + 1))


async def test_one_bad_row_is_not_in_the_way_of_the_others(office: Office) -> None:
    await office.add(1, 1, "'no JSON'")
    await office.add(2, 2, """'{"handler": "echo"}'""")
    await office.add(3, 50)
    async with office.relay():
        await until(lambda: _left(office, 2))
    assert len(await office.delivered()) == 48
    said = await office.site.rows("SELECT error_message FROM outbox WHERE status = 'pending'")
    assert said == [("the message cannot be read",)] * 2


@pytest.mark.slow
async def test_a_relay_that_ends_in_order_leaves_nothing_half_done(office: Office) -> None:
    await office.add(1, MANY)
    async with office.relay() as broker:
        await until(lambda: len(office.events) > 2 and broker.publishing)
    published = {row[0] for row in await office.site.rows("SELECT id FROM outbox WHERE status = 'published'")}
    assert {int(message.message_id) for message in await office.delivered()} == published


@pytest.mark.slow
async def test_while_the_broker_is_away_nothing_is_claimed_and_then_all_leaves_oldest_first(
    office: Office, rabbitmq: PrivateRabbitMQ
) -> None:
    await office.add(1, MANY)
    async with FaultProxy.of(rabbitmq.url) as proxy:
        url = proxy.url(office.url)
        await proxy.cut()
        async with office.relay(url):
            await until(lambda: sum(isinstance(event, BrokerLost) for event in office.events) >= 4)
            assert set(await office.tries()) == {0}
            await proxy.pass_on()
            await office.all_left()
    delivered = [int(message.message_id) for message in await office.delivered()]
    assert list(dict.fromkeys(delivered)) == list(range(1, MANY + 1))


@pytest.mark.slow
async def test_a_broker_that_goes_away_in_the_middle_costs_some_copies_and_no_order(
    office: Office, rabbitmq: PrivateRabbitMQ
) -> None:
    rows = 10 * BATCH_MESSAGES
    await office.add(1, rows)
    async with FaultProxy.of(rabbitmq.url) as proxy:
        held = asyncio.Event()

        def hold(event: Event) -> None:
            """Nothing moves any more when the first batch is marked: at most two more are in hand, so rows are left."""
            if isinstance(event, MessagesPublished) and not held.is_set():
                proxy.hold()
                held.set()

        office.bus.subscribe(hold)
        async with office.relay(proxy.url(office.url)):
            await held.wait()
            await proxy.cut()
            assert await office.pending() >= rows - 3 * BATCH_MESSAGES
            await until(lambda: any(isinstance(event, BrokerLost) for event in office.events))
            await proxy.pass_on()
            await office.all_left()
    delivered = [int(message.message_id) for message in await office.delivered()]
    firsts = list(dict.fromkeys(delivered))
    assert firsts == list(range(1, rows + 1))
    assert len(delivered) - rows <= 3 * BATCH_MESSAGES
    assert len([told for told in office.troubles() if told.where == "relay"]) <= 3


async def test_the_lag_is_told_and_shown_as_a_metric(office: Office) -> None:
    metrics = Metrics()
    office.bus.subscribe(metrics)
    await office.add(1, 7)
    for sink in (WORK, WEBHOOKS):
        await report_lag(office.client, sink)
    lags = {event.sink: event for event in office.events if isinstance(event, OutboxLag)}
    assert lags[WORK].messages == 7
    assert lags[WEBHOOKS] == OutboxLag(WEBHOOKS, 0, 0)
    shown = metrics.registry.get_sample_value
    assert shown("backstay_outbox_messages", {"sink": WORK}) == 7
    assert shown("backstay_outbox_oldest_seconds", {"sink": WORK}) == lags[WORK].age_ms / 1000 > 0


async def _left(office: Office, rows: int) -> bool:
    return await office.pending() == rows and bool(office.events)
