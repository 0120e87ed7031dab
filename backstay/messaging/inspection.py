"""Looks at what there is of a topology on a broker, and says what is wrong with it. Declares nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from backstay.messaging.declaring import QueueDepth, declare, depth_of, has_exchange
from backstay.messaging.topology import Exchange, Queue, Topology

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection

NOBODY_CAN_USE: Final = "no worker could process these messages: see `backstay broker replay`"
NOBODY_CONSUMES: Final = "messages wait and no worker consumes them"


@dataclass(frozen=True, slots=True)
class Found:
    """One exchange or queue; without a depth, an exchange or one that is missing."""

    kind: str
    name: str
    there: bool
    arguments: Mapping[str, Any] = field(default_factory=dict)  # as they would be declared now
    messages: int | None = None
    consumers: int | None = None
    problem: str = ""


async def inspect(connection: "AbstractConnection", topology: Topology, handlers: Iterable[str]) -> list[Found]:
    found = [await _exchange(connection, exchange) for exchange in topology.exchanges]
    for queue in topology.queues(handlers):
        found.append(await _queue(connection, topology, queue))
    return found


async def _exchange(connection: "AbstractConnection", exchange: Exchange) -> Found:
    there = await has_exchange(connection, exchange.name)
    problem = "missing"
    if there:  # declared as it is, it stays as it is; what is declared otherwise is told of
        differences = await declare(connection, [exchange], ())
        problem = differences[0].reason if differences else ""
    return Found("exchange", exchange.name, there, {"type": exchange.type}, problem=problem)


async def _queue(connection: "AbstractConnection", topology: Topology, queue: Queue) -> Found:
    depth = await depth_of(connection, queue.name)
    if depth is None:
        return Found("queue", queue.name, False, queue.arguments, problem="missing")
    differences = await declare(connection, (), [queue])
    problem = differences[0].reason if differences else _problem(topology, queue, depth)
    return Found("queue", queue.name, True, queue.arguments, depth.messages, depth.consumers, problem)


def _problem(topology: Topology, queue: Queue, depth: QueueDepth) -> str:
    if queue.name == topology.dead and depth.messages:
        return NOBODY_CAN_USE
    if queue.exchange in (topology.work, topology.callbacks) and depth.messages and not depth.consumers:
        return NOBODY_CONSUMES
    return ""
