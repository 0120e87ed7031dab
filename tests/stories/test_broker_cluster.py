"""A cluster of three RabbitMQ nodes under load: each in turn is killed, or cut off from the others, and comes back.

Hints, requests to remote workers, their callbacks and users' messages flow all along, and no process of Backstay is
started again.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from subprocess import Popen
from typing import Any

import aio_pika
import pytest
from aiormq.abc import DeliveredMessage
from aiormq.channel import Channel
from pamqp.commands import Basic
from pamqp.common import FieldTable

from backstay import Job
from backstay.client import Options
from backstay.clock import cancel_until_ended
from backstay.core.errors import BrokerUnreachable
from backstay.core.events import BrokerWiped, Trouble
from backstay.messaging.broker import Broker
from backstay.messaging.broker_session import Consumer
from backstay.messaging.connection import connect_once, take_turns
from backstay.messaging.messages import Queue, Topology
from backstay.messaging.queues import declare, open_channel
from tests.databases import Leaping, Site
from tests.messaging.rig import Bystander, Scene, all_known, ready, work
from tests.servers.rabbitmq_cluster import ClusterNode, RabbitMQCluster
from tests.stories.stage import Stage, by_ref, until
from tests.stories.test_broker_storms import SUCCESSES

pytestmark = pytest.mark.slow

SECRET = "s" * 32
KINDS = ("askable", "unaskable")
ITEMS = 3  # of each kind, in each job
WORKERS = 2
CONCURRENCY = 16
PAUSE_SECONDS = 0.3
CONFIRM_SECONDS = 10.0
BACK_SECONDS = 180.0
UNSENT = "SELECT id FROM outbox WHERE status = 'pending'"
QUORUM: FieldTable = {"x-queue-type": "quorum"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RabbitMQCluster]:
    with RabbitMQCluster() as made:
        yield made


@dataclass
class Grader:
    """A remote worker of somebody else. It keeps its answers by the request's id, and goes on at another node."""

    url: str
    exchange: str
    answers: dict[str, bytes] = field(default_factory=dict)
    graded: Counter[int] = field(default_factory=Counter)  # how often it did the work of a payload

    async def live(self) -> None:
        for node in take_turns(self.url, Random(1)):
            with suppress(BrokerUnreachable, TimeoutError):
                async with connect_once(node) as connection:
                    await self._grade_all(await open_channel(connection, confirms=True))
            await asyncio.sleep(PAUSE_SECONDS)

    async def _grade_all(self, channel: Channel) -> None:
        await channel.exchange_declare(self.exchange, exchange_type="direct", durable=True)
        await channel.queue_declare(self.exchange, durable=True, arguments=QUORUM)
        await channel.queue_bind(self.exchange, self.exchange, "essays")
        requests: asyncio.Queue[DeliveredMessage] = asyncio.Queue()
        await channel.basic_consume(self.exchange, requests.put)
        while not channel.is_closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_SECONDS):
                    request = await requests.get()
                await self._answer(channel, request)

    async def _answer(self, channel: Channel, request: DeliveredMessage) -> None:
        asked = json.loads(request.body)
        properties = Basic.Properties(message_type="callback", delivery_mode=2)
        place = asked["callback"]
        async with asyncio.timeout(CONFIRM_SECONDS):
            await channel.basic_publish(self._grade(asked), **place, properties=properties)  # until it is confirmed
        await channel.basic_ack(request.delivery_tag or 0)

    def _grade(self, asked: dict[str, Any]) -> bytes:
        if asked["id"] not in self.answers:
            self.graded[asked["payload"]] += 1
            told = {"v": 1, "task": asked["task"], "tag": asked["tag"], "status": "succeeded"}
            self.answers[asked["id"]] = json.dumps({**told, "result": asked["payload"]}).encode()
        return self.answers[asked["id"]]


@dataclass
class Fleet:
    """Workers, a relay and a remote worker on a cluster, and what is submitted and published while they work."""

    stage: Stage
    cluster: RabbitMQCluster
    topology: Topology
    grader: Grader
    processes: list["Popen[str]"] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    essays: int = 0
    orders: int = 0
    came: set[int] = field(default_factory=set)

    @property
    def own_queue(self) -> str:
        """A user's queue of the messages that users publish."""
        return f"{self.topology.prefix}-orders"

    async def start(self) -> None:
        environment = {
            "BACKSTAY_BROKER_URL": self.cluster.url,
            "BACKSTAY_BROKER_PREFIX": self.topology.prefix,
            "BACKSTAY_BROKER_QUEUES": "quorum",
            "BACKSTAY_SECRET_KEY": SECRET,
            "BACKSTAY_LOG_LEVEL": "debug",  # it says what was claimed, and how
        }
        relay = await self.connected(self.stage.relay(**environment))  # it declares what the others expect
        workers = [self.stage.worker(CONCURRENCY, **environment) for _ in range(WORKERS)]
        self.processes = [relay, *[await self.connected(worker) for worker in workers]]
        async with await aio_pika.connect(self.cluster.nodes[0].url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(self.own_queue, durable=True, arguments=QUORUM)
            await queue.bind(self.topology.messages, "*.orders.created")

    async def connected(self, process: "Popen[str]") -> "Popen[str]":
        for role in ("consume", "publish"):
            await self.stage.said(process, f'"role": "{role}"', BACK_SECONDS)
        return process

    async def flow(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.send_some()
            await asyncio.sleep(PAUSE_SECONDS)

    async def send_some(self) -> list[Job]:
        jobs = [await self.stage.submit(kind, range(ITEMS)) for kind in KINDS]
        essays = range(self.essays, self.essays + ITEMS)
        self.essays = essays.stop
        items = [{"exchange": self.grader.exchange, "routing_key": "essays", "payload": n} for n in essays]
        jobs.append(await self.stage.client.submit("remote", items, Options(), json.dumps, lambda: None))
        order = self.orders
        self.orders += 1
        assert await self.stage.backstay.publish("orders.created", order) == ("messages",)
        self.jobs += jobs
        return jobs

    async def goes_on(self) -> None:
        """What is sent from now on is done, and brought by messages."""
        before = self.named()
        for job in await self.send_some():
            await self.succeeds(job)
        orders = self.orders

        async def all_there() -> bool:
            return self.named() > before and await self.depth(self.own_queue) >= orders

        await until(all_there, "messages come and go", BACK_SECONDS)

    async def succeeds(self, job: Job) -> None:
        ended = await job.wait(timeout_seconds=BACK_SECONDS)
        assert ended.succeeded == ITEMS, await self.stage.results(job)

    async def depth(self, queue: str) -> int:
        return await Bystander(self.cluster.url).messages(queue)

    def named(self) -> int:
        """How many items workers claimed because a message named them."""
        said = self.stage.spoken("worker")
        return sum(line["items"] for line in said if line["event"] == "items claimed" and line["named"])

    def lost(self, process: "Popen[str]") -> set[str]:
        """The connections that a process has lost so far."""
        said = [line for line in self.stage.log_of(process) if line["event"] == "broker disconnected"]
        return {line["role"] for line in said}

    async def check(self) -> None:
        for job in self.jobs:
            await self.succeeds(job)
        assert [process.poll() for process in self.processes] == [None] * len(self.processes)
        assert await Site(self.stage.url, Leaping()).rows(SUCCESSES) == [(1, ITEMS * len(self.jobs))]
        charges = by_ref(await self.stage.bill())
        assert {len(paid) for paid in charges.values()} == {1}, "no call was made again"
        assert self.grader.graded == Counter(range(self.essays))
        await self.check_queues()

    async def check_queues(self) -> None:
        async def all_used() -> bool:
            queues = [self.topology.work_queue(kind).name for kind in KINDS]
            return not any([await self.depth(queue) for queue in (*queues, self.topology.callbacks)])

        async def all_sent() -> bool:
            return await Site(self.stage.url, Leaping()).rows(UNSENT) == []

        await until(all_sent, "every message has left the outbox", BACK_SECONDS)
        await until(all_used, "every message was acknowledged", BACK_SECONDS)
        assert await self.depth(self.topology.dead) == 0
        assert await self.depth(self.topology.unrouted) == 0
        await until(self.has_all_orders, "every order came", BACK_SECONDS)
        listed = json.loads(self.cluster.nodes[0].control("list_queues", "name", "type", "--formatter", "json"))
        ours = {queue["type"] for queue in listed if queue["name"].startswith(f"{self.topology.prefix}.")}
        assert ours == {"quorum"}
        events = {line["event"] for process in self.processes for line in self.stage.log_of(process)}
        assert "broker lost its data" not in events

    async def has_all_orders(self) -> bool:
        came = await Bystander(self.cluster.url).take_all(self.own_queue)
        self.came |= {int(order.body) for order in came}
        return self.came == set(range(self.orders))


@asynccontextmanager
async def fleet(url: str, cluster: RabbitMQCluster, folder: Path) -> AsyncIterator[Fleet]:
    prefix = cluster.prefix()
    async with Stage(url, folder) as stage:
        made = Fleet(stage, cluster, Topology(prefix, "quorum"), Grader(cluster.url, f"{prefix}-grading"))
        await made.start()
        grading, stop = asyncio.create_task(made.grader.live()), asyncio.Event()
        flowing = asyncio.create_task(made.flow(stop))
        try:
            await made.goes_on()
            yield made
            stop.set()
            await flowing
            await made.check()
        finally:
            await cancel_until_ended([grading, flowing])


@asynccontextmanager
async def away(begin: Callable[[], None], end: Callable[[], None]) -> AsyncIterator[None]:
    await asyncio.to_thread(begin)
    try:
        yield
    finally:
        await asyncio.to_thread(end)


async def test_each_node_dies_or_is_cut_off_and_comes_back_and_nothing_is_lost_or_done_twice(
    postgres_url: str, cluster: RabbitMQCluster, tmp_path: Path
) -> None:
    async with fleet(postgres_url, cluster, tmp_path) as running:
        for node in cluster.nodes:
            async with away(node.kill, node.restart):
                await running.goes_on()
        assert [running.lost(process) for process in running.processes] == [{"consume", "publish"}] * 3
        for node in cluster.nodes:
            async with away(node.cut_off, node.join_again):
                await running.goes_on()
        await running.goes_on()


async def test_a_channel_that_a_dead_leader_refuses_is_replaced(cluster: RabbitMQCluster) -> None:
    here, leader, _ = cluster.nodes
    topology = Topology(cluster.prefix(), "quorum")
    await declare_at(leader, topology)
    async with Scene(here.url, topology).broker() as broker:
        await ready(broker)
        async with away(leader.kill, leader.restart):
            await until(partial(broker.publish, work(topology, 1, [1])), "a message goes to the new leader")


async def test_a_classic_queue_of_a_dead_node_is_named_and_stops_nothing_else(cluster: RabbitMQCluster) -> None:
    other, home, _ = cluster.nodes
    topology = Topology(cluster.prefix())
    await declare_at(home, topology, [topology.work_queue("ocr")])
    await declare_at(other, topology, [topology.work_queue("echo")])
    scene = Scene(cluster.url, topology)
    async with scene.broker(expected=True) as broker:
        consumer = Consumer(broker, lambda: ["ocr", "echo"], 10, all_known)
        consumer.start()
        await ready(broker)
        assert await broker.publish(work(topology, 1, [1]))
        async with away(home.kill, home.restart):
            await until(partial(says, scene, topology.work_queue("ocr").name), "the queue is named")
            await until(partial(comes_in, broker, consumer), "messages of another queue come")
        await until(partial(broker_is_whole, broker), "the queue is consumed again")
        assert scene.of(BrokerWiped) == []
        await consumer.stop()


async def declare_at(node: ClusterNode, topology: Topology, queues: Sequence[Queue] = ()) -> None:
    """What is declared over a connection to a node has its home, or its leader, there."""
    async with connect_once(node.url) as connection:
        await declare(connection, topology.exchanges, queues or topology.queues(["ocr"]))


async def says(scene: Scene, queue: str) -> bool:
    return any(
        queue in trouble.message and "BACKSTAY_BROKER_QUEUES" in trouble.message for trouble in scene.of(Trouble)
    )


async def comes_in(broker: Broker, consumer: Consumer) -> bool:
    await broker.publish(work(broker.topology, 2, [2], "echo"))
    return 2 in consumer.take("echo", 10)


async def broker_is_whole(broker: Broker) -> bool:
    return broker.alive
