"""Remote work: its handlers, a deadline for each kind, and the ways that requests go out and answers come in."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Final, NamedTuple
from zlib import crc32

from backstay.app import Backstay
from backstay.artifacts import default_folder
from backstay.client import Client
from backstay.clock import Clock, Tasks, new_random
from backstay.core.callbacks import TaggedCallback
from backstay.core.errors import DatabaseUnreachable, NotAllowed, NotFound, UsageError
from backstay.core.events import Event, MessageSetAside, Trouble
from backstay.core.failures import one_line
from backstay.core.signing import Signer
from backstay.handlers.function import Registry
from backstay.handlers.handler import call_limits
from backstay.handlers.outgoing import Outgoing
from backstay.messaging.broker import Broker
from backstay.messaging.messages import Poison, read_callback, set_aside
from backstay.messaging.queues import MessageDelivery, Subscription
from backstay.observe.bus import Bus
from backstay.remote.handler import HTTP, MESSAGES, NAME, CallbackTags, OverHttp, RemoteHandler, Way
from backstay.remote.over_messages import OverMessages
from backstay.settings import KEY_FILE, Settings
from backstay.store.databases.database import is_postgres
from backstay.store.inbox import InboxMessages

PREFETCH: Final = 32  # messages in hand; each may have CALLBACK_BYTES_MAX
LANES: Final = 16  # messages at once; those of one item follow each other
PAUSE_SECONDS: Final = 0.5
PAUSE_SECONDS_MAX: Final = 10.0
TRIES_MAX: Final = 5  # of a message that raises an unexpected error

Receive = Callable[[TaggedCallback], Awaitable[Poison | None]]


class CallbackDelivery(NamedTuple):
    delivery: MessageDelivery
    content: TaggedCallback | Poison


class CallbackReader:
    """One life: start, stop. Messages that it holds when it stops are delivered to another process."""

    def __init__(
        self, broker: Broker, receive: Receive, clock: Clock, rng: Random, emit: Callable[[Event], None]
    ) -> None:
        self._broker = broker
        self._receive = receive
        self._clock = clock
        self._rng = rng
        self._emit = emit
        self._tasks = Tasks()
        self._troubled = False
        self._lanes: list[asyncio.Queue[CallbackDelivery]] = []

    def start(self) -> None:
        self._lanes = [asyncio.Queue() for _ in range(LANES)]
        for lane in self._lanes:
            self._tasks.spawn(self._follow(lane))
        queue = self._broker.topology.callbacks_queue
        self._broker.consume(Subscription(queue, PREFETCH, self._deliver, lambda: None))

    async def stop(self) -> None:
        await self._tasks.stop()

    def _deliver(self, delivery: MessageDelivery) -> None:
        told = read_callback(delivery.message)
        key = told.item if isinstance(told, TaggedCallback) else ""
        self._lanes[crc32(key.encode()) % LANES].put_nowait(CallbackDelivery(delivery, told))

    async def _follow(self, lane: "asyncio.Queue[CallbackDelivery]") -> None:
        while True:
            parcel = await lane.get()
            failures = 0
            while parcel.delivery.open and not await self._settle(parcel, failures):
                failures += 1
                top = min(PAUSE_SECONDS * 2 ** min(failures - 1, 16), PAUSE_SECONDS_MAX)
                await self._clock.sleep(top * self._rng.uniform(0.5, 1.0))

    async def _settle(self, parcel: CallbackDelivery, failures: int) -> bool:
        """Whether the message is done: stored, or set aside. Otherwise it is tried again."""
        try:
            poison = parcel.content if isinstance(parcel.content, Poison) else await self._receive(parcel.content)
        except DatabaseUnreachable as error:
            self._tell(error)
            return False
        except Exception as error:
            self._tell(error)
            if failures + 1 < TRIES_MAX:
                return False
            poison = Poison(one_line(f"the callback could not be stored: {type(error).__name__}: {error}"))
        else:
            self._troubled = False
        if poison is not None and not await self._put_aside(parcel.delivery, poison):
            return False
        await parcel.delivery.ack()
        return True

    async def _put_aside(self, delivery: MessageDelivery, poison: Poison) -> bool:
        topology = self._broker.topology
        kept = await self._broker.publish(set_aside(topology, delivery.message, poison.reason))
        if kept:
            self._emit(MessageSetAside(topology.callbacks, poison.reason))
        return kept

    def _tell(self, error: Exception) -> None:
        """Once per outage."""
        if not self._troubled:
            self._troubled = True
            self._emit(Trouble("callbacks", f"{type(error).__name__}: {error}"))


_KIND_LENGTH_MAX: Final = 50
_DEADLINE_SECONDS_MAX: Final = 366 * 86_400


def over_http(outgoing: Outgoing, seals: CallbackTags, public_url: str | None) -> OverHttp:
    if public_url is not None and not public_url.startswith(("http://", "https://")):
        raise UsageError("public_url must begin with http:// or https://", hint="set BACKSTAY_PUBLIC_URL")
    return OverHttp(outgoing, public_url, seals.tag, seals.sign)


@contextmanager
def remote_handlers(
    registry: Registry, ways: Mapping[str, Way], inbox: InboxMessages, settings: Settings
) -> Iterator[None]:
    """While the block runs: `remote`, and `remote.KIND` for each kind that has a deadline of its own."""
    calls = call_limits(settings.remote_rate, None, None, settings.remote_cost)
    handlers = [RemoteHandler(ways, inbox, calls=calls)]
    for kind, seconds in read_kinds(settings.remote_kinds).items():
        handlers.append(RemoteHandler(ways, inbox, f"{NAME}.{kind}", seconds, calls))
    with ExitStack() as stack:
        for handler in handlers if NAME not in registry else ():
            registry.add(handler)
            stack.callback(registry.remove, handler.name)
        yield


def read_kinds(text: str) -> dict[str, float]:
    """Kinds of remote work and their deadlines in seconds, from `writing:1200, speaking:3600`."""
    kinds: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        kind, _, number = part.partition(":")
        kind, number = kind.strip(), number.strip()
        named = kind.isascii() and kind.replace("-", "").replace("_", "").isalnum() and len(kind) <= _KIND_LENGTH_MAX
        if not named or not number.isdigit() or not 1 <= int(number[:10]) <= _DEADLINE_SECONDS_MAX or kind in kinds:
            raise UsageError(
                f"remote_kinds: {part[:60]!r} is not valid: write kind:seconds", hint="writing:1200, speaking:3600"
            )
        kinds[kind] = float(number)
    return kinds


@asynccontextmanager
async def remote_here(app: Backstay, client: Client, broker: Broker | None = None) -> AsyncIterator[None]:
    """For a worker beside the service: while the block runs it also does remote work, if it knows the service's key,
    and its URL or a broker. Otherwise it leaves remote work to others."""
    key = app.settings.secret_key or local_service_key(app)
    if key is None or (app.settings.public_url is None and broker is None):
        yield
        return
    outgoing = Outgoing(app.settings.inside_hosts)
    try:
        seals = CallbackTags(Signer(key), client.store.inbox, client.clock)
        async with remote_work(app, client, seals, outgoing, broker):
            yield
    finally:
        await outgoing.close()


@asynccontextmanager
async def remote_work(
    app: Backstay, client: Client, seals: CallbackTags, outgoing: Outgoing, broker: Broker | None
) -> AsyncIterator[None]:
    """While the block runs there are handlers for remote items, and with a broker callbacks are read from it."""
    settings = app.settings
    ways: dict[str, Way] = {HTTP: over_http(outgoing, seals, settings.public_url)}
    async with AsyncExitStack() as stack:
        if broker is not None:
            messages = over_messages(broker, settings, client.store.inbox, seals, client.clock, app.bus)
            ways[MESSAGES] = await stack.enter_async_context(messages)
        stack.enter_context(remote_handlers(app.handlers, ways, client.store.inbox, settings))
        yield


def local_service_key(app: Backstay) -> str | None:
    """The key that a service on this machine has created."""
    place = app.settings.data or (None if is_postgres(app.url) else str(default_folder(app.url)))
    if place is None or place.startswith("s3://"):
        return None
    path = Path(place) / KEY_FILE
    return path.read_text(encoding="ascii").strip() if path.is_file() else None


class CallbackDesk:
    """Receives callbacks: only for requests that were sent from here, and stored before anything else."""

    def __init__(self, inbox: InboxMessages, seals: CallbackTags) -> None:
        self._inbox = inbox
        self._seals = seals

    async def receive(self, told: TaggedCallback) -> Poison | None:
        opened = await self._seals.open(told.item, told.fence, told.tag)
        if opened is None:
            return Poison("its tag is not valid")
        try:
            await self._inbox.receive(*opened, told.callback)
        except (NotFound, NotAllowed) as error:
            return Poison(error.message)
        return None


@asynccontextmanager
async def over_messages(
    broker: Broker, settings: Settings, inbox: InboxMessages, seals: CallbackTags, clock: Clock, bus: Bus
) -> AsyncIterator[OverMessages]:
    """The way out while the block runs, and the reader of callbacks."""
    from backstay.remote.over_messages import (
        BrokerRequests,  # needs the extra, which a process without a broker need not have
    )

    requests = BrokerRequests(settings.broker_url or "", clock)
    reader = CallbackReader(broker, CallbackDesk(inbox, seals).receive, clock, new_random(), bus.emit)
    topology = broker.topology
    named = frozenset(name.strip() for name in settings.remote_exchanges.split(",") if name.strip())
    reader.start()
    try:
        place = {"exchange": topology.callbacks, "routing_key": topology.callbacks}
        yield OverMessages(requests, place, topology.prefix, named, seals.tag, seals.sign)
    finally:
        await reader.stop()
        await requests.close()
