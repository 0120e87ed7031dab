"""Vhosts as operators make them: with another default type of queue, without room, or not for this account."""

import json

import pytest

from backstay.core.errors import BrokerUnreachable, NotAllowed
from backstay.messaging.connection import connect_once
from backstay.messaging.messages import Topology
from backstay.messaging.queues import declare
from tests.messaging.rig import Bystander, Scene, ready, until, work
from tests.servers.rabbitmq import PrivateRabbitMQ

ALL, NONE = ".*", "^$"
DEFINITIONS = {
    "users": [{"name": "visitor", "password": "canary", "tags": []}],
    "vhosts": [
        {"name": "raft", "metadata": {"default_queue_type": "quorum", "description": "", "tags": []}},
        {"name": "full"},
    ],
    "permissions": [
        {"user": user, "vhost": vhost, "configure": rights, "write": rights, "read": ALL}
        for user, vhost, rights in (
            ("guest", "raft", ALL),
            ("guest", "full", ALL),
            ("visitor", "full", NONE),
        )
    ],
    "parameters": [
        {"vhost": "full", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 3}},
    ],
}


@pytest.fixture(scope="module")
def node(rabbitmq: PrivateRabbitMQ) -> PrivateRabbitMQ:
    file = rabbitmq.folder / "definitions.json"
    file.write_text(json.dumps(DEFINITIONS))
    rabbitmq.control("import_definitions", str(file))
    return rabbitmq


async def opens(url: str) -> bool:
    """Definitions arrive one after the other."""
    try:
        async with connect_once(url):
            return True
    except BrokerUnreachable:
        return False


async def test_where_queues_are_quorum_unless_they_say_otherwise_ours_say_classic(node: PrivateRabbitMQ):
    scene = Scene(node.vhost("raft"), Topology(node.prefix()))
    await until(lambda: opens(scene.means.url))
    async with scene.broker() as broker:
        await ready(broker)
        sent = [work(scene.topology, n, [n], priority=n) for n in range(10)]
        assert await broker.publish_many(sent) == [True] * 10
        taken = await Bystander(scene.means.url).take_all(scene.topology.work_queue("ocr").name)
    assert [message.priority for message in taken] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]


async def test_a_vhost_that_is_not_there_is_named(node: PrivateRabbitMQ):
    with pytest.raises(BrokerUnreachable, match="refuses the vhost 'nowhere': it does not exist, or"):
        async with connect_once(node.vhost("nowhere")):
            raise AssertionError("it was opened")


async def test_a_queue_that_the_broker_refuses_is_told_of_with_the_brokers_own_reason(node: PrivateRabbitMQ):
    async def refused() -> str:
        topology = Topology(node.prefix())
        try:
            async with connect_once(node.vhost("full")) as connection:
                await declare(connection, topology.exchanges, topology.queues(["ocr"]))
        except NotAllowed as error:
            return str(error)
        return ""  # the limit has not arrived yet

    await until(lambda: opens(node.vhost("full")))
    said = await until(refused)
    assert said.startswith("the broker refuses the queue ")
    assert "queue limit in vhost 'full' (3) is reached" in said


async def test_an_account_without_a_right_is_told_which_one(node: PrivateRabbitMQ):
    url = node.vhost("full").replace("guest:guest", "visitor:canary")
    await until(lambda: opens(url))
    with pytest.raises(NotAllowed, match=r"lacks a permission: ACCESS_REFUSED .* refused for user 'visitor'") as caught:
        async with connect_once(url) as connection:
            await declare(connection, Topology(node.prefix()).exchanges, ())
    assert "canary" not in str(caught.value)
