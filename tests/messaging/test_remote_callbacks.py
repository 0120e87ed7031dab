"""What comes in at the callbacks' queue: nothing upsets its reader, and nothing is lost, looped or believed unseen."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from backstay.clock import Clock
from backstay.core.callbacks import CALLBACK_BYTES_MAX, TaggedCallback
from backstay.core.errors import DatabaseUnreachable
from backstay.core.events import Event, MessageSetAside, Trouble
from backstay.messaging.messages import OutgoingMessage, Topology
from backstay.remote.work import PAUSE_SECONDS, PAUSE_SECONDS_MAX, TRIES_MAX, CallbackReader, Receive
from backstay.store.inbox import MESSAGES_MAX
from tests.messaging.remote_rig import Asked, MessageRemote, message_work
from tests.messaging.rig import Scene, ready
from tests.servers.fault_proxy import FaultProxy
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.stories.stage import until


@pytest.fixture
async def remote(sqlite_file_url: str, tmp_path: Path, rabbitmq: PrivateRabbitMQ) -> AsyncIterator[MessageRemote]:
    async with message_work(sqlite_file_url, tmp_path / "data", rabbitmq) as made:
        yield made


def changed(**parts: Any) -> Callable[[Asked], bytes]:
    """A success with some of its parts as they should not be."""
    return lambda asked: json.dumps({**asked.told(status="succeeded", result=1), **parts}).encode()


def of_another_item(asked: Asked) -> bytes:
    job, _, fence = asked.body["task"].partition("-0/")
    return changed(task=f"{job}-1/{fence}")(asked)


def of_another_try(asked: Asked) -> bytes:
    item, _, fence = asked.body["task"].partition("/")
    return changed(task=f"{item}/{int(fence) + 1}")(asked)


def with_another_tag(asked: Asked) -> bytes:
    tag = asked.body["tag"]
    return changed(tag=("B" if tag[0] == "A" else "A") + tag[1:])(asked)


POISON: dict[str, tuple[Callable[[Asked], bytes], str]] = {
    "nothing": (lambda asked: b"", "not JSON"),
    "no JSON": (lambda asked: b"{", "not JSON"),
    "no UTF-8": (lambda asked: b"\xff\xfe", "not JSON"),
    "too deep": (lambda asked: b"[" * 100_000, "not JSON"),
    "no object": (lambda asked: b"[]", "must be a JSON object"),
    "not a number": (lambda asked: changed()(asked).replace(b'"result": 1', b'"result": NaN'), "not JSON"),
    "too deep for whoever reads it next": (
        lambda asked: changed()(asked).replace(b'"result": 1', b'"result": %s' % (b"[" * 500 + b"]" * 500)),
        "more than 128 levels deep",
    ),
    "no version": (lambda asked: b'{"status": "succeeded", "result": 1}', "v must be 1"),
    "another version": (changed(v=2), "v must be 1"),
    "true is no version": (changed(v=True), "v must be 1"),
    "no task": (changed(task=None), "task must be"),
    "a task without a try": (changed(task="1-0"), "task must be"),
    "a task too long": (changed(task=f"1-0/{'9' * 50}"), "task must be"),
    "no tag": (changed(tag=""), "tag must be"),
    "a tag too long": (changed(tag="A" * 101), "tag must be"),
    "a tag of other letters": (changed(tag="ü"), "tag is not valid"),
    "another tag": (with_another_tag, "tag is not valid"),
    "another item": (of_another_item, "tag is not valid"),
    "another try": (of_another_try, "tag is not valid"),
    "an item too large to be one": (changed(task="999999999999-0/1"), "tag is not valid"),
    "no status": (changed(status=None), "status must be"),
    "an unknown status": (changed(status="done"), "status must be"),
    "no progress": (changed(status="progress"), "progress must be"),
    "no error": (changed(status="failed"), "must have an error"),
    "too large": (changed(result="x" * CALLBACK_BYTES_MAX), "more than 4,194,304 bytes"),
}


async def test_what_nobody_can_use_is_put_aside_with_its_reason_and_the_next_is_read(remote):
    asked = await remote.ask()
    place = asked.body["callback"]
    events: list[Any] = []
    remote.rig.made.bus.subscribe(events.append)
    for number, (name, (made, why)) in enumerate(POISON.items(), start=1):
        body = made(asked)
        await remote.worker.publish(place["exchange"], place["routing_key"], body, type="callback")
        reason, kept = (await remote.put_aside(number))[-1]
        assert why in reason, name
        assert kept == body, name
    assert await remote.kept() == []
    await remote.told(asked, status="succeeded", result=1)
    await remote.ended("succeeded")
    assert len([event for event in events if isinstance(event, MessageSetAside)]) == len(POISON)
    assert not any(asked.body["tag"] in str(event) for event in events)


async def test_a_tag_of_a_deleted_job_does_not_fit_the_job_that_has_its_id_now(remote):
    old = await remote.ask()
    for table in ("requests", "items", "jobs"):
        await remote.rows(f"DELETE FROM {table}")
    is_postgres = remote.rig.made.url.startswith("postgresql")
    await remote.rows(
        "SELECT setval('jobs_id_seq', 1, false)" if is_postgres else "DELETE FROM sqlite_sequence WHERE name = 'jobs'"
    )
    new = await remote.ask()
    assert new.body["task"] == old.body["task"], "the id has returned"
    await remote.worker.tell(old, status="succeeded", result="forged")
    [(reason, _)] = await remote.put_aside()
    assert reason == "its tag is not valid"
    assert await remote.kept() == []
    await remote.told(new, status="succeeded", result="true")
    await remote.ended("succeeded")


async def test_a_message_of_another_kind_is_put_aside_and_one_of_no_kind_is_read(remote):
    asked = await remote.ask()
    place = (asked.body["callback"]["exchange"], asked.body["callback"]["routing_key"])
    body = json.dumps(asked.told(status="succeeded", result=1)).encode()
    await remote.worker.publish(*place, body, type="work")
    [(reason, _)] = await remote.put_aside()
    assert reason == "its type is 'work', not 'callback'"
    await remote.worker.publish(*place, body)
    await remote.ended("succeeded")


async def test_an_item_that_is_gone_is_unknown(remote):
    asked = await remote.ask()
    await remote.rows("DELETE FROM items")
    await remote.worker.tell(asked, status="succeeded", result=1)
    [(reason, _)] = await remote.put_aside()
    assert reason == f"no item {remote.job}-0"


@pytest.mark.slow
async def test_a_flood_of_progress_is_read_to_its_end_and_one_row_is_kept_of_it(remote):
    asked = await remote.ask()
    place = (asked.body["callback"]["exchange"], asked.body["callback"]["routing_key"])
    body = [json.dumps(asked.told(status="progress", progress=percent)).encode() for percent in range(101)]
    for _ in range(10):
        await asyncio.gather(*(remote.worker.publish(*place, each, type="callback") for each in body))
    await remote.told(asked, status="succeeded", result=1)
    assert len(await remote.kept()) == 2
    await remote.ended("succeeded")


@pytest.mark.slow
async def test_a_worker_that_talks_too_much_is_put_aside(remote):
    asked = await remote.ask()
    for number in range(MESSAGES_MAX):
        await remote.worker.tell(asked, status="failed", error={"message": str(number)})
    await remote.told(asked, status="failed", error={"message": str(MESSAGES_MAX - 1)})
    await remote.worker.tell(asked, status="succeeded", result=1)
    [*_, (reason, _)] = await remote.put_aside(1)
    assert reason == f"item {remote.job}-0 has {MESSAGES_MAX} messages already, which is the limit"


@pytest.mark.slow
async def test_while_the_database_is_away_messages_wait_and_are_kept_once_when_it_is_back(
    postgres_url: str, tmp_path: Path, rabbitmq: PrivateRabbitMQ
) -> None:
    async with (
        FaultProxy.of(postgres_url) as proxy,
        message_work(proxy.url(postgres_url), tmp_path, rabbitmq) as remote,
    ):
        asked, events = await remote.ask(), Heard()
        remote.rig.made.bus.subscribe(events)
        await proxy.cut()
        for number in range(5):
            await remote.worker.tell(asked, status="failed", error={"message": str(number)})
        await events.of(Trouble, "callbacks")
        await proxy.pass_on()
        await remote.told(asked, status="succeeded", result=1)
        assert [kind for kind, *_ in await remote.kept()] == ["failed"] * 5 + ["succeeded"]
        assert not [event for event in events.all if isinstance(event, MessageSetAside)]


class Heard:
    """What was emitted, and the wait for it."""

    def __init__(self) -> None:
        self.all: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.all.append(event)

    async def of(self, kind: type[Event], words: str) -> None:
        async def there() -> bool:
            return any(isinstance(event, kind) and words in str(event) for event in self.all)

        await until(there, f"{kind.__name__} was emitted")


class Slow(Clock):
    """A clock that writes down how long it was slept on, and does not sleep."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def reading(node: PrivateRabbitMQ, receive: Receive, clock: Clock) -> AsyncIterator[Scene]:
    """A reader whose messages are received by the test; one message is there."""
    scene = Scene(node.url, Topology(node.prefix()))
    async with scene.broker() as broker:
        reader = CallbackReader(broker, receive, clock, Random(1), scene.events.append)
        reader.start()
        body = b'{"v": 1, "task": "1-0/1", "tag": "x", "status": "succeeded", "result": 1}'
        told = OutgoingMessage(scene.topology.callbacks, scene.topology.callbacks, body, "1", "callback")
        await ready(broker)
        assert await broker.publish(told)
        yield scene
        await reader.stop()


async def test_it_is_tried_again_with_growing_pauses_for_as_long_as_the_database_is_away(rabbitmq):
    clock, received = Slow(), asyncio.Event()

    async def receive(told: TaggedCallback) -> None:
        if len(clock.slept) < 20:
            raise DatabaseUnreachable
        received.set()

    async with reading(rabbitmq, receive, clock) as scene:
        async with asyncio.timeout(30):
            await received.wait()
        assert clock.slept[0] >= PAUSE_SECONDS / 2
        assert clock.slept[-1] >= PAUSE_SECONDS_MAX / 2
        assert max(clock.slept) <= PAUSE_SECONDS_MAX
        assert len(scene.of(Trouble)) == 1, "it is told once"
        assert scene.of(MessageSetAside) == []


async def test_a_message_that_upsets_us_is_put_aside_in_the_end(rabbitmq):
    clock = Slow()

    async def receive(told: TaggedCallback) -> None:
        raise ZeroDivisionError("nobody knows why")

    async with reading(rabbitmq, receive, clock) as scene:

        async def aside() -> bool:
            return bool(scene.of(MessageSetAside))

        await until(aside, "it was put aside")
        [event] = scene.of(MessageSetAside)
        assert event.reason == "the callback could not be stored: ZeroDivisionError: nobody knows why"
        assert len(clock.slept) == TRIES_MAX - 1
