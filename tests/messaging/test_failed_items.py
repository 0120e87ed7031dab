"""Events about items leave for RabbitMQ: to the queues that are bound for them, by their owners, and nowhere else."""

import json

import pytest

from backstay.client import Client
from backstay.clock import Clock, new_random
from backstay.core.limits import Limits
from backstay.messaging.connection import connect_once
from backstay.messaging.messages import Queue, Topology
from backstay.messaging.outbox_relay import USER_MESSAGES, OutboxRelay, reporting_failures
from backstay.messaging.queues import declare
from backstay.observe.bus import Bus
from backstay.store.outbox import MESSAGES
from tests.databases import Site
from tests.messaging.rig import Bystander, Scene, ready, until
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.store.store_rig import WRONG, decided
from tests.store.store_rig import Scene as Office

HOOKS = "SELECT aggregate_id FROM outbox WHERE sink = 'webhooks' AND message_type = 'item.failed'"
PENDING = "SELECT count(*) FROM outbox WHERE status = 'pending' AND sink = 'messages'"


@pytest.mark.slow
async def test_failed_items_reach_the_queues_of_their_owner_and_no_other_place(
    leaping_site: Site, rabbitmq: PrivateRabbitMQ
) -> None:
    topology, bystander = Topology(rabbitmq.prefix()), Bystander(rabbitmq.url)
    anns = Queue(f"{topology.prefix}.anns", topology.events, "ann.item.failed")
    async with connect_once(rabbitmq.url) as connection:
        await declare(connection, topology.exchanges, [*topology.fixed_queues, anns])
    office = Office(leaping_site)
    await office.store.open()
    await office.store.outbox.open_sink(MESSAGES)
    await office.store.webhooks.add("wh_1", "ann", "https://example.com", ("item.failed",))
    for owner in ("ann", "bob"):  # nobody has bound a queue for bob
        await office.submit(150, owner=owner)
    claimed = await office.claim(300)
    await office.store.items.settle([decided(item, WRONG, 0) for item in claimed])
    await office.store.outbox.publish("bob", "mine", "1")
    await leaping_site.advance(10)

    async def all_left() -> bool:
        left = "SELECT count(*) FROM failure_notices"
        return [await leaping_site.one(question) for question in (left, PENDING)] == [0, 0]

    client = Client(office.store, "ann", Limits(), leaping_site.clock, Bus())
    async with Scene(rabbitmq.url, topology).broker() as broker, reporting_failures(client):
        relay = OutboxRelay(office.store.outbox, await ready(broker), Clock(), Bus(), new_random(), USER_MESSAGES)
        relay.start()
        await until(all_left)
        await relay.stop()
    came = await bystander.take_all(anns.name)
    told = [json.loads(message.body) for message in came]
    assert sorted(len(event["items"]) for event in told) == [50, 100]
    assert {
        (event["owner"], message.type, message.headers["x-backstay-owner"])
        for event, message in zip(told, came, strict=True)
    } == {("ann", "item.failed", "ann")}
    [unrouted] = await bystander.take_all(topology.unrouted)
    assert unrouted.type == "mine"
    hooks = await leaping_site.rows(HOOKS)
    assert sorted(row[0] for row in hooks) == sorted(message.message_id for message in came)
    await office.store.close()
