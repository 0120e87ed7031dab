"""Messages whose properties the driver cannot read, or cannot write again: in nobody's way, and never lost."""

import struct
from typing import Any

import pytest
from pamqp.commands import Basic
from typing_extensions import override

from backstay.core.events import BrokerLost, MessageSetAside
from backstay.messaging.broker_session import Consumer
from backstay.messaging.connection import UNREAD_HEADER, connect_once
from backstay.messaging.messages import REASON_HEADER, OutgoingMessage, Topology, read_work
from backstay.messaging.queues import open_channel
from tests.messaging.dead_rig import dead_work, fill, keep_all, replay
from tests.messaging.remote_rig import message_work
from tests.messaging.rig import Bystander, Scene, all_known, raw, ready, until, work
from tests.servers.rabbitmq import PrivateRabbitMQ

HEADERS, MESSAGE_ID, TIMESTAMP = 1 << 13, 1 << 7, 1 << 6


def table(name: bytes, value: bytes) -> bytes:
    entry = bytes([len(name)]) + name + value
    return struct.pack(">HI", HEADERS, len(entry)) + entry


DEEP = b"V"
for _ in range(5_000):
    DEEP = b"F" + struct.pack(">I", len(DEEP) + 2) + b"\1k" + DEEP

UNREADABLE = {
    "an id that is not UTF-8": struct.pack(">H", MESSAGE_ID) + b"\2\xff\xfe",
    "a time in nanoseconds": struct.pack(">HQ", TIMESTAMP, 1_794_832_582_000_000_000),
    "the name of a header that is not UTF-8": table(b"\xff", b"t\1"),
    "the time in a header": table(b"at", b"T" + b"\xff" * 8),
    "headers in headers": table(b"k", DEEP),
}
UNWRITABLE = {
    "a text that is not UTF-8": table(b"k", b"S" + struct.pack(">I", 2) + b"\xff\xfe"),
    "the same in a list": table(b"k", b"A" + struct.pack(">I", 7) + b"S" + struct.pack(">I", 2) + b"\xff\xfe"),
    "more than fits beside a reason": table(b"k", b"S" + struct.pack(">I", 131_000) + b"x" * 131_000),
    "a number that is too large": table(b"k", b"d" + struct.pack(">d", 1e300)),
}


class AsTheyAre(Basic.Properties):
    """Properties that are written as given."""

    def __init__(self, raw: bytes) -> None:
        super().__init__(message_id="x")
        self._as_given = raw

    @override
    def marshal(self) -> bytes:
        return self._as_given


async def publish(url: str, exchange: str, key: str, body: bytes, properties: bytes) -> None:
    async with connect_once(url) as connection:
        channel = await open_channel(connection, confirms=True)
        made = AsTheyAre(properties)
        answer = await channel.basic_publish(body, exchange=exchange, routing_key=key, properties=made, mandatory=True)
        assert isinstance(answer, Basic.Ack)


@pytest.mark.parametrize("properties", [*UNREADABLE.values(), *UNWRITABLE.values()], ids=[*UNREADABLE, *UNWRITABLE])
async def test_a_hint_with_such_properties_is_set_aside_and_the_next_one_is_read(
    rabbitmq: PrivateRabbitMQ, properties: bytes
):
    scene = Scene(rabbitmq.url, Topology(rabbitmq.prefix()))
    async with scene.broker() as broker:
        consumer = Consumer(broker, lambda: ["ocr"], 10, all_known)
        consumer.start()
        await ready(broker)
        await publish(rabbitmq.url, scene.topology.work, "ocr", b"{", properties)
        await broker.publish(work(scene.topology, 1, [7]))
        await until(lambda: consumer.take("ocr", 1) == [7] and scene.of(MessageSetAside))
        await consumer.stop()
    [dead] = await Bystander(rabbitmq.url).take_all(scene.topology.dead)
    assert dead.headers[REASON_HEADER] == "has no type 'work'"
    assert not scene.of(BrokerLost)
    if properties in UNREADABLE.values():
        assert bytes(dead.headers[UNREAD_HEADER]) == properties


@pytest.mark.parametrize("properties", [*UNREADABLE.values(), *UNWRITABLE.values()], ids=[*UNREADABLE, *UNWRITABLE])
async def test_such_a_message_in_the_dead_queue_does_not_end_a_replay(rabbitmq: PrivateRabbitMQ, properties: bytes):
    topology = Topology(rabbitmq.prefix())
    await fill(rabbitmq.url, topology, [dead_work(topology, 1, [1])])
    await publish(rabbitmq.url, topology.dead, "", b"kept", properties)
    await fill(rabbitmq.url, topology, [dead_work(topology, 2, [2])])
    await replay(rabbitmq.url, topology, keep_all)
    kept = await Bystander(rabbitmq.url).take_all(topology.dead)
    assert [kept[0].message_id, kept[1].body, kept[2].message_id] == ["1", b"kept", "2"]


async def test_a_callback_needs_none_of_its_properties(sqlite_file_url: str, tmp_path: Any, rabbitmq: PrivateRabbitMQ):
    async with message_work(sqlite_file_url, tmp_path, rabbitmq) as remote:
        asked = await remote.ask()
        body = b'{"v":1,"task":"%s","tag":"%s","status":"succeeded","result":5}' % (
            asked.body["task"].encode(),
            asked.body["tag"].encode(),
        )
        place = asked.body["callback"]
        await publish(rabbitmq.url, place["exchange"], place["routing_key"], body, UNREADABLE["a time in nanoseconds"])
        await remote.ended("succeeded")


@pytest.mark.parametrize("name", ['"' + "x" * 256 + '"', '"\\ud800"', '{"a": 1}', "7"])
async def test_a_hint_that_has_to_wait_under_a_name_that_cannot_be_published_is_set_aside(
    rabbitmq: PrivateRabbitMQ, name: str
):
    scene = Scene(rabbitmq.url, Topology(rabbitmq.prefix()))
    model = work(scene.topology, 1, [7])
    said = f'{{"v": 1, "id": {name}, "handler": "ocr", "items": ["0-7"], "rest_ms": 1000}}'
    async with scene.broker() as broker:
        consumer = Consumer(broker, lambda: ["ocr"], 10, all_known)
        consumer.start()
        await ready(broker)
        await broker.publish(raw(model, said))
        await until(lambda: scene.of(MessageSetAside))
        await consumer.stop()
    assert scene.of(MessageSetAside)[0].reason == "its id is not plain text"


async def test_a_dead_queue_that_was_deleted_by_hand_is_made_again_by_the_first_that_belongs_there(
    rabbitmq: PrivateRabbitMQ,
):
    scene, bystander = Scene(rabbitmq.url, Topology(rabbitmq.prefix())), Bystander(rabbitmq.url)
    topology = scene.topology
    async with scene.broker() as broker:
        await ready(broker)
        for queue in (topology.dead, topology.wait(2_000)):
            await bystander.delete(queue)
        assert await broker.publish(OutgoingMessage(topology.dead, "", b"poison", "1", "work"))
        assert await broker.publish(work(topology, 2, [2], wait_ms=2_000))
    assert [message.body for message in await bystander.take_all(topology.dead)] == [b"poison"]
    assert [read_work(message).items for message in await bystander.take_all(topology.wait(2_000))] == [(2,)]  # type: ignore[union-attr]


async def test_a_consumer_that_comes_while_the_connection_opens_costs_no_connection(rabbitmq: PrivateRabbitMQ):
    scene = Scene(rabbitmq.url, Topology(rabbitmq.prefix()))
    async with scene.broker() as broker:
        await until(lambda: broker._preparing.locked())
        consumer = Consumer(broker, lambda: ["ocr"], 10, all_known)
        consumer.start()
        await ready(broker)
        await consumer.stop()
    assert not scene.of(BrokerLost)
