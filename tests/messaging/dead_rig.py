"""A dead queue with something in it, and a look at what it holds."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pamqp.commands import Basic

from backstay.clock import Clock
from backstay.messaging.broker import properties_of
from backstay.messaging.connection import connect_once
from backstay.messaging.dead_queue import DeadQueue, Judge, Verdict
from backstay.messaging.messages import CALLBACK, REASON_HEADER, Incoming, OutgoingMessage, Topology, Work, send_work
from backstay.messaging.queues import declare, open_channel

AT_ONCE = 1_000
REJECTED = {"x-first-death-reason": "rejected"}


def dead_work(
    topology: Topology, number: int, items: Sequence[int], handler: str = "echo", headers: Mapping[str, Any] = REJECTED
) -> OutgoingMessage:
    """A hint, as it lies in the dead queue."""
    made = send_work(topology, Work(str(number), handler, tuple(items)))
    return OutgoingMessage("", topology.dead, made.body, made.message_id, made.type, headers=headers)


def dead_callback(topology: Topology, number: int, task: str, kind: str = CALLBACK) -> OutgoingMessage:
    """What a remote worker said of a try at an item, as it lies in the dead queue."""
    body = json.dumps({"v": 1, "task": task, "tag": "a tag", "status": "succeeded", "result": 7}).encode()
    headers = {REASON_HEADER: "its tag is not valid"}
    return OutgoingMessage("", topology.dead, body, str(number), kind, headers=headers)


def poison(topology: Topology, number: int, reason: str = "is not JSON") -> OutgoingMessage:
    return OutgoingMessage("", topology.dead, b"{", str(number), "work", headers={REASON_HEADER: reason})


async def fill(url: str, topology: Topology, dead: Sequence[OutgoingMessage], **changed: Any) -> None:
    """Puts messages into the dead queue, in their order; `changed` are properties of theirs."""
    async with connect_once(url) as connection:
        await declare(connection, topology.exchanges, topology.fixed_queues)
        channel = await open_channel(connection, confirms=True)

        async def put(one: OutgoingMessage) -> None:
            properties = properties_of(one, Clock().now_ms())
            for name, value in changed.items():
                setattr(properties, name, value)
            answer = await channel.basic_publish(
                one.body, exchange=one.exchange, routing_key=one.routing_key, properties=properties, wait=False
            )
            assert isinstance(answer, Basic.Ack)

        for start in range(0, len(dead), AT_ONCE):
            await asyncio.gather(*map(put, dead[start : start + AT_ONCE]))


async def replay(url: str, topology: Topology, judge: Judge) -> None:
    async with connect_once(url) as connection:
        await DeadQueue(connection, topology, Clock()).replay(judge)


async def keep_all(window: Sequence[Incoming]) -> Sequence[Verdict]:
    return [Verdict(message.body) for message in window]


def ids(messages: Sequence[Incoming]) -> list[int]:
    return [int(message.message_id) for message in messages]
