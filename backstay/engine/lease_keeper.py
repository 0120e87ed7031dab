"""Extends leases from a thread of its own: a handler that blocks the event loop keeps its items."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

from backstay.core.events import LeasesLost
from backstay.engine.parts import Cut, Flights, Parts
from backstay.store.store import Store

AGAIN_SECONDS = 1.0  # after a beat that failed: a lease has time for few of them

OpenStore = Callable[[], Awaitable[Store]]


async def beat(store: Store, flights: Flights, parts: Parts) -> set[tuple[int, int]]:
    """One beat: extends every lease held and returns the lost ones, as (item, fence). An item whose time is over is not
    lost: its run continues, because a late result is kept."""
    if polled := flights.polled_leases():
        await store.items.extend_polls(polled, parts.lease_ms)
    return await store.items.extend(flights.leases(parts.clock.monotonic()), parts.lease_ms, parts.worker)


def drop_lost_items(lost: set[tuple[int, int]], flights: Flights, parts: Parts) -> None:
    """Cuts off the runs of items that someone else has now: what they would write is refused anyway.

    By fence, because an item that was settled during the beat may be back under a new claim of this very worker; and
    only what still runs, because one that has ended is in the settler's hands.
    """
    gone = [f for f in flights.all() if (f.item.id, f.item.fence) in lost and f.cut is None and f.flying]
    for flight in gone:
        flight.cut_off(Cut.LOST)
    if gone:
        parts.emit(LeasesLost(parts.worker, tuple(flight.item.id for flight in gone)))


class LeaseKeeper:
    """The thread, with an event loop and a database connection that nobody else uses."""

    def __init__(self, parts: Parts, flights: Flights, open_store: OpenStore) -> None:
        self._parts = parts
        self._flights = flights
        self._open_store = open_store
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name="backstay-heart", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        self._stopping.set()
        await asyncio.to_thread(self._thread.join, 10)

    async def _live(self) -> None:
        store: Store | None = None
        pause = regular = self._parts.limits.heartbeat_seconds
        while not await asyncio.to_thread(self._stopping.wait, pause):
            pause = min(regular, AGAIN_SECONDS)
            try:
                if store is None:
                    store = await self._open_store()
                lost = await beat(store, self._flights, self._parts)
            except Exception as error:  # whatever it is, the next beat must come
                self._tell(self._parts.note_refusal, "heartbeat", f"{type(error).__name__}: {error}")
                continue
            self._tell(self._parts.note_success, "heartbeat")
            pause = regular
            if lost:
                self._loop.call_soon_threadsafe(drop_lost_items, lost, self._flights, self._parts)
        if store is not None:
            await store.close()

    def _tell(self, listener: Callable[..., None], *words: str) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(listener, *words)
