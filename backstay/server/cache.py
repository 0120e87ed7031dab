"""Rendered details that need not be rendered again: in the process, and in Redis for all processes.

A cached entry has a version in its name, and the caller brings the version that the database has now. So nothing
outdated is ever served: a change of state, by any process, makes a new name, and the old one is never asked for again.
"Not found" is not cached. If Redis is down, more is rendered, nothing else.

For routes: `await service.details.find(name, version, make)`. `name` says what it is ("item:12-345"), `version` comes
from a small, owner-guarded read of the rows themselves, `make()` renders the bytes and raises NotFound if there is
nothing. `Gathered` makes many such small reads at the same time into one.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from backstay.clock import Tasks
from backstay.core.display import NextCommand, Sentence
from backstay.core.errors import NotFound
from backstay.core.ids import show_item
from backstay.server.shared_state import PREFIX, SharedState
from backstay.signing import Signer
from backstay.store.batches import Batch, missing
from backstay.store.files import may_be_id
from backstay.store.item_views import ItemView
from backstay.store.job_views import Asked, JobView
from backstay.store.store import Store

K = TypeVar("K")
V = TypeVar("V")

HERE_BYTES_MAX: Final = 64 << 20
DETAIL_BYTES_MAX: Final = 1 << 20
OVERHEAD_BYTES: Final = 300  # of an entry besides its text
GATHERED_MAX: Final = 500


class Details:
    def __init__(self, signer: Signer, shared: SharedState | None, seconds: float) -> None:
        self._signer = signer
        self._shared = shared
        self._seconds = seconds
        self._here: OrderedDict[str, bytes] = OrderedDict()
        self._here_bytes = 0

    async def find(self, name: str, version: str, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The details of this version, made if nobody has them."""
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
        """Only what a process with our key has written, at this place: a Redis may be shared by strangers."""
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


class Gathered(Generic[K, V]):
    """Many who ask in the same moment ask once: those who come while a read is under way share the next."""

    def __init__(self, read: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._read = read
        self._tasks = Tasks()
        self._waiting: dict[K, asyncio.Future[V | None]] = {}
        self._reading = False

    async def find(self, key: K) -> V | None:
        """As the database has it after this was called, or None."""
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = asyncio.get_running_loop().create_future()
        if not self._reading:
            self._reading = True
            self._tasks.spawn(self._read_on())
        return await asyncio.shield(waiting)  # who goes away does not take the answer from the others

    async def _read_on(self) -> None:
        while self._waiting:
            keys = list(self._waiting)[:GATHERED_MAX]
            asked = {key: self._waiting.pop(key) for key in keys}
            try:
                found = await self._read(keys)
            except Exception as error:  # handed to everyone who waits for it
                for waiting in asked.values():
                    waiting.set_exception(error)
                    waiting.exception()  # read here: those who wait may all have gone
            else:
                for key, waiting in asked.items():
                    waiting.set_result(found.get(key))
        self._reading = False


class CoalescedReads:
    """Never older than the question; what is another owner's is not found."""

    def __init__(self, store: Store) -> None:
        self._jobs: Gathered[Asked, JobView] = Gathered(store.job_views.many)
        self._items: Gathered[Asked, ItemView] = Gathered(store.item_views.many)
        self._batches: Gathered[tuple[str, str], Batch] = Gathered(store.batches.many)

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
            raise missing(batch_id)
        return found
