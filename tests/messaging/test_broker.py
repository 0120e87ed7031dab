"""Publishing with a real RabbitMQ: confirms, what nobody wants, waits, and what was declared."""

from dataclasses import replace

import pytest

from backstay.core.errors import BrokerUnreachable, UsageError
from backstay.core.events import BrokerConnected, BrokerLost, BrokerWiped, Trouble
from backstay.messaging.connection import check_url, connect_once, node_urls, show_url
from backstay.messaging.messages import Queue, Topology, read_work
from backstay.messaging.queues import declare
from tests.messaging.rig import PATIENCE_SECONDS, QUICK, Bystander, Scene, ready, until, work
from tests.servers.rabbitmq import PrivateRabbitMQ, free_port


@pytest.fixture
def scene(rabbitmq: PrivateRabbitMQ) -> Scene:
    # A loaded machine may take longer than the short time that the watchdog's own tests give a publish.
    return Scene(rabbitmq.url, Topology(rabbitmq.prefix()), replace(QUICK, publish_seconds=PATIENCE_SECONDS))


@pytest.fixture
def bystander(rabbitmq: PrivateRabbitMQ) -> Bystander:
    return Bystander(rabbitmq.url)


async def test_what_is_confirmed_is_in_the_queue(scene: Scene, bystander: Bystander):
    topology = scene.topology
    async with scene.broker() as broker:
        await ready(broker)
        assert await broker.publish_many([work(topology, n, [n], priority=n % 10) for n in range(300)]) == [True] * 300
        taken = await bystander.take_all(topology.work_queue("ocr").name)
    first = read_work(taken[0])
    assert len(taken) == 300
    assert [message.priority for message in taken] == sorted((n % 10 for n in range(300)), reverse=True)
    assert first.items == (9,)  # type: ignore[union-attr]
    assert (taken[0].message_id, taken[0].type) == ("9", "work")


async def test_a_message_that_no_queue_wants_is_not_confirmed(scene: Scene):
    async with scene.broker() as broker:
        await ready(broker)
        stray = work(scene.topology, 1, [1])
        stray = type(stray)(scene.topology.callbacks, "nobody", stray.body, "1", "work")
        both = [work(scene.topology, 2, [2]), stray]
        assert await broker.publish_many(both) == [True, False]
        assert broker.publishing


@pytest.mark.slow
async def test_a_delay_of_300_seconds_does_not_hold_up_one_of_2_seconds_behind_it(scene: Scene, bystander: Bystander):
    topology = scene.topology
    queue = topology.work_queue("ocr").name
    async with scene.broker() as broker:
        await ready(broker)
        assert await broker.publish_many([work(topology, 0, [0])])  # makes the queue
        await bystander.take_all(queue)
        for number, wait_ms in enumerate((300_000, 2_000, 300_000, 1_000), 1):
            assert await broker.publish_many([work(topology, number, [number], wait_ms=wait_ms)]) == [True]
        assert await bystander.messages(queue) == 0
        await until(lambda: _holds(bystander, queue, 2), 5)
        assert [message.message_id for message in await bystander.take_all(queue)] == ["4", "2"]
        assert await bystander.messages(topology.wait(300_000)) == 2


async def _holds(bystander: Bystander, queue: str, messages: int) -> bool:
    return await bystander.messages(queue) == messages


async def test_all_of_the_topology_is_declared_when_the_broker_is_there(scene: Scene, bystander: Bystander):
    async with scene.broker() as broker:
        await ready(broker)
        for queue in scene.topology.fixed_queues:
            assert await bystander.messages(queue.name) == 0
    assert {event.role for event in scene.of(BrokerConnected)} == {"publish", "consume"}
    assert not scene.of(BrokerLost)
    assert not scene.of(BrokerWiped)


async def test_quorum_queues_take_the_same_messages(rabbitmq: PrivateRabbitMQ, bystander: Bystander):
    scene = Scene(rabbitmq.url, Topology(rabbitmq.prefix(), "quorum"))
    queue = scene.topology.work_queue("ocr").name
    async with scene.broker() as broker:
        await ready(broker)
        assert await broker.publish_many([work(scene.topology, n, [n], priority=5) for n in range(50)]) == [True] * 50
        assert await broker.publish(work(scene.topology, 50, [50], wait_ms=1_000))
        await until(lambda: _holds(bystander, queue, 51), 10)


async def test_a_queue_with_other_arguments_is_told_of_and_used_as_it_is(scene: Scene, rabbitmq: PrivateRabbitMQ):
    topology = scene.topology
    other = Queue(topology.dead, topology.dead, "", {"x-max-length": 10})
    async with connect_once(rabbitmq.url) as connection:
        await declare(connection, topology.exchanges, [other])
    async with scene.broker() as broker:
        await ready(broker)
    told = [event.message for event in scene.of(Trouble)]
    assert len(told) == 1
    assert topology.dead in told[0]


async def test_with_the_broker_away_it_starts_and_says_so_and_never_names_the_password():
    scene = Scene("amqp://guest:pass-word-canary@127.0.0.1:1/", Topology())
    async with scene.broker() as broker:
        await until(lambda: len(scene.of(BrokerLost)) >= 4)
        assert not broker.alive
        assert not broker.publishing
        assert await broker.publish_many([work(scene.topology, 1, [1])]) == [False]
    assert "canary" not in repr(scene.events)


async def test_a_wrong_password_is_a_broker_that_is_away(rabbitmq: PrivateRabbitMQ):
    scene = Scene(rabbitmq.url.replace("guest:guest", "guest:canary"), Topology())
    async with scene.broker():
        lost = await until(lambda: scene.of(BrokerLost))
    assert "ACCESS_REFUSED" in lost[0].reason or "refused" in lost[0].reason.lower()
    assert "canary" not in repr(scene.events)


async def test_a_vhost_that_is_not_there_is_told_of_in_plain_words(rabbitmq: PrivateRabbitMQ):
    with pytest.raises(BrokerUnreachable, match="refuses the vhost 'nowhere': it does not exist, or the account"):
        async with connect_once(f"{rabbitmq.url}nowhere"):
            pass


def test_a_url_may_name_several_nodes():
    url = "amqps://me:c,omma@one,two:5673,[::1]:5674/work?heartbeat=5"
    check_url(url)
    assert node_urls(url) == [
        "amqps://me:c,omma@one/work?heartbeat=5",
        "amqps://me:c,omma@two:5673/work?heartbeat=5",
        "amqps://me:c,omma@[::1]:5674/work?heartbeat=5",
    ]
    assert show_url(url) == "amqps://one:5671,two:5673,[::1]:5674/work"


@pytest.mark.parametrize(
    "url",
    [
        "amqp://a,,b/",
        "amqp://a,/",
        "amqp://a, b/",
        "amqp://a:x,b/",
        "amqp://a:0,b/",
        "amqp://a;amqp://b",
        "amqp://a/,amqp://b/",
        "amqp://me:canary@a/,amqp://me:canary@b/",
        "amqp://a?x=amqp://b",
    ],
)
def test_a_list_of_nodes_that_is_written_otherwise_is_refused_and_not_repeated(url: str):
    with pytest.raises(UsageError, match="the broker's URL is not valid") as refused:
        check_url(url)
    assert "host1:5672,host2:5672" in (refused.value.hint or "")
    assert "canary" not in f"{refused.value.message} {refused.value.hint}"


async def test_with_one_node_away_the_other_is_used(rabbitmq: PrivateRabbitMQ):
    url = rabbitmq.url.replace("@", f"@127.0.0.1:{free_port()},")
    async with connect_once(url) as connection:
        assert not connection.is_closed
    scenes = [Scene(url, Topology(rabbitmq.prefix())) for _ in range(5)]  # each begins at one of the two
    for scene in scenes:
        async with scene.broker() as broker:
            await ready(broker)


async def test_with_all_nodes_away_each_is_named():
    ports = (free_port(), free_port())
    with pytest.raises(BrokerUnreachable) as told:
        async with connect_once(f"amqp://me:canary@127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/"):
            raise AssertionError
    assert [f"amqp://127.0.0.1:{port}/" in told.value.message for port in ports] == [True, True]
    assert "canary" not in told.value.message
