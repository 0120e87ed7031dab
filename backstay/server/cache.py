"""Less work for the database: state that server processes share through Redis, a cache of rendered details, and reads
that are combined.

A cached entry has a version in its name, and the caller brings the version that the database has now. So nothing
outdated is ever served: a change of state, by any process, makes a new name, and the old one is never asked for again.
"Not found" is not cached. Without Redis, more is rendered, and nothing else changes.

For routes: `await service.details.find(name, version, make)`. `name` says what it is ("item:12-345"), `version` comes
from a small, owner-guarded read of the rows themselves, `make()` renders the bytes and raises NotFound if there is
nothing. `CoalescedReads` combines many such small reads.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError

from backstay.clock import Clock, Tasks
from backstay.core.display import NextCommand, Sentence
from backstay.core.errors import NotFound, UsageError
from backstay.core.ids import show_item
from backstay.core.signing import Signer
from backstay.store.batches import Batch, batch_not_found
from backstay.store.files import may_be_id
from backstay.store.item_views import ItemView
from backstay.store.job_views import Asked, JobView
from backstay.store.store import Store

T = TypeVar("T")

CONNECTIONS_MAX: Final = 32
ANSWER_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 2.0  # after a failure nobody asks it for this long
PREFIX: Final = "backstay"


class SharedState:
    """Redis as an optional service: without an answer, every process continues on its own."""

    def __init__(self, url: str, clock: Clock) -> None:
        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=CONNECTIONS_MAX,
                timeout=ANSWER_SECONDS,
                socket_timeout=ANSWER_SECONDS,
                socket_connect_timeout=ANSWER_SECONDS,
            )
        except ValueError:  # its own message would repeat the URL, and with it the password
            raise UsageError("the Redis URL is not valid", hint="write redis://host:6379/0 or rediss://…") from None
        self._redis: Redis = Redis(connection_pool=pool)
        self._clock = clock
        self._resumes_at = float("-inf")

    @property
    def answers(self) -> bool:
        """Whether it is worth asking."""
        return self._clock.monotonic() >= self._resumes_at

    async def ask(self, call: Callable[[Redis], Awaitable[T]]) -> T | None:
        """The answer, or None if Redis does not answer."""
        if not self.answers:
            return None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await call(self._redis)
        except (RedisError, OSError, TimeoutError):
            self._resumes_at = self._clock.monotonic() + PAUSE_SECONDS
            return None

    async def count(self, name: str, expiry_seconds: int) -> int | None:
        """How often a name was counted so far, by all processes together."""

        async def count_one_more(redis: Redis) -> int:
            async with redis.pipeline(transaction=True) as both:  # a count without an expiry would be kept for ever
                both.incr(f"{PREFIX}:{name}")
                both.expire(f"{PREFIX}:{name}", expiry_seconds)
                counted: int = (await both.execute())[0]
                return counted

        return await self.ask(count_one_more)

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)


K = TypeVar("K")
V = TypeVar("V")

HERE_BYTES_MAX: Final = 64 << 20
DETAIL_BYTES_MAX: Final = 1 << 20
OVERHEAD_BYTES: Final = 300  # of an entry besides its text
GATHERED_MAX: Final = 500


class Details:
    """Rendered objects by name and version, in this process and in Redis."""

    def __init__(self, signer: Signer, shared: SharedState | None, seconds: float) -> None:
        self._signer = signer
        self._shared = shared
        self._seconds = seconds
        self._here: OrderedDict[str, bytes] = OrderedDict()
        self._here_bytes = 0

    async def find(self, name: str, version: str, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The object in this version; rendered if no process has it."""
        if self._seconds == 0:
            return await make()
        place = f"{name}:{version}"
        found = self._here.get(place)
        if found is not None:
            self._here.move_to_end(place)
            return found
        found = await self._shared_text(place)
        if found is None:
            found = await make()
            await self._share(place, found)
        self._keep(place, found)
        return found

    def _keep(self, place: str, text: bytes) -> None:
        size = len(text) + OVERHEAD_BYTES
        if len(text) > DETAIL_BYTES_MAX or place in self._here:
            return
        self._here[place] = text
        self._here_bytes += size
        while self._here_bytes > HERE_BYTES_MAX:
            _, gone = self._here.popitem(last=False)
            self._here_bytes -= len(gone) + OVERHEAD_BYTES

    async def _shared_text(self, place: str) -> bytes | None:
        """Only an entry that a process with our key wrote under this name: others may use the same Redis."""
        if self._shared is None:
            return None
        kept = await self._shared.ask(lambda redis: redis.get(self._address(place)))
        if not isinstance(kept, bytes):
            return None
        tag, _, text = kept.partition(b" ")
        return text if self._signer.fits(tag.decode("latin-1"), "detail", place, _digest(text)) else None

    async def _share(self, place: str, text: bytes) -> None:
        if self._shared is None or len(text) > DETAIL_BYTES_MAX:
            return
        kept = self._signer.tag("detail", place, _digest(text)).encode() + b" " + text
        ms = max(int(self._seconds * 1000), 1)
        await self._shared.ask(lambda redis: redis.set(self._address(place), kept, px=ms))

    def _address(self, place: str) -> str:
        return f"{PREFIX}:detail:{place}"


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


class ReadCoalescer(Generic[K, V]):
    """Combines reads: all callers that come while a read is under way share the next one."""

    def __init__(self, read: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._read = read
        self._tasks = Tasks()
        self._waiting: dict[K, asyncio.Future[V | None]] = {}
        self._reading = False

    async def find(self, key: K) -> V | None:
        """The value in the database after the call, or None."""
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = asyncio.get_running_loop().create_future()
        if not self._reading:
            self._reading = True
            self._tasks.spawn(self._read_on())
        return await asyncio.shield(waiting)  # a caller that is cancelled does not cancel the others

    async def _read_on(self) -> None:
        while self._waiting:
            keys = list(self._waiting)[:GATHERED_MAX]
            asked = {key: self._waiting.pop(key) for key in keys}
            try:
                found = await self._read(keys)
            except Exception as error:  # raised in every caller that waits
                for waiting in asked.values():
                    waiting.set_exception(error)
                    waiting.exception()  # retrieved here, because all callers may be gone
            else:
                for key, waiting in asked.items():
                    waiting.set_result(found.get(key))
        self._reading = False


class CoalescedReads:
    """Reads single objects of an owner, combined. The answer is never older than the call."""

    def __init__(self, store: Store) -> None:
        self._jobs: ReadCoalescer[Asked, JobView] = ReadCoalescer(store.job_views.many)
        self._items: ReadCoalescer[Asked, ItemView] = ReadCoalescer(store.item_views.many)
        self._batches: ReadCoalescer[tuple[str, str], Batch] = ReadCoalescer(store.batches.many)

    async def job(self, job_id: int, owner: str) -> JobView:
        found = await self._jobs.find((job_id, owner))
        if found is None:
            raise NotFound(f"no job {job_id}", hint=Sentence("`", NextCommand("jobs"), "` lists the jobs"))
        return found

    async def item(self, item_id: int, owner: str) -> ItemView:
        found = await self._items.find((item_id, owner))
        if found is None:
            raise NotFound(f"no item {show_item(item_id)}")
        return found

    async def batch(self, batch_id: str, owner: str) -> Batch:
        found = await self._batches.find((batch_id, owner)) if may_be_id(batch_id) else None
        if found is None:
            raise batch_not_found(batch_id)
        return found
