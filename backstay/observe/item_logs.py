"""The execution log of each item: the log output of its handler, stored in pieces among the artifacts.

A piece is put when an item's run has ended, and now and then while it runs, so that a long one can be followed. The
memory for logs is limited, and the work never waits for it: the rest is left out, and the log says so.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from datetime import UTC, datetime
from typing import Final, Protocol

from backstay.clock import Clock, Tasks, new_id, wait_for_event
from backstay.core.events import Event, ItemLogged, ItemsSettled, LeasesLost, Trouble
from backstay.core.ids import job_of, position_of
from backstay.core.models import Settlement
from backstay.observe.bus import Bus

LINGER_SECONDS: Final = 5.0  # a line of a running item can be read at most so much later
ITEM_BYTES_MAX: Final = 1 << 20  # of one piece
MEMORY_BYTES_MAX: Final = 16 << 20
PUTS_AT_ONCE: Final = 8
LEFT_OUT: Final = "… the rest of the log is left out\n"


class Keeper(Protocol):
    """Where pieces go; `backstay.artifacts.Artifacts` is one."""

    async def put(self, name: str, chunks: AsyncIterable[bytes]) -> int: ...


def place_of(item_id: int) -> str:
    """The prefix of the names of an item's pieces; they sort by time."""
    return f"logs/{job_of(item_id)}/{position_of(item_id)}"


class ItemLogs:
    """A listener. `async with ItemLogs(…)` while work runs; at the end the rest is stored."""

    def __init__(self, keeper: Keeper, clock: Clock, bus: Bus) -> None:
        self._keeper = keeper
        self._clock = clock
        self._bus = bus
        self._lines: dict[int, list[str]] = {}
        self._sizes: dict[int, int] = {}
        self._size = 0
        self._ended: dict[int, None] = {}  # items with a piece to put now, in their order
        self._wake = asyncio.Event()
        self._stopping = False
        self._pieces = 0
        self._life = new_id()[:8]
        self._tasks = Tasks()

    async def __aenter__(self) -> "ItemLogs":
        self._bus.subscribe(self)
        self._putting = self._tasks.spawn(self._put_on(), "item-logs")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._stopping = True
        self._wake.set()
        await self._putting
        self._bus.unsubscribe(self)

    def __call__(self, event: Event) -> None:
        match event:
            case ItemLogged() if not self._stopping:
                self._say(event.item_id, event.text)
            case ItemsSettled() if self._lines:
                for settlement in event.settlements:
                    if settlement.id in self._lines:
                        self._end(settlement)
            case LeasesLost() if self._lines:
                for item_id in event.items:
                    if item_id in self._lines:
                        self._say(item_id, "the lease was lost: the result of this attempt does not count")
                        self._ended[item_id] = None
                        self._wake.set()
            case _:
                pass

    def _end(self, settlement: Settlement) -> None:
        attempt = settlement.attempt
        took = f" after {attempt.ended_at - attempt.started_at} ms" if attempt else ""
        code = f", {settlement.error_code}" if settlement.error_code else ""
        why = f": {attempt.message}" if attempt and attempt.message else ""
        self._say(settlement.id, f"[{settlement.state.value}{code}{took}]{why}")
        self._ended[settlement.id] = None
        self._wake.set()

    def _say(self, item_id: int, text: str) -> None:
        moment = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        line = f"{moment.removesuffix('+00:00')}Z {text}\n"
        size, given = self._sizes.get(item_id, 0), len(line.encode())
        if size > ITEM_BYTES_MAX or self._size > MEMORY_BYTES_MAX:
            if size and self._lines[item_id][-1] != LEFT_OUT:
                self._lines[item_id].append(LEFT_OUT)
            return
        self._lines.setdefault(item_id, []).append(line)
        self._sizes[item_id] = size + given
        self._size += given

    async def _put_on(self) -> None:
        whole_at = self._clock.monotonic()
        while not self._stopping:
            await wait_for_event(self._wake, LINGER_SECONDS)
            self._wake.clear()
            is_time = self._clock.monotonic() >= whole_at + LINGER_SECONDS
            await self._put_all(list(self._lines if is_time else self._ended))
            whole_at = self._clock.monotonic() if is_time else whole_at
        await self._put_all(list(self._lines))

    async def _put_all(self, items: list[int]) -> None:
        """A few at a time. A place that does not answer is reported once, not for every item."""
        for start in range(0, len(items), PUTS_AT_ONCE):
            some = [self._tasks.spawn(self._put(item)) for item in items[start : start + PUTS_AT_ONCE]]
            failed = [error for error in await asyncio.gather(*some, return_exceptions=True) if error is not None]
            if failed:
                self._bus.emit(Trouble("item logs", f"{type(failed[0]).__name__}: {failed[0]}"))
                return

    async def _put(self, item_id: int) -> None:
        self._ended.pop(item_id, None)
        lines, size = self._lines.pop(item_id, []), self._sizes.pop(item_id, 0)
        if not lines:
            return
        self._pieces += 1
        # The time keeps pieces of all writers in order; the rest of the name keeps pieces of one moment apart.
        name = f"{self._clock.now_ms():015d}-{self._pieces:09d}-{self._life}"
        try:
            await self._keeper.put(f"{place_of(item_id)}/{name}", _whole(lines))
            self._size -= size
        except BaseException:
            self._lines[item_id] = lines + self._lines.get(item_id, [])  # it is tried again with the next
            self._sizes[item_id] = size + self._sizes.get(item_id, 0)
            raise


async def _whole(lines: list[str]) -> AsyncIterator[bytes]:
    yield "".join(lines).encode()
