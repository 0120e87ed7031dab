"""`backstay relay` as a real process: hints to the broker, webhooks to their owners, metrics and signals."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from backstay.messaging.messages import Topology, Work, read_work
from backstay.store.outbox import MESSAGES, WORK
from tests.cli.test_worker import free_port, scrape
from tests.databases import Site
from tests.messaging.command_rig import Desk
from tests.messaging.rig import until
from tests.server.receiver import receiving
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.store.store_rig import Scene as Shop

KEY = "a key that is at least 32 characters long"
NO_BROKER = {"BACKSTAY_BROKER_URL": ""}


@pytest.fixture
async def shop(sqlite_site: Site):
    made = Shop(sqlite_site)
    await made.store.open()
    yield made
    await made.store.close()


@pytest.fixture
def desk(shop: Shop, rabbitmq: PrivateRabbitMQ, tmp_path: Path) -> Desk:
    return Desk(tmp_path, shop.site.url, rabbitmq.url, Topology(rabbitmq.prefix()))


@pytest.mark.slow
async def test_it_tells_the_broker_what_is_ready_counts_it_and_ends_in_order(desk: Desk, shop: Shop) -> None:
    port, queue = free_port(), desk.topology.work_queue("echo").name
    with desk.start("relay", "--metrics-port", port, "--json") as running:
        await until(shop.store.outbox.is_open)
        job = await shop.submit(60)
        await until(lambda: shop.store.outbox.is_open(MESSAGES))
        assert await shop.store.outbox.publish("ann", "orders.created", "1") == (MESSAGES,)

        async def both_are_there() -> bool:
            return await desk.bystander.messages(queue) == 2

        async def both_are_counted() -> bool:
            found = await asyncio.to_thread(scrape, port)
            return found.get('backstay_messages_published_total{sink="work"}') == 2

        await until(both_are_there)
        [message] = await until(lambda: desk.bystander.take_all(desk.topology.unrouted))
        assert (message.routing_key, message.body) == ("ann.orders.created", b"1")
        await until(both_are_counted)
        shown = await asyncio.to_thread(scrape, port)
        assert shown['backstay_outbox_messages{sink="work"}'] >= 0
        running.send(signal.SIGTERM)
        assert await asyncio.to_thread(running.wait) == 0
        lines = [json.loads(line) for line in running.said.splitlines()]
    works = [read_work(message) for message in await desk.bystander.take_all(queue)]
    assert sum(len(work.items) for work in works if isinstance(work, Work)) == 60
    assert (await shop.store.outbox.lag(WORK)).rows == 0
    assert await shop.states(job) == ["queued"] * 60  # it does no items
    assert {line["event"] for line in lines} == {"broker connected"}


async def test_with_the_services_key_it_tells_webhooks_and_needs_no_broker(desk: Desk, shop: Shop) -> None:
    async with receiving() as receiver:
        await shop.store.webhooks.add("wh_1", "ann", receiver.url, ("job.completed",))
        await shop.ended()
        more = {**NO_BROKER, "BACKSTAY_SECRET_KEY": KEY, "BACKSTAY_INSIDE_HOSTS": receiver.place}
        with desk.start("relay", **more) as running:
            visit = await receiver.wait(1)
            running.send(signal.SIGINT)
            assert await asyncio.to_thread(running.wait) == 0
    assert json.loads(visit.body)["type"] == "job.completed"
    assert not await shop.store.outbox.is_open()


@pytest.mark.slow
async def test_without_a_broker_and_a_key_it_says_what_is_missing(desk: Desk) -> None:
    ran = await asyncio.to_thread(desk.run, "relay", **NO_BROKER)
    said = "give --broker to publish to workers, or set BACKSTAY_SECRET_KEY to send webhooks"
    assert (ran.code, ran.err) == (
        2,
        f"backstay: error: neither a broker nor a secret key for webhooks is set. {said}.\n",
    )


async def test_a_broker_that_is_away_ends_nothing_and_its_password_is_not_told(desk: Desk, shop: Shop) -> None:
    away = {"BACKSTAY_BROKER_URL": "amqp://ann:sesame@127.0.0.1:1/"}
    with desk.start("relay", **away) as running:
        await until(lambda: "broker disconnected" in running.said)
        await shop.submit(1)
        running.send(signal.SIGTERM)
        assert await asyncio.to_thread(running.wait) == 0
        assert "sesame" not in running.said
    assert (await shop.store.outbox.lag(WORK)).rows == 1
