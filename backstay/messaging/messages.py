"""The messages between Backstay and a broker, as values, and the exchanges and queues that they go through. Both are
the same in every process, and are written and read here without any I/O.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from backstay.core.callbacks import TaggedCallback, read_tagged_callback
from backstay.core.errors import UsageError
from backstay.core.ids import read_item, show_item
from backstay.store.outbox import USER_EVENT, Message

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


VERSION: Final = 1
WORK: Final = "work"
REQUEST: Final = "request"
CALLBACK: Final = "callback"
OWNER_HEADER: Final = "x-backstay-owner"
CONTENT_TYPE: Final = "application/json"
PERSISTENT: Final = 2
REASON_HEADER: Final = "x-backstay-reason"
BODY_BYTES_MAX: Final = 1 << 20  # of a message that is read here
ITEMS_MAX: Final = 1_000  # in one message
REASON_CHARACTERS_MAX: Final = 200
WAIT_MS_MAX: Final = 366 * 86_400_000
ID_CHARACTERS_MAX: Final = 255
HEADER_DEPTH_MAX: Final = 20
HEADERS_BYTES_MAX: Final = 100_000  # all properties must fit into a frame of 131,072, and ours are added
FLOAT_MAX: Final = 3.4e38  # the driver writes fractions in four bytes


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to be published. Copies of one message have the same id."""

    exchange: str
    routing_key: str
    body: bytes
    message_id: str
    type: str
    priority: int = 0
    timestamp_ms: int | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    mandatory: bool = True  # it must reach a queue


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message as it came in."""

    body: bytes
    message_id: str
    type: str
    routing_key: str = ""
    priority: int = 0
    redelivered: bool = False
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Work:
    """These items are ready, or will be after `rest_ms`."""

    id: str
    handler: str
    items: tuple[int, ...]
    priority: int = 0
    rest_ms: int = 0


@dataclass(frozen=True, slots=True)
class Poison:
    """A message that cannot be used, and why."""

    reason: str


def hint(topology: Topology, message_id: int, payload: Mapping[str, Any], age_ms: int = 0) -> OutgoingMessage:
    """The message for one row of the outbox; `age_ms` of its wait are already over."""
    items = payload.get("items")
    if items is None:
        items = range(payload["first"], payload["first"] + payload["count"])
    wait_ms = max(payload.get("wait_ms", 0) - age_ms, 0)
    work = Work(str(message_id), payload["handler"], tuple(items), payload.get("priority", 0))
    return send_work(topology, work, wait_ms)


def hint_of(topology: Topology, message: Message) -> OutgoingMessage:
    return hint(topology, message.id, json.loads(message.payload), message.age_ms)


def user_message(topology: Topology, message: Message) -> OutgoingMessage:
    """A user's own message, as the user wrote it, or an event about items."""
    topic = message.message_type.removeprefix(USER_EVENT)
    is_event = not message.message_type.startswith(USER_EVENT)
    return OutgoingMessage(
        topology.events if is_event else topology.messages,
        message_key(message.owner, topic),
        message.payload.encode(),
        message.aggregate_id,
        topic,
        timestamp_ms=message.created_at,
        headers={OWNER_HEADER: message.owner},
        mandatory=not is_event,
    )


def send_work(topology: Topology, work: Work, wait_ms: int = 0) -> OutgoingMessage:
    exchange, routing_key, rest_ms = topology.route(work.handler, wait_ms)
    said: dict[str, Any] = {"v": VERSION, "id": work.id, "handler": work.handler}
    said["items"] = [show_item(item) for item in work.items]
    if rest_ms:
        said["rest_ms"] = rest_ms
    priority = min(max(work.priority, 0), PRIORITY_MAX)
    return OutgoingMessage(exchange, routing_key, json.dumps(said).encode(), work.id, WORK, priority)


def read_work(message: Incoming) -> Work | Poison:
    said = read_object(message, WORK)
    if isinstance(said, Poison):
        return said
    handler, named, rest_ms = said.get("handler"), said.get("items"), said.get("rest_ms", 0)
    if not isinstance(handler, str) or not handler:
        return Poison("does not name a handler")
    if not isinstance(named, list) or not named:
        return Poison("does not name items")
    if len(named) > ITEMS_MAX:
        return Poison(f"names more than {ITEMS_MAX} items")
    if not isinstance(rest_ms, int) or isinstance(rest_ms, bool) or not 0 <= rest_ms <= WAIT_MS_MAX:
        return Poison("rest_ms is not a number of milliseconds")
    message_id = said.get("id", message.message_id)
    if not isinstance(message_id, str) or not message_id.isascii() or len(message_id) > ID_CHARACTERS_MAX:
        return Poison("its id is not plain text")
    try:
        items = tuple(read_item(name) for name in named if _is_text(name))
    except UsageError as error:
        return Poison(str(error))
    if len(items) < len(named):
        return Poison("an item is not named as JOB-POSITION")
    return Work(message_id or message.message_id, handler, items, message.priority, rest_ms)


def read_callback(message: Incoming) -> TaggedCallback | Poison:
    """A remote worker's message. It may have no type: not every library sets one, and callbacks have their own
    queue."""
    if message.type not in ("", CALLBACK):
        return Poison(f"its type is {message.type[:40]!r}, not {CALLBACK!r}")
    try:
        return read_tagged_callback(message.body)
    except UsageError as error:
        return Poison(error.message)


def read_object(message: Incoming, kind: str) -> dict[str, Any] | Poison:
    """The JSON object of a message of one kind and of this version."""
    if message.type != kind:
        return Poison(f"its type is {message.type[:40]!r}, not {kind!r}" if message.type else f"has no type {kind!r}")
    if len(message.body) > BODY_BYTES_MAX:
        return Poison(f"has more than {BODY_BYTES_MAX} bytes")
    try:
        said = json.loads(message.body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return Poison("is not JSON")
    if not isinstance(said, dict):
        return Poison("is not a JSON object")
    version = said.get("v")
    if version != VERSION or isinstance(version, bool):
        return Poison(f"its version is not {VERSION}")
    return said


def repeat_callback(topology: Topology, message: Incoming) -> OutgoingMessage:
    """A callback that was set aside, for the callback queue."""
    return OutgoingMessage(topology.callbacks, topology.callbacks, message.body, message.message_id, CALLBACK)


def set_aside(topology: Topology, message: Incoming, reason: str) -> OutgoingMessage:
    """The same message for the dead queue, with the reason in its headers."""
    headers = {**writable_headers(_harmless(message.headers)), REASON_HEADER: reason[:REASON_CHARACTERS_MAX]}
    return OutgoingMessage(
        topology.dead,
        message.routing_key,
        message.body,
        message.message_id,
        message.type,
        message.priority,
        headers=headers,
    )


def writable_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """The headers in a form that the driver can write: some of the values that it reads it cannot write. If they do not
    all fit, the longest are left out."""
    made = {name: _writable(value, HEADER_DEPTH_MAX) for name, value in headers.items()}
    sizes = {name: len(ascii(name)) + _size(value) for name, value in made.items()}
    room = HEADERS_BYTES_MAX
    for name in sorted(sizes, key=sizes.__getitem__):
        room -= sizes[name]
        if room < 0:
            del made[name]
    return made


def _size(value: Any) -> int:
    """At least its size on the wire."""
    return len(value) if isinstance(value, bytearray) else len(ascii(value))


def _writable(value: Any, depth: int) -> Any:
    match value:
        case bytes():  # a text that is not UTF-8
            return bytearray(value)
        case float() if abs(value) > FLOAT_MAX:
            return repr(value)
        case dict() | list() if not depth:
            return "nested too deeply to be stored"
        case dict():
            return {name: _writable(inner, depth - 1) for name, inner in value.items()}
        case list():
            return [_writable(inner, depth - 1) for inner in value]
        case _:
            return value


def _harmless(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Without CC and BCC, because the broker would send copies to the queues that they name."""
    return {name: value for name, value in headers.items() if name.upper() not in ("CC", "BCC")}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _no_constant(name: str) -> None:
    raise ValueError(name)
