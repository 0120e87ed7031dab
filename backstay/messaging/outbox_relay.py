"""The relay to a broker: takes hints and users' messages out of the outbox, publishes them with confirms, and marks
them; the oldest first.

Any number of relays may run at once: each row is claimed by one of them. If a relay dies between publish and mark, the
next one publishes its rows again with the same ids, when the lease is over. A hint that comes twice does no harm.
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
from backstay.messaging.messages import OutgoingMessage, Topology, hint_of, user_message
from backstay.observe.bus import Bus
from backstay.store.outbox import MESSAGES, WORK, Message, Outbox

BATCH_MESSAGES: Final = 500  # three batches at a time: one is claimed, one is published, one is marked
BATCH_USER_MESSAGES: Final = 100  # of users, which may be large
PROBE_MESSAGES: Final = 10  # the first ones after a failure
LEASE_MS: Final = 120_000  # longer than a batch can take to be published and marked
LAG_SECONDS: Final = 5.0  # between looks at how far behind the relays are
NOTICE_SECONDS: Final = 1.0  # between looks at items that have failed
IDLE_SECONDS: Final = 0.01
IDLE_SECONDS_MAX: Final = 0.1  # other processes cannot wake it, so it looks often
AWAY_SECONDS: Final = 0.1  # between checks whether the broker is connected
BACKOFF_SECONDS: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 30.0
ROW_DELAY_MS: Final = 1_000  # of a message that is refused while others are confirmed; doubles with each try
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
    """The messages that a relay publishes: their sink, how many at once, and how a row becomes a message."""

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
        self._failures = 0  # batches in a row of which nothing was confirmed; above 0, publishing is paused
        self._shut_until = float("-inf")
        self._publishing: asyncio.Task[None] | None = None
        self._marking: asyncio.Task[None] | None = None
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = self._tasks.spawn(self._run(), name=f"relay of {self._cargo.sink}")

    async def stop(self) -> None:
        """Messages under way have some time to be confirmed and marked, so that a normal stop repeats nothing."""
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
        await self._finish_publishing()
        await self._finish_marking()

    async def _step(self) -> bool:
        """Claims a batch while the one before is being published; returns whether it found any messages."""
        if not self._may_claim():
            await self._finish_publishing()  # its failure may be the reason
            await wait_for_event(self._stopping, AWAY_SECONDS)
            return False
        size = PROBE_MESSAGES if self._failures else self._cargo.batch
        messages = await self._outbox.claim(self._cargo.sink, size, LEASE_MS)
        await self._finish_publishing()
        if messages:
            self._publishing = self._tasks.spawn(self._publish(messages))
        return bool(messages)

    def _may_claim(self) -> bool:
        """Nothing is claimed while the broker is not connected: it would only use up tries and memory."""
        return self._publisher.publishing and self._clock.monotonic() >= self._shut_until

    async def _finish_publishing(self) -> None:
        if self._publishing is not None:
            publishing, self._publishing = self._publishing, None
            await publishing

    async def _finish_marking(self) -> None:
        if self._marking is not None:
            marking, self._marking = self._marking, None
            await marking

    async def _publish(self, messages: Sequence[Message]) -> None:
        sent, outgoing, bad = self._to_messages(messages)
        error = UNCONFIRMED
        try:
            confirmed = await self._publisher.publish_many(outgoing) if outgoing else []
        except Exception as raised:
            confirmed = [False] * len(outgoing)
            error = one_line(f"{type(raised).__name__}: {raised}")
        self._judge(confirmed, error)
        await self._finish_marking()  # of the batch before: batches are marked one after the other
        self._marking = self._tasks.spawn(self._mark(sent, confirmed, bad, error))

    def _to_messages(self, messages: Sequence[Message]) -> tuple[list[Message], list[OutgoingMessage], list[Message]]:
        """The rows that can be sent, their messages, and the rows that cannot: a bad row must not stop the others."""
        good, outgoing, bad = [], [], []
        for message in messages:
            try:
                outgoing.append(self._cargo.make(self._publisher.topology, message))
                good.append(message)
            except (ValueError, TypeError, KeyError, AttributeError):
                bad.append(message)
        return good, outgoing, bad

    def _judge(self, confirmed: Sequence[bool], error: str) -> None:
        """If nothing of a batch was confirmed, nothing is claimed for a while, and then only a few messages."""
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
        # The messages after the last confirmed one were cut off when the broker went away: they keep their place.
        taken = max((at for at, ok in enumerate(confirmed, 1) if ok), default=0)
        cut_off = [message.id for message in messages[taken:]]
        try:
            await self._outbox.mark_published(done)
            await self._outbox.mark_failed(cut_off, error, 0)
            await self._mark_refused(missed[: len(missed) - len(cut_off)], error)
            await self._outbox.mark_failed(
                [message.id for message in bad], "the message cannot be read", ROW_DELAY_MS_MAX
            )
        except Exception as trouble:  # the lease ends, and they are published again under the same ids
            self._bus.emit(Trouble("relay", f"{type(trouble).__name__}: {trouble}"))
        self._bus.emit(MessagesPublished(self._cargo.sink, len(done), len(missed) + len(bad)))

    async def _mark_refused(self, messages: Sequence[Message], error: str) -> None:
        """Marks messages that were not confirmed although others were. Each waits, longer with every try."""
        for tries in sorted({message.tries for message in messages}):
            delay_ms = min(ROW_DELAY_MS * 2 ** min(tries - 1, 16), ROW_DELAY_MS_MAX)
            await self._outbox.mark_failed([one.id for one in messages if one.tries == tries], error, delay_ms)


@asynccontextmanager
async def relaying_all(app: Backstay, client: Client, broker: HintPublisher) -> AsyncIterator[None]:
    """While the block runs, hints, users' messages and events about items are published to the broker."""
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
    """While the block runs, hints or other messages are published to the broker, and the lag of the outbox is
    reported."""
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
    """While the block runs, the lag is reported every few seconds; any number of processes may do it."""

    async def tell() -> None:
        await report_lag(client, sink)

    async with _repeating(client, tell, LAG_SECONDS, f"lag of {sink}"):
        yield


@asynccontextmanager
async def _repeating(
    client: Client, tell: Callable[[], Awaitable[None]], seconds: float, name: str
) -> AsyncIterator[None]:
    tasks = Tasks()

    async def repeat() -> None:
        while True:
            try:
                await tell()
            except Exception as error:
                client.bus.emit(Trouble("outbox", f"{type(error).__name__}: {error}"))
            await client.clock.sleep(seconds)

    tasks.spawn(repeat(), name=name)
    try:
        yield
    finally:
        await tasks.stop()
