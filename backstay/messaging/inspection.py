"""Looks at what there is of a topology on a broker, and says what is wrong with it. Declares nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from backstay.messaging.declaring import Difference, QueueDepth, declare, depth_of, has_exchange
from backstay.messaging.topology import Exchange, Queue, Topology

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection


class BrokerFault(Enum):
    """What is wrong with an exchange or queue."""

    MISSING = auto()
    DIFFERENT = auto()  # declared with other arguments than it would be now
    UNUSABLE = auto()  # it holds messages that no worker could process
    UNCONSUMED = auto()


_PROBLEMS: Final = {
    BrokerFault.MISSING: "missing",
    BrokerFault.UNUSABLE: "no worker could process these messages: see `backstay broker replay`",
    BrokerFault.UNCONSUMED: "messages wait and no worker consumes them",
}


@dataclass(frozen=True, slots=True)
class Found:
    """One exchange or queue; without a depth, an exchange or one that is missing. `fault` is for programs, `problem`
    says the same to people."""

    kind: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)  # as they would be declared now
    messages: int | None = None
    consumers: int | None = None
    fault: BrokerFault | None = None
    difference: str = ""  # what the broker says about a declaration that differs

    @property
    def problem(self) -> str:
        return "" if self.fault is None else _PROBLEMS.get(self.fault, self.difference)


async def inspect(connection: "AbstractConnection", topology: Topology, handlers: Iterable[str]) -> list[Found]:
    found = [await _exchange(connection, exchange) for exchange in topology.exchanges]
    for queue in topology.queues(handlers):
        found.append(await _queue(connection, topology, queue))
    return found


async def _exchange(connection: "AbstractConnection", exchange: Exchange) -> Found:
    found = Found("exchange", exchange.name, {"type": exchange.type})
    if not await has_exchange(connection, exchange.name):
        return replace(found, fault=BrokerFault.MISSING)
    # Declared as it is, it stays as it is; what is declared otherwise is told of.
    return _compared(found, await declare(connection, [exchange], ()))


async def _queue(connection: "AbstractConnection", topology: Topology, queue: Queue) -> Found:
    depth = await depth_of(connection, queue.name)
    if depth is None:
        return Found("queue", queue.name, queue.arguments, fault=BrokerFault.MISSING)
    fault = _fault(topology, queue, depth)
    found = Found("queue", queue.name, queue.arguments, depth.messages, depth.consumers, fault)
    return _compared(found, await declare(connection, (), [queue]))


def _compared(found: Found, differences: Sequence[Difference]) -> Found:
    if not differences:
        return found
    return replace(found, fault=BrokerFault.DIFFERENT, difference=differences[0].reason)


def _fault(topology: Topology, queue: Queue, depth: QueueDepth) -> BrokerFault | None:
    if queue.name == topology.dead and depth.messages:
        return BrokerFault.UNUSABLE
    if queue.exchange in (topology.work, topology.callbacks) and depth.messages and not depth.consumers:
        return BrokerFault.UNCONSUMED
    return None
