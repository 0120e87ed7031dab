"""Reads what remote workers say out of its queue: kept first, acknowledged when that is committed, in order per item.

While nothing can be kept the messages stay unacknowledged, a bounded number of them in hand, and are tried again with
growing pauses. What nobody can ever use goes to the dead queue with its reason, and only then away from here.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, NamedTuple
from zlib import crc32

from backstay.clock import Clock, Tasks
from backstay.core.callbacks import Told
from backstay.core.errors import DatabaseUnreachable
from backstay.core.events import Event, MessageSetAside, Trouble
from backstay.core.failures import one_line
from backstay.messaging.broker import Broker
from backstay.messaging.delivery import MessageDelivery, Subscription
from backstay.messaging.messages import Poison, read_callback, set_aside

PREFETCH: Final = 32  # messages in hand; each may have CALLBACK_BYTES_MAX
LANES: Final = 16  # messages at once; those of one item follow each other
PAUSE_SECONDS: Final = 0.5
PAUSE_SECONDS_MAX: Final = 10.0
TRIES_MAX: Final = 5  # of a message that upsets us for no reason we know

Receive = Callable[[Told], Awaitable[Poison | None]]


class Parcel(NamedTuple):
    delivery: MessageDelivery
    told: Told | Poison


class CallbackReader:
    """One life: start, stop. What is in hand when it stops is delivered to someone else."""

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
        self._lanes: list[asyncio.Queue[Parcel]] = []

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
        key = told.item if isinstance(told, Told) else ""
        self._lanes[crc32(key.encode()) % LANES].put_nowait(Parcel(delivery, told))

    async def _follow(self, lane: "asyncio.Queue[Parcel]") -> None:
        while True:
            parcel = await lane.get()
            failures = 0
            while parcel.delivery.open and not await self._settled(parcel, failures):
                failures += 1
                top = min(PAUSE_SECONDS * 2 ** min(failures - 1, 16), PAUSE_SECONDS_MAX)
                await self._clock.sleep(top * self._rng.uniform(0.5, 1.0))

    async def _settled(self, parcel: Parcel, failures: int) -> bool:
        """Whether the message is dealt with: kept, or put aside. One that is not is tried again."""
        try:
            poison = parcel.told if isinstance(parcel.told, Poison) else await self._receive(parcel.told)
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
