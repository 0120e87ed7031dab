"""The messages between Backstay and a broker, as values: they are written and read here, without any I/O."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from backstay.core.callbacks import TaggedCallback, read_tagged_callback
from backstay.core.errors import UsageError
from backstay.core.ids import read_item, show_item
from backstay.messaging.topology import PRIORITY_MAX, Topology, message_key
from backstay.store.outbox import USER_EVENT, Message

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
