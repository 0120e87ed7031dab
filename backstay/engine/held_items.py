"""The items this worker holds: from their claim until their settlement is committed."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from backstay.core.models import Claimed
from backstay.core.states import ItemState
from backstay.engine.parts import Plan
from backstay.handlers.context import Context

DEAF_SECONDS = 10.0


class Cut(StrEnum):
    """Why a run was cut off from outside."""

    TIMEOUT = "timeout"
    LOST = "lost"  # the lease is gone: someone else decides
    STOPPED = "stopped"  # the job was cancelled
    SHUTDOWN = "shutdown"


class Flight:
    """One claimed item on its way."""

    __slots__ = ("begun", "context", "cut", "ends", "item", "plan", "probe", "started", "stopping", "task")

    def __init__(self, item: Claimed, plan: Plan, context: Context, started: float) -> None:
        self.item = item
        self.plan = plan
        self.context = context
        self.started = started
        self.ends = started + context.seconds_given
        self.task: asyncio.Task[Any] | None = None
        self.cut: Cut | None = None
        self.begun = False
        self.probe = False  # it tries a provider that was ill
        self.stopping = False  # its job was cancelled; what it has sent is waited for

    @property
    def flying(self) -> bool:
        return self.task is not None and not self.task.done()

    def stop_by(self, end: float) -> None:
        """Lets the run finish until then; one that has not begun is cut off at once."""
        if self.stopping or self.cut is not None:
            return
        self.stopping = self.context.stopped = True
        self.ends = min(self.ends, end)
        if not self.begun:
            self.cut_off(Cut.STOPPED)

    def cut_off(self, why: Cut) -> None:
        """Stops the run; a sync handler is notified by its context and left behind."""
        self.cut = why
        self.context.cancelled = True
        self.context.stopped = self.stopping
        # A task cancelled before its first step would never run at all; one that has not begun looks at `cut` itself.
        if self.task is not None and self.begun:
            self.task.cancel()


class Flights:
    """All items held now. The heart reads it from its own thread, so readers take a copy."""

    def __init__(self) -> None:
        # By fence too: a run whose lease is gone is still under way when this worker claims its item again.
        self._held: dict[tuple[int, int], Flight] = {}
        self._asked: dict[tuple[int, int], str] = {}  # with their states: what a provider is being asked about
        self.running = 0  # handlers under way; the rest waits for its settlement to be committed
        self.cut_short = 0  # runs stopped all at once, by a shutdown

    def add(self, flight: Flight) -> None:
        self._held[flight.item.id, flight.item.fence] = flight

    def drop(self, item: Claimed) -> None:
        """Lets go of one claim; a newer claim of the same item, by this very worker, is kept."""
        self._held.pop((item.id, item.fence), None)

    def holds(self, item_id: int, fence: int) -> bool:
        return (item_id, fence) in self._held

    def all(self) -> list[Flight]:
        return list(self._held.values())

    def cut_off(self, why: Cut) -> None:
        """Stops every run that is under way."""
        flying = [flight for flight in self.all() if flight.cut is None and flight.flying]
        for flight in flying:
            flight.cut_off(why)
        self.cut_short += len(flying)

    def leases(self, now: float) -> list[tuple[int, int]]:
        """The leases to extend. A run that ignores its cancellation long after its time is left out: others take it
        over."""
        flying = [
            lease for lease, flight in list(self._held.items()) if now < flight.ends + DEAF_SECONDS or not flight.flying
        ]
        return flying + self._asked_in(ItemState.SUBMITTING)

    @contextmanager
    def asking(self, items: Iterable[Claimed]) -> Iterator[None]:
        """While the block runs, these items are held on to: an answer may take longer than a lease."""
        asked = {(item.id, item.fence): item.state for item in items}
        self._asked.update(asked)
        try:
            yield
        finally:
            for lease in asked:
                del self._asked[lease]

    def polled_leases(self) -> list[tuple[int, int]]:
        """The tasks that providers are being asked about."""
        return self._asked_in(ItemState.PROCESSING)

    def _asked_in(self, state: ItemState) -> list[tuple[int, int]]:
        return [lease for lease, asked in list(self._asked.items()) if asked == state]

    def cut_overdue(self, now: float) -> None:
        """Cuts off the runs whose time is over. One pass over all is cheaper than a timer for each."""
        for flight in self.all():
            if flight.ends <= now and flight.cut is None and flight.flying:
                flight.cut_off(Cut.STOPPED if flight.stopping else Cut.TIMEOUT)

    def __len__(self) -> int:
        return len(self._held)
