"""Gathers single requests into shards, each of which becomes one batch: of one job, one model and one endpoint."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from backstay.clock import Clock, Tasks, wait_for_event
from backstay.core.errors import Throttled
from backstay.core.failures import failure_of_exception
from backstay.core.outcomes import Failed
from backstay.handlers.context import Context

QUIET_SECONDS: Final = 1.0  # after so long without another request, a shard is closed
GATHER_SECONDS: Final = 10.0  # after so long it is closed at the latest
STOP_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class ShardBounds:
    """Well within the provider's own: 50,000 requests and 200 MB for a batch."""

    requests_max: int = 10_000
    bytes_max: int = 100 << 20
    tokens_max: int | None = None  # of input; the provider bounds those that wait in all batches of a model


class Key(NamedTuple):
    """What the requests of a shard have in common. Of one job only, so that its cancelling cancels no other's."""

    job: str
    model: str | None
    url: str


class Batched(NamedTuple):
    """The batch that a shard became."""

    batch_id: str
    requests: int


class Entry:
    """A request in a shard, and who waits for what becomes of it."""

    __slots__ = ("body", "bytes", "context", "outcome", "ref", "tokens")

    def __init__(self, ref: str, body: str, bytes_: int, tokens: int, context: Context) -> None:
        self.ref = ref
        self.body = body
        self.bytes = bytes_
        self.tokens = tokens
        self.context = context
        self.outcome: asyncio.Future[Batched | Failed] = asyncio.get_running_loop().create_future()


class Shard:
    def __init__(self, key: Key, bounds: ShardBounds, now: float) -> None:
        self.key = key
        self.bounds = bounds
        self.entries: dict[str, Entry] = {}
        self.bytes = 0
        self.tokens = 0
        self.opened_at = self.joined_at = now
        self.closed = asyncio.Event()
        self.broken = False  # someone left it when it was too late to do without them

    def has_room(self, entry: Entry) -> bool:
        """An empty one has room for everything: what is too large is for the provider to say."""
        bounds = self.bounds
        return not self.entries or (
            len(self.entries) < bounds.requests_max
            and self.bytes + entry.bytes <= bounds.bytes_max
            and (bounds.tokens_max is None or self.tokens + entry.tokens <= bounds.tokens_max)
        )

    def add(self, entry: Entry, now: float) -> None:
        self.leave(entry.ref)
        self.entries[entry.ref] = entry
        self.bytes += entry.bytes
        self.tokens += entry.tokens
        self.joined_at = now
        if len(self.entries) >= self.bounds.requests_max:
            self.closed.set()

    def leave(self, ref: str) -> None:
        """Nobody waits for this one any more, so it must not be sent."""
        entry = self.entries.get(ref)
        if entry is None:
            return
        if self.closed.is_set():
            self.broken = True
            return
        del self.entries[ref]
        self.bytes -= entry.bytes
        self.tokens -= entry.tokens
        entry.outcome.cancel()

    @property
    def seconds_left(self) -> float:
        """Until the first of the runs that wait is cut off."""
        return min((entry.context.seconds_left for entry in self.entries.values()), default=0.0)

    def is_stopped(self) -> bool:
        """Whether its job was cancelled meanwhile."""
        return bool(self.entries) and all(entry.context.stopped for entry in self.entries.values())

    @property
    def digest(self) -> str:
        """Names the shard by what is in it, in whatever order that came."""
        return hashlib.sha256("".join(sorted(self.entries)).encode()).hexdigest()[:32]


Send = Callable[[Shard], Awaitable[Batched | Failed]]


class Gatherer:
    def __init__(
        self,
        send: Send,
        clock: Clock,
        tasks: Tasks,
        quiet_seconds: float = QUIET_SECONDS,
        gather_seconds: float = GATHER_SECONDS,
    ) -> None:
        self._send = send
        self._clock = clock
        self._tasks = tasks
        self._quiet_seconds = quiet_seconds
        self._gather_seconds = gather_seconds
        self._open: dict[Key, Shard] = {}
        self._lives: dict[asyncio.Task[None], Shard] = {}

    async def join(self, key: Key, entry: Entry, bounds: ShardBounds) -> Batched | Failed:
        """Puts a request into the shard that is open for its like, and waits for what becomes of it."""
        now = self._clock.monotonic()
        shard = self._open.get(key)
        if shard is not None and (shard.closed.is_set() or not shard.has_room(entry)):
            shard.closed.set()
            shard = None
        if shard is None:
            shard = self._open[key] = Shard(key, bounds, now)
            life = self._tasks.spawn(self._live(shard))
            self._lives[life] = shard
            life.add_done_callback(self._lives.pop)
        shard.add(entry, now)
        try:
            return await entry.outcome
        except asyncio.CancelledError:
            shard.leave(entry.ref)
            raise

    async def close(self) -> None:
        """Gives up the shards that are not sent yet. One whose job was cancelled has its batch to cancel first."""
        if stopped := [life for life, shard in self._lives.items() if shard.is_stopped()]:
            await asyncio.wait(stopped, timeout=STOP_SECONDS)
        lives = list(self._lives)
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)

    async def _live(self, shard: Shard) -> None:
        try:
            await self._gather(shard)
            if self._open.get(shard.key) is shard:
                del self._open[shard.key]
            if shard.entries:
                settle(shard.entries.values(), await self._outcome(shard))
        finally:  # if it was given up, nobody knows what became of it, so nobody is told anything
            for entry in shard.entries.values():
                entry.outcome.cancel()

    async def _outcome(self, shard: Shard) -> Batched | Failed:
        try:
            return await self._send(shard)
        except Exception as error:
            return Failed(failure_of_exception(error, self._clock.now_ms()))

    async def _gather(self, shard: Shard) -> None:
        while not shard.closed.is_set():
            ends_at = min(shard.joined_at + self._quiet_seconds, shard.opened_at + self._gather_seconds)
            left = ends_at - self._clock.monotonic()
            if left <= 0:
                break
            await wait_for_event(shard.closed, left)
        shard.closed.set()


def settle(entries: Collection[Entry], outcome: Batched | Failed) -> None:
    for entry in entries:
        if not entry.outcome.done():
            entry.outcome.set_result(outcome)


def drop_late(shard: Shard, seconds: float) -> None:
    """Sends those back, at no cost, whose claims will be too old when the others are sent."""
    late = [entry for entry in shard.entries.values() if entry.context.seconds_left < seconds]
    for entry in late:
        del shard.entries[entry.ref]
        shard.bytes -= entry.bytes
    settle(late, Failed(failure_of_exception(too_late())))


def too_late() -> Throttled:
    return Throttled("the claim was too old to send under; it will be taken anew", retry_after_seconds=0)
