"""Looks after the outbox: tells how far behind its relays are, and drops what has left or is of no use any more."""

from collections.abc import Sequence
from typing import Final

from backstay.clock import Clock, Tasks
from backstay.core.events import OutboxLag, Trouble
from backstay.observe.bus import Bus
from backstay.store.outbox import Outbox

WEBHOOKS: Final = "webhooks"  # the sink of what happened to jobs and batches
LAG_SECONDS: Final = 5.0
PRUNE_SECONDS: Final = 60.0


class OutboxCare:
    """One life: start, stop. It tells of the sinks that it is given; any number of them may look after one outbox."""

    def __init__(self, outbox: Outbox, sinks: Sequence[str], clock: Clock, bus: Bus) -> None:
        self._outbox = outbox
        self._sinks = tuple(sinks)
        self._clock = clock
        self._bus = bus
        self._tasks = Tasks()
        self._prune_at = float("-inf")

    def start(self) -> None:
        self._tasks.spawn(self._run(), name="outbox care")

    async def stop(self) -> None:
        await self._tasks.stop()

    async def run_once(self) -> None:
        for sink in self._sinks:
            lag = await self._outbox.lag(sink)
            self._bus.emit(OutboxLag(sink, lag.rows, lag.age_ms))
        if self._clock.monotonic() >= self._prune_at:
            self._prune_at = self._clock.monotonic() + PRUNE_SECONDS
            await self._outbox.prune()

    async def _run(self) -> None:
        while True:
            try:
                await self.run_once()
            except Exception as error:
                self._bus.emit(Trouble("outbox", f"{type(error).__name__}: {error}"))
            await self._clock.sleep(LAG_SECONDS)
