"""The exchanges and queues that Backstay has on a broker, by name: pure data, the same in every process."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from backstay.core.errors import UsageError

PREFIX: Final = "backstay"
PREFIX_CHARACTERS_MAX: Final = 100
PRIORITY_MAX: Final = 9
NAME_BYTES_MAX: Final = 255  # of an exchange, a queue or a routing key, as AMQP counts
# One queue for each delay, because a message expires only at the head of its queue: a delay of 300 s would delay all
# shorter ones behind it.
WAIT_STEPS_MS: Final = tuple(1_000 * step for step in (1, 2, 5, 10, 30, 60, 300, 900, 3_600))
UNUSED_MS: Final = 24 * 3_600_000  # then the queue of a handler without workers is deleted; the database has its items
# RabbitMQ 4 sets a message aside when a quorum queue has delivered it 20 times. A hint may come back more often than
# that: each time a worker stops.
DELIVERY_LIMIT: Final = 1_000

UNROUTED_MS: Final = 3 * 86_400_000  # how long a user's message is kept that no queue is bound for,
UNROUTED_MAX: Final = 100_000  # and how many of them: the oldest are dropped first
DEAD_MESSAGES: Final = 100_000
DEAD_DAYS: Final = 14.0
OWNER_BYTES_MAX: Final = 150  # in a routing key; a topic has at most 100

Kind = Literal["classic", "quorum"]


@dataclass(frozen=True, slots=True)
class Exchange:
    name: str
    type: Literal["direct", "fanout", "topic"]
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable queue and its binding."""

    name: str
    exchange: str
    routing_key: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Topology:
    """All names begin with the prefix: one for each database that shares the broker.

    The bounds of the dead queue are not arguments of it: a broker refuses other arguments for an existing queue."""

    prefix: str = PREFIX
    kind: Kind = "classic"
    dead_messages: int = DEAD_MESSAGES  # how many messages the dead queue keeps: the newest,
    dead_days: float = DEAD_DAYS  # and for how long

    def __post_init__(self) -> None:
        if not self.prefix or len(self.prefix) > PREFIX_CHARACTERS_MAX or not self.prefix.isascii():
            raise UsageError(f"the broker prefix must have 1 to {PREFIX_CHARACTERS_MAX} plain characters")
        if self.prefix.startswith("amq."):
            raise UsageError("names that begin with amq. are reserved by RabbitMQ", hint="set BACKSTAY_BROKER_PREFIX")

    # names

    @property
    def work(self) -> str:
        """The exchange that hints are published to, with the handler as routing key."""
        return f"{self.prefix}.work"

    @property
    def dead(self) -> str:
        """The exchange and the queue of messages that cannot be used."""
        return f"{self.prefix}.dead"

    @property
    def callbacks(self) -> str:
        """The exchange, the routing key and the queue of messages from remote workers."""
        return f"{self.prefix}.callbacks"

    @property
    def messages(self) -> str:
        """The exchange that users' messages are published to, with OWNER.TOPIC as routing key."""
        return f"{self.prefix}.messages"

    @property
    def events(self) -> str:
        """The exchange of events about items, with OWNER.EVENT as routing key. An event that no queue is bound for is
        dropped: to get events, bind a queue."""
        return f"{self.prefix}.events"

    @property
    def unrouted(self) -> str:
        """The exchange and the queue of users' messages that no queue is bound for."""
        return f"{self.prefix}.unrouted"

    def wait(self, step_ms: int) -> str:
        return f"{self.prefix}.wait.{step_ms}"

    # exchanges and queues

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        waits = (Exchange(self.wait(step), "fanout") for step in WAIT_STEPS_MS)
        return (
            Exchange(self.work, "direct"),
            Exchange(self.dead, "fanout"),
            Exchange(self.callbacks, "direct"),
            Exchange(self.unrouted, "fanout"),
            Exchange(self.messages, "topic", {"alternate-exchange": self.unrouted}),
            Exchange(self.events, "topic"),
            *waits,
        )

    @property
    def fixed_queues(self) -> tuple[Queue, ...]:
        """The queues that do not depend on handlers."""
        waits = (self.wait_queue(step) for step in WAIT_STEPS_MS)
        return (self.dead_queue, self.callbacks_queue, self.unrouted_queue, *waits)

    def queues(self, handlers: Iterable[str] = ()) -> tuple[Queue, ...]:
        return (*self.fixed_queues, *(self.work_queue(handler) for handler in handlers))

    def behind(self, exchange: str, key: str) -> tuple[Queue, ...]:
        """The queues that a message to one of the exchanges goes to."""
        if exchange == self.work:
            return (self.work_queue(key),)
        if exchange == self.messages:
            return (self.unrouted_queue,)
        return tuple(queue for queue in self.fixed_queues if queue.exchange == exchange)

    def work_queue(self, handler: str) -> Queue:
        key = routing_key(handler)
        arguments: dict[str, Any] = {"x-dead-letter-exchange": self.dead, "x-expires": UNUSED_MS}
        if self.kind == "classic":
            arguments["x-max-priority"] = PRIORITY_MAX + 1
        return Queue(_short(f"{self.work}.{key}"), self.work, key, self._of_kind(arguments))

    def wait_queue(self, step_ms: int) -> Queue:
        """It has no consumer: a message that expires goes back to the work exchange, with the same routing key."""
        arguments = {"x-message-ttl": step_ms, "x-dead-letter-exchange": self.work}
        return Queue(self.wait(step_ms), self.wait(step_ms), "", self._of_kind(arguments))

    @property
    def dead_queue(self) -> Queue:
        return Queue(self.dead, self.dead, "", self._of_kind({}))

    @property
    def callbacks_queue(self) -> Queue:
        return Queue(
            self.callbacks, self.callbacks, self.callbacks, self._of_kind({"x-dead-letter-exchange": self.dead})
        )

    @property
    def unrouted_queue(self) -> Queue:
        arguments = {"x-message-ttl": UNROUTED_MS, "x-max-length": UNROUTED_MAX}
        return Queue(self.unrouted, self.unrouted, "", self._of_kind(arguments))

    def _of_kind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The type is always given: a vhost may have another default, and quorum queues refuse ten priorities."""
        if self.kind == "classic":
            return {**arguments, "x-queue-type": "classic"}
        return {**arguments, "x-queue-type": "quorum", "x-delivery-limit": DELIVERY_LIMIT}

    # routes

    def route(self, handler: str, wait_ms: int = 0) -> tuple[str, str, int]:
        """The route of a hint that must arrive after a wait: exchange, routing key, and the rest of the wait."""
        if wait_ms <= 0:
            return self.work, routing_key(handler), 0
        wait_ms = -(-wait_ms // WAIT_STEPS_MS[0]) * WAIT_STEPS_MS[0]  # late rather than early
        step = max(step for step in WAIT_STEPS_MS if step <= wait_ms)
        return self.wait(step), routing_key(handler), wait_ms - step


def routing_key(handler: str) -> str:
    return _short(handler)


def message_key(owner: str, topic: str) -> str:
    """The routing key of a user's message. The owner is always one word of it, so that it cannot look like the topic of
    another owner."""
    word = re.sub(r"[^A-Za-z0-9_-]", lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), owner)
    return f"{_short(word, OWNER_BYTES_MAX)}.{topic}"


def _short(name: str, bytes_max: int = NAME_BYTES_MAX) -> str:
    """The name in at most so many bytes, as AMQP counts; a longer one is cut and ends in a digest of the whole."""
    raw = name.encode()
    if len(raw) <= bytes_max:
        return name
    digest = hashlib.sha256(raw).hexdigest()[:16]
    return f"{raw[: bytes_max - 17].decode(errors='ignore')}-{digest}"
