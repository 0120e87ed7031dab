"""The relay to a broker: takes hints and users' messages out of the outbox, publishes them with confirms, and marks
them; the oldest first.

Any number of relays may run at once: each row is claimed by one of them. One that dies between publish and mark leaves
its rows to the next when the lease is over, and the same id is published again; who acts on it asks the database.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Final, NamedTuple, Protocol

from backstay.app import Backstay
from backstay.client import Client
from backstay.clock import Clock, Tasks, new_random, wait_for_event
from backstay.core.events import MessagesPublished, OutboxLag, Trouble
from backstay.core.failures import one_line
from backstay.messaging.messages import OutgoingMessage, hint_of, user_message
from backstay.messaging.topology import Topology
from backstay.observe.bus import Bus
from backstay.store.outbox import MESSAGES, WORK, Message, Outbox

BATCH_MESSAGES: Final = 500  # one is being published, the next is claimed, the last one marked: three are in hand
BATCH_USER_MESSAGES: Final = 100  # of users, which may be large
PROBE_MESSAGES: Final = 10  # the first ones after a failure
LEASE_MS: Final = 120_000  # longer than a batch can take to be published and marked
LAG_SECONDS: Final = 5.0  # between looks at how far behind the relays are
NOTICE_SECONDS: Final = 1.0  # between looks at items that have failed
IDLE_SECONDS: Final = 0.01
IDLE_SECONDS_MAX: Final = 0.1  # nobody can ring from other processes, so it looks often
AWAY_SECONDS: Final = 0.1  # between looks at whether the broker is there; it is kept by others
BACKOFF_SECONDS: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 30.0
ROW_DELAY_MS: Final = 1_000  # of a message that is not taken while others are; doubles with each try
ROW_DELAY_MS_MAX: Final = 60_000
STOP_SECONDS: Final = 10.0
UNCONFIRMED: Final = "the broker did not confirm it"


class HintPublisher(Protocol):
    @property
    def publishing(self) -> bool: ...
    @property
    def topology(self) -> Topology: ...
    async def publish_many(self, outgoing: Sequence[OutgoingMessage]) -> list[bool]: ...


class Cargo(NamedTuple):
    """What a relay takes: the messages of one sink, how many at once, and what becomes of each."""

    sink: str
    batch: int
    make: Callable[[Topology, Message], OutgoingMessage]


HINTS: Final = Cargo(WORK, BATCH_MESSAGES, hint_of)
USER_MESSAGES: Final = Cargo(MESSAGES, BATCH_USER_MESSAGES, user_message)


class OutboxRelay:
    """One life: start, stop."""

    def __init__(
        self, outbox: Outbox, publisher: HintPublisher, clock: Clock, bus: Bus, rng: Random, cargo: Cargo = HINTS
    ) -> None:
        self._outbox = outbox
        self._cargo = cargo
        self._publisher = publisher
        self._clock = clock
        self._bus = bus
        self._rng = rng
        self._tasks = Tasks()
        self._stopping = asyncio.Event()
        self._failures = 0  # batches in a row of which nothing was confirmed: above nought the breaker is open
        self._shut_until = float("-inf")
        self._publishing: asyncio.Task[None] | None = None
        self._marking: asyncio.Task[None] | None = None
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = self._tasks.spawn(self._run(), name=f"relay of {self._cargo.sink}")

    async def stop(self) -> None:
        """What is on its way has a while to be confirmed and marked, so that an end in order repeats nothing."""
        self._stopping.set()
        if self._loop is not None:
            await asyncio.wait([self._loop], timeout=STOP_SECONDS)
        await self._tasks.stop()

    async def _run(self) -> None:
        idle = IDLE_SECONDS
        while not self._stopping.is_set():
            try:
                if await self._step():
                    idle = IDLE_SECONDS
                    continue
            except Exception as error:
                self._bus.emit(Trouble("relay", f"{type(error).__name__}: {error}"))
                idle = BACKOFF_SECONDS
            await wait_for_event(self._stopping, idle)
            idle = min(idle * 2, IDLE_SECONDS_MAX)
        await self._published()
        await self._marked()

    async def _step(self) -> bool:
        """Claims a batch while the one before is being published; says whether it found any."""
        if not self._may_claim():
            await self._published()  # whose failure may have been the reason
            await wait_for_event(self._stopping, AWAY_SECONDS)
            return False
        size = PROBE_MESSAGES if self._failures else self._cargo.batch
        messages = await self._outbox.claim(self._cargo.sink, size, LEASE_MS)
        await self._published()
        if messages:
            self._publishing = self._tasks.spawn(self._publish(messages))
        return bool(messages)

    def _may_claim(self) -> bool:
        """While the broker is away nothing is claimed: no row, no try and no memory is spent on it."""
        return self._publisher.publishing and self._clock.monotonic() >= self._shut_until

    async def _published(self) -> None:
        if self._publishing is not None:
            publishing, self._publishing = self._publishing, None
            await publishing

    async def _marked(self) -> None:
        if self._marking is not None:
            marking, self._marking = self._marking, None
            await marking

    async def _publish(self, messages: Sequence[Message]) -> None:
        told, outgoing, bad = self._to_messages(messages)
        error = UNCONFIRMED
        try:
            confirmed = await self._publisher.publish_many(outgoing) if outgoing else []
        except Exception as raised:
            confirmed = [False] * len(outgoing)
            error = one_line(f"{type(raised).__name__}: {raised}")
        self._judge(confirmed, error)
        await self._marked()  # the one before: marks do not overtake each other, nor pile up
        self._marking = self._tasks.spawn(self._mark(told, confirmed, bad, error))

    def _to_messages(self, messages: Sequence[Message]) -> tuple[list[Message], list[OutgoingMessage], list[Message]]:
        """Rows that can be sent, as messages, and those that cannot: one bad row must not be in the way of the rest."""
        told, outgoing, bad = [], [], []
        for message in messages:
            try:
                outgoing.append(self._cargo.make(self._publisher.topology, message))
                told.append(message)
            except (ValueError, TypeError, KeyError, AttributeError):
                bad.append(message)
        return told, outgoing, bad

    def _judge(self, confirmed: Sequence[bool], error: str) -> None:
        """The breaker: when nothing of a batch was taken, nothing is claimed for a while, then a few."""
        if not confirmed:
            return
        if any(confirmed):
            self._failures = 0
            return
        self._failures += 1
        top = min(BACKOFF_SECONDS * 2 ** min(self._failures - 1, 16), BACKOFF_SECONDS_MAX)
        self._shut_until = self._clock.monotonic() + top * self._rng.uniform(0.5, 1.0)
        if self._failures == 1:
            self._bus.emit(Trouble("relay", f"publishing is paused: {error}"))

    async def _mark(
        self, messages: Sequence[Message], confirmed: Sequence[bool], bad: Sequence[Message], error: str
    ) -> None:
        done = [message.id for message, ok in zip(messages, confirmed, strict=True) if ok]
        missed = [message for message, ok in zip(messages, confirmed, strict=True) if not ok]
        # Behind the last that was taken the broker went away: not their fault, they keep their place.
        taken = max((at for at, ok in enumerate(confirmed, 1) if ok), default=0)
        cut_off = [message.id for message in messages[taken:]]
        try:
            await self._outbox.mark_published(done)
            await self._outbox.mark_failed(cut_off, error, 0)
            await self._missed(missed[: len(missed) - len(cut_off)], error)
            await self._outbox.mark_failed(
                [message.id for message in bad], "the message cannot be read", ROW_DELAY_MS_MAX
            )
        except Exception as trouble:  # the lease ends, and they are published again under the same ids
            self._bus.emit(Trouble("relay", f"{type(trouble).__name__}: {trouble}"))
        self._bus.emit(MessagesPublished(self._cargo.sink, len(done), len(missed) + len(bad)))

    async def _missed(self, messages: Sequence[Message], error: str) -> None:
        """Others were taken, these were not: each waits for itself, longer with every try."""
        for tries in sorted({message.tries for message in messages}):
            delay_ms = min(ROW_DELAY_MS * 2 ** min(tries - 1, 16), ROW_DELAY_MS_MAX)
            await self._outbox.mark_failed([one.id for one in messages if one.tries == tries], error, delay_ms)


@asynccontextmanager
async def relaying_all(app: Backstay, client: Client, broker: HintPublisher) -> AsyncIterator[None]:
    """While the block runs, hints about work, users' messages and events about items leave for the broker."""
    async with (
        relaying_work(app, client, broker),
        relaying_work(app, client, broker, USER_MESSAGES),
        reporting_failures(client),
    ):
        yield


@asynccontextmanager
async def relaying_work(
    app: Backstay, client: Client, broker: HintPublisher, cargo: Cargo = HINTS
) -> AsyncIterator[OutboxRelay]:
    """While the block runs, hints about work, or other messages, leave for the broker, and their number is reported."""
    outbox = client.store.outbox
    await outbox.open_sink(cargo.sink)
    relay = OutboxRelay(outbox, broker, client.clock, app.bus, new_random(), cargo)
    relay.start()
    try:
        async with reporting_lag(client, cargo.sink):
            yield relay
    finally:
        await relay.stop()


@asynccontextmanager
async def reporting_failures(client: Client) -> AsyncIterator[None]:
    """While the block runs, events about failed items are written; any number of processes may do it."""

    async def tell() -> None:
        while await client.store.outbox.tell_failed():
            pass

    async with _repeating(client, tell, NOTICE_SECONDS, "failed items"):
        yield


async def report_lag(client: Client, sink: str) -> None:
    lag = await client.store.outbox.lag(sink)
    client.bus.emit(OutboxLag(sink, lag.rows, lag.age_ms))


@asynccontextmanager
async def reporting_lag(client: Client, sink: str) -> AsyncIterator[None]:
    """While the block runs, every few seconds; any number of processes may do it."""

    async def tell() -> None:
        await report_lag(client, sink)

    async with _repeating(client, tell, LAG_SECONDS, f"lag of {sink}"):
        yield


@asynccontextmanager
async def _repeating(
    client: Client, tell: Callable[[], Awaitable[None]], seconds: float, name: str
) -> AsyncIterator[None]:
    tasks = Tasks()

    async def tell_on() -> None:
        while True:
            try:
                await tell()
            except Exception as error:
                client.bus.emit(Trouble("outbox", f"{type(error).__name__}: {error}"))
            await client.clock.sleep(seconds)

    tasks.spawn(tell_on(), name=name)
    try:
        yield
    finally:
        await tasks.stop()
