"""Gathers single requests into shards, each of which becomes one batch: of one job, one model and one endpoint."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from backstay.clock import Clock, Tasks, wait_for_event
from backstay.core.errors import ErrorCode, HandlerError, Permanent, Throttled
from backstay.core.failures import failure_of_exception
from backstay.core.models import Failed
from backstay.handlers.handler import Context, open_items

BATCH_REQUESTS_MAX: Final = 10_000  # that are put together at once
QUIET_SECONDS: Final = 1.0  # after so long without another request, a shard is closed
GATHER_SECONDS: Final = 10.0  # after so long it is closed at the latest
STOP_SECONDS: Final = 10.0
WAIT_SECONDS_MAX: Final = 900.0  # of a shard that is too small: each wait is stored
WAITS_IN_VAIN_MAX: Final = 3
SHARDS_REMEMBERED_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class ShardBounds:
    """The size limits of a batch, well below what its provider allows."""

    requests_max: int = BATCH_REQUESTS_MAX
    bytes_max: int = 100 << 20
    tokens_max: int | None = None  # of input; the provider limits the tokens that wait in all batches of a model
    requests_min: int = 1  # the provider takes no smaller batch


class ShardKey(NamedTuple):
    """The properties that all requests of a shard share. A shard is of one job only, so that cancelling a job does not
    cancel requests of others."""

    job: str
    model: str | None
    url: str


class SentBatch(NamedTuple):
    """The batch that a shard became."""

    batch_id: str
    requests: int


class ShardEntry:
    """A request in a shard, and the future of its outcome."""

    __slots__ = ("body", "bytes", "context", "outcome", "ref", "shard", "tokens")

    def __init__(self, ref: str, body: str, bytes_: int, tokens: int, context: Context) -> None:
        self.ref = ref
        self.body = body
        self.bytes = bytes_
        self.tokens = tokens
        self.context = context
        self.outcome: asyncio.Future[SentBatch | Failed] = asyncio.get_running_loop().create_future()
        self.shard: Shard | None = None


class Shard:
    def __init__(self, key: ShardKey, bounds: ShardBounds, now: float) -> None:
        self.key = key
        self.bounds = bounds
        self.entries: dict[str, ShardEntry] = {}
        self.bytes = 0
        self.tokens = 0
        self.opened_at = self.joined_at = now
        self.closed = asyncio.Event()
        self.broken = False  # a request was given up too late to be taken out

    def has_room(self, entry: ShardEntry) -> bool:
        """An empty shard has room for everything: the provider decides what is too large. So has one that could not be
        split into two that are large enough."""
        bounds = self.bounds
        if len(self.entries) < (1 if bounds.requests_min == 1 else 2 * bounds.requests_min):
            return True
        return (
            len(self.entries) < bounds.requests_max
            and self.bytes + entry.bytes <= bounds.bytes_max
            and (bounds.tokens_max is None or self.tokens + entry.tokens <= bounds.tokens_max)
        )

    def add(self, entry: ShardEntry, now: float) -> None:
        self.leave(entry.ref)
        self._put(entry)
        self.joined_at = now
        if self.bounds.requests_min == 1 and len(self.entries) >= self.bounds.requests_max:
            self.closed.set()

    def split(self, bounds: ShardBounds, now: float) -> "Shard":
        """The next shard, which gets as many of the newest requests as it needs at least: whatever still comes, it is
        large enough."""
        following = Shard(self.key, bounds, now)
        kept = bounds.requests_min if bounds.requests_min > 1 and not self.closed.is_set() else 0
        for entry in list(self.entries.values())[len(self.entries) - kept :]:
            self._take(entry)
            following._put(entry)
        self.closed.set()
        return following

    def _put(self, entry: ShardEntry) -> None:
        self.entries[entry.ref] = entry
        self.bytes += entry.bytes
        self.tokens += entry.tokens
        entry.shard = self

    def _take(self, entry: ShardEntry) -> None:
        del self.entries[entry.ref]
        self.bytes -= entry.bytes
        self.tokens -= entry.tokens

    def leave(self, ref: str) -> None:
        """This request is no longer awaited, so it must not be sent."""
        entry = self.entries.get(ref)
        if entry is None:
            return
        if self.closed.is_set():
            self.broken = True
            return
        self._take(entry)
        entry.outcome.cancel()

    @property
    def seconds_left(self) -> float:
        """The time until the first of the waiting runs is cut off."""
        return min((entry.context.seconds_left for entry in self.entries.values()), default=0.0)

    def is_stopped(self) -> bool:
        """Whether its job was cancelled meanwhile."""
        return bool(self.entries) and all(entry.context.stopped for entry in self.entries.values())

    @property
    def digest(self) -> str:
        """Identifies the shard by its content, in any order."""
        return hashlib.sha256("".join(sorted(self.entries)).encode()).hexdigest()[:32]


Send = Callable[[Shard], Awaitable[SentBatch | Failed]]


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
        self._open: dict[ShardKey, Shard] = {}
        self._lives: dict[asyncio.Task[None], Shard] = {}

    async def join(self, key: ShardKey, entry: ShardEntry, bounds: ShardBounds) -> SentBatch | Failed:
        """Puts a request into the open shard of its group, and waits for its outcome."""
        now = self._clock.monotonic()
        shard = self._open.get(key)
        if shard is None:
            shard = self._start(Shard(key, bounds, now))
        elif shard.closed.is_set() or not shard.has_room(entry):
            shard = self._start(shard.split(bounds, now))
        shard.add(entry, now)
        try:
            return await entry.outcome
        except asyncio.CancelledError:
            (entry.shard or shard).leave(entry.ref)
            raise

    def _start(self, shard: Shard) -> Shard:
        self._open[shard.key] = shard
        life = self._tasks.spawn(self._live(shard))
        self._lives[life] = shard
        life.add_done_callback(self._lives.pop)
        return shard

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
        finally:  # if it was given up, the outcome is unknown, so no future gets a result
            for entry in shard.entries.values():
                entry.outcome.cancel()

    async def _outcome(self, shard: Shard) -> SentBatch | Failed:
        try:
            return await self._send(shard)
        except Exception as error:
            return Failed(failure_of_exception(error, self._clock.now_ms()))

    async def _gather(self, shard: Shard) -> None:
        while not shard.closed.is_set():
            if self._is_unfinished(shard):
                shard.joined_at = self._clock.monotonic()
            ends_at = min(shard.joined_at + self._quiet_seconds, shard.opened_at + self._gather_seconds)
            left = ends_at - self._clock.monotonic()
            if left <= 0:
                break
            await wait_for_event(shard.closed, left)
        shard.closed.set()

    def _is_unfinished(self, shard: Shard) -> bool:
        """Whether it waits for more requests, although none has come for a while: it is too small, or further requests
        can only be claimed after another shard of the group is sent. Without a minimum, a small shard may follow."""
        least = shard.bounds.requests_min
        others = (other for other in self._lives.values() if other is not shard and other.key == shard.key)
        return least > 1 and (len(shard.entries) < least or any(others))


def settle(entries: Collection[ShardEntry], outcome: SentBatch | Failed) -> None:
    for entry in entries:
        if not entry.outcome.done():
            entry.outcome.set_result(outcome)


def drop_late(shard: Shard, seconds: float) -> None:
    """Gives back, at no cost, requests whose claims will be too old when the others are sent."""
    late = [entry for entry in shard.entries.values() if entry.context.seconds_left < seconds]
    for entry in late:
        del shard.entries[entry.ref]
        shard.bytes -= entry.bytes
    settle(late, Failed(failure_of_exception(too_late())))


def too_late() -> Throttled:
    return Throttled("the claim is too old to send; the item will be claimed again", retry_after_seconds=0)


class SmallShards:
    """Decides about shards that are smaller than any batch that the provider takes.

    They wait as long as that can help: other requests of the job are at the provider and may fail, or other workers
    have some. Then their job calls them, if it has that lane; otherwise they fail.
    """

    def __init__(self, clock: Clock, wait_seconds: float) -> None:
        self._clock = clock
        self._wait_seconds = wait_seconds  # the first time; each wait is twice as long as the one before
        self._waits: dict[ShardKey, tuple[int, int]] = {}  # how often each waited, and how often with nothing under way

    async def judge(self, shard: Shard) -> Failed | None:
        """The outcome of all requests of a shard that is too small; None: it is large enough."""
        least, has = shard.bounds.requests_min, len(shard.entries)
        waits, in_vain = self._waits.pop(shard.key, (0, 0))
        if has >= least:
            return None
        context = next(iter(shard.entries.values())).context
        items = await open_items(context)
        under_way = items.at_provider > 0 or items.more_come
        enough = max(items.items, has) >= least or items.more_come
        few = f"the provider takes no batch with fewer than {least} requests of one model, and only {has} are left"
        move_at = context.move_at
        if enough and (under_way or in_vain < WAITS_IN_VAIN_MAX):
            if len(self._waits) >= SHARDS_REMEMBERED_MAX:
                self._waits.clear()
            self._waits[shard.key] = waits + 1, 0 if under_way else in_vain + 1
            return _failed(Throttled(f"{few}: they wait for others of their job", self._seconds(waits, move_at)))
        if move_at is not None:
            return replace(_failed(Throttled(f"{few}: they are called", 0)), moves=True)
        return _failed(Permanent(f"{few}: run them with --lane call", ErrorCode.GW_4XX))

    def _seconds(self, waits: int, move_at: int | None) -> float:
        """Until a round time, so that what several workers have comes back together and one of them gets it all."""
        now = self._clock.now_ms() / 1000
        period = min(self._wait_seconds * 2.0**waits, WAIT_SECONDS_MAX)
        at = (now // period + 1) * period
        return max((at if move_at is None else min(at, move_at / 1000)) - now, 0.0)


def _failed(error: HandlerError) -> Failed:
    return Failed(failure_of_exception(error))


class ByteLimit:
    """How many bytes a shard may have, learnt from the provider's answers: after a failure half as many, after a
    success more again."""

    def __init__(self, bounds: ShardBounds) -> None:
        self._given = bounds
        self._bytes_max = bounds.bytes_max

    @property
    def bounds(self) -> ShardBounds:
        return replace(self._given, bytes_max=self._bytes_max)

    def too_many_bytes(self, bytes_: int) -> None:
        """Records that an upload of so many bytes was refused or took too long. A larger one may have started before
        that."""
        if bytes_ <= self._bytes_max:
            self._bytes_max = max(bytes_ // 2, 1)  # a shard always has room for one request

    def bytes_fit(self, bytes_: int) -> None:
        if bytes_ > self._bytes_max // 2:
            self._bytes_max = min(self._bytes_max * 2, self._given.bytes_max)
