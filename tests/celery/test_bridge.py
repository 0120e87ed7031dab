"""The parts of the bridge, on Celery's transport in memory and on Redis."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

from backstay.celery import CeleryHints, CeleryPublisher
from backstay.clock import Clock, Tasks
from backstay.core.events import Event, Trouble
from backstay.messaging.messages import OutgoingMessage, Topology, hint
from backstay.observe.bus import Bus
from tests.celery.rig import Shop
from tests.servers.redis import PrivateRedis

SECRET = "hunter2"


@pytest.fixture
def redis() -> Iterator[PrivateRedis]:
    with PrivateRedis() as server:
        yield server


def hints_of(*waits_ms: int) -> list[OutgoingMessage]:
    return [
        hint(Topology(), number, {"handler": "convert", "first": number * 10, "count": 2, "wait_ms": wait_ms})
        for number, wait_ms in enumerate(waits_ms, 1)
    ]


def in_queue(app: Celery, queue: str) -> list[tuple[str, list[object]]]:
    """The tasks in a queue, as (id, arguments)."""
    with app.connection_for_read() as connection, connection.SimpleQueue(queue) as simple:
        found = []
        while simple.qsize():
            message = simple.get(block=False)
            found.append((message.headers["id"], message.payload[0]))
            message.ack()
        return found


async def test_a_hint_is_sent_as_a_task_with_the_name_of_its_row() -> None:
    app = Celery("test", broker="memory://", set_as_current=False)
    publisher = CeleryPublisher(app, "ready", Bus())
    assert await publisher.publish_many(hints_of(0, 0)) == [True, True]
    assert await publisher.publish_many(hints_of(0)) == [True]
    await publisher.close()
    sent = in_queue(app, "ready")
    assert [name for name, _ in sent] == ["backstay.work-1", "backstay.work-2", "backstay.work-1"]
    assert sent[0][1] == ["convert", ["0-10", "0-11"]]


async def test_what_is_not_ready_is_left_to_the_database() -> None:
    app = Celery("test", broker="memory://", set_as_current=False)
    publisher = CeleryPublisher(app, "waiting", Bus())
    assert await publisher.publish_many(hints_of(5_000, 0)) == [True, True]
    await publisher.close()
    assert [name for name, _ in in_queue(app, "waiting")] == ["backstay.work-2"]


@pytest.mark.slow
async def test_a_broker_that_is_away_takes_nothing_and_no_password_is_told() -> None:
    app = Celery("test", broker=f"amqp://shop:{SECRET}@127.0.0.1:1//", set_as_current=False)
    told: list[Event] = []
    bus = Bus()
    bus.subscribe(told.append)
    publisher = CeleryPublisher(app, "away", bus)
    assert await publisher.publish_many(hints_of(0, 5_000, 0)) == [False, True, False]
    await publisher.close()
    assert [type(event) for event in told] == [Trouble]
    assert SECRET not in str(told)


async def test_a_message_waits_until_a_claim_had_all_its_items() -> None:
    hints, woken = CeleryHints(Clock()), asyncio.Event()
    hints.listen(woken.set)
    task = Tasks().start(hints.wait_until_served("convert", [1, 2]))
    await woken.wait()
    assert hints.take("convert", 10) == [1, 2]
    hints.mark_done([1])
    assert hints.take("convert", 10) == [2]
    assert not task.done()
    hints.mark_done([2])
    await task
    assert hints.take("convert", 10) == []


@pytest.mark.slow
async def test_redis_carries_items_too(tmp_path: Path, postgres_url: str, redis: PrivateRedis) -> None:
    async with Shop(tmp_path, postgres_url, redis.url, "shop") as shop:
        process = await shop.started()
        job = await shop.backstay.submit("convert", range(200))
        assert await shop.ended(job) == list(range(200))
        await shop.until(lambda: shop.messages == 4, "its messages are through")
        assert shop.stop(process) == 0
    assert set(shop.told.values()) == {1}


def test_without_celery_one_line_says_what_to_install() -> None:
    program = "import sys; sys.modules['celery'] = None; import backstay.celery"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    last = "backstay.core.errors.UsageError: Celery is not installed: pip install 'backstay[celery]'"
    assert ran.stderr.splitlines()[-1] == last
