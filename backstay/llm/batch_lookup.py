"""Questions about batches, and the look-up of a request's batch at providers whose list of batches does not show their
requests."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, BinaryIO, Final, Generic, NamedTuple, Protocol, TypeVar

from backstay.clock import Clock, Tasks
from backstay.core.errors import ErrorCode, OutcomeUnknown, Permanent, Transient
from backstay.handlers.function import in_thread
from backstay.llm.batch_results import BatchResultFile, LineIndex, ends_whole, references_by_number
from backstay.llm.bodies import require_object
from backstay.llm.lines import open_temporary
from backstay.llm.provider import GONE, BatchView, Channel
from backstay.llm.rate_limits import THROTTLED

CLOCKS_APART_MS: Final = 3_600_000  # the provider's and the database's, at most
FRESH_SECONDS: Final = 5.0  # how old a survey may be that found nothing: less than the margin before a look-up
WAIT_SECONDS: Final = 40.0
ASK_SECONDS: Final = 30.0  # of one question
DOWNLOAD_SECONDS: Final = 1_800.0
DOWNLOAD_BYTES_MAX: Final = 8 << 30
PEEK_BYTES: Final = 1 << 20
LOOKS_MIN: Final = 3
BATCHES_REMEMBERED_MAX: Final = 1_000  # of those created here; a survey keeps what it needs
SENT_REMEMBERED_MAX: Final = 100
ASKED_REMEMBERED_MAX: Final = 200_000
MISSING_REMEMBERED_MAX: Final = 1_000


class LagMemory:
    """A new batch may be missing in the provider's answers for a while: it counts as gone only after it was missing for
    `lag_seconds`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._missing_since: dict[str, float] = {}

    def is_gone(self, name: str) -> bool:
        """Records that it is missing; returns whether it has been missing for long enough."""
        now = self._channel.clock.monotonic()
        if len(self._missing_since) >= MISSING_REMEMBERED_MAX:
            self._missing_since.clear()
        return now - self._missing_since.setdefault(name, now) >= self._channel.lag_seconds

    def note_found(self, name: str) -> None:
        self._missing_since.pop(name, None)

    def require_whole(self, batch_id: str, files: Sequence[BatchResultFile], ran: int) -> None:
        """Raises Transient, for some time, if the results of a batch were certainly not received as they are. Without
        the missing lines their requests would be sent, and paid, again. `ran`: how many requests must have a result."""
        name = f"the results of {batch_id}"
        if all(file.is_whole for file in files) and (ran == 0 or any(file.keys() for file in files)):
            self.note_found(name)
        elif not self.is_gone(name):
            for file in files:
                file.close()
            raise Transient(f"{name} were not received as a whole")


class BatchReader:
    """The questions about single batches that all providers have in common. A new batch may be missing for a while."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._wire = channel.wire
        self._require_answer = channel.require_answer
        self.lag = LagMemory(channel)

    async def look_at(self, path: str, name: str) -> dict[str, Any] | None:
        """The provider's object of a batch; None if the provider has answered for some time that the batch does not
        exist."""
        reply = await self._wire.get(path, timeout_seconds=ASK_SECONDS)
        if reply.status in GONE:
            if self.lag.is_gone(name):
                return None
            raise Transient(f"the provider does not show {name} yet, or no longer")
        self.lag.note_found(name)
        return require_object(self._require_answer(reply))

    async def cancel_at(self, path: str) -> None:
        reply = await self._wire.post(path, "", ASK_SECONDS)
        if reply.status == THROTTLED or reply.status >= 500:
            self._require_answer(reply)
        # Any other refusal means that there is nothing left to cancel.

    async def download_from(self, path: str, name: str, into: BinaryIO) -> bool:
        """Whether results could be read. They may be missing for a while after the end; False: they are gone."""
        try:
            await self._wire.download(path, into, DOWNLOAD_BYTES_MAX, DOWNLOAD_SECONDS)
        except Permanent as error:
            if error.code is ErrorCode.TOO_LARGE:
                raise
            if self.lag.is_gone(path):
                return False
            raise Transient(f"the results of {name} are not there yet: {error}") from None
        self.lag.note_found(path)
        return True

    async def peek_into(self, path: str, into: BinaryIO) -> bool:
        """Reads the beginning of a file; whether that is all of it."""
        try:
            await self._wire.download(path, into, PEEK_BYTES, ASK_SECONDS)
        except Permanent as error:
            if error.code is not ErrorCode.TOO_LARGE:
                raise
            return False
        return True


class BatchSurvey:
    """A look at the provider's list, which answers many questions at once.

    It may take longer than one question: it continues, and is asked for again.
    """

    def __init__(self, look: Callable[[int], Awaitable[None]], clock: Clock, tasks: Tasks) -> None:
        self._look = look  # gets the time from which the list is read
        self._clock = clock
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None
        self._fresh_from = float("-inf")
        self._wanted_from = self._covers_from = float("inf")

    def covers(self, asked_at: float, since: int) -> bool:
        """Whether the last one is fresh enough for a question that is asked now, and reached back far enough."""
        return self._fresh_from >= asked_at - FRESH_SECONDS and self._covers_from <= since

    async def wait(self, since: int) -> None:
        self._wanted_from = min(self._wanted_from, since)
        if self._task is None or self._task.done():
            self._task = self._tasks.spawn(self._run(self._clock.monotonic(), int(self._wanted_from)))
        task = self._task
        await asyncio.wait((task,), timeout=WAIT_SECONDS)
        if not task.done():
            raise Transient("the provider's batches are still being searched")
        task.result()

    async def _run(self, began_at: float, since: int) -> None:
        await self._look(since)
        self._fresh_from, self._covers_from = began_at, since

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class _Asked(NamedTuple):
    """When a request was first asked about, and how often no batch could have had it since then."""

    at_ms: int
    clear_from: float | None = None
    looks: int = 0


class ListedBatch(BatchView, Protocol):
    """A batch in the provider's list."""

    @property
    def created_ms(self) -> int | None: ...
    @property
    def archived(self) -> bool:
        """It has ended, and has no results any more."""


ListedT = TypeVar("ListedT", bound=ListedBatch)


class BatchListing(Protocol[ListedT]):
    """The calls that the look-up needs from a provider."""

    async def since(self, created_ms: int) -> list[ListedT]: ...
    async def peek(self, batch_id: str, into: BinaryIO) -> bool: ...
    async def download(self, batch_id: str, into: BinaryIO) -> bool: ...


class ListedBatchLookup(Generic[ListedT]):
    """Many references at a time are looked up together: each batch is read once.

    A batch shows its requests only when it has ended. Until then every batch of the workspace that was created at about
    the right time may have them, so the answer is not certain. If no batch is left that may have a request, its batch
    may still be missing in the provider's list, which lags behind: only after some time it counts as not found.
    """

    reference_of: Callable[[bytes], str | None]  # the reference in a line of results
    member: bytes  # that has the reference there

    def __init__(self, api: BatchListing[ListedT], channel: Channel, tasks: Tasks) -> None:
        self._api = api
        self._channel = channel
        self._clock = channel.clock
        self._indexes: dict[str, LineIndex] = {}  # of our batches, by their ids
        self._others: set[str] = set()  # batches that are not ours
        self._sent: deque[LineIndex] = deque(maxlen=SENT_REMEMBERED_MAX)  # those whose creation began here
        self._open: list[ListedT] = []  # those whose requests are not known yet
        self._unread_since: dict[str, float] = {}
        self._asked: dict[int, _Asked] = {}
        self._survey = BatchSurvey(self._look, channel.clock, tasks)

    def expect(self, refs: Sequence[str]) -> LineIndex:
        """Records that a batch with these requests is about to be created: its size helps to recognise it."""
        index = LineIndex((ref, number) for number, ref in enumerate(refs))
        self._sent.append(index)
        return index

    def remember(self, batch_id: str, index: LineIndex) -> None:
        """Records the requests of a batch that was created here."""
        self._indexes[batch_id] = index
        while len(self._indexes) > BATCHES_REMEMBERED_MAX:
            del self._indexes[next(iter(self._indexes))]

    async def find(self, ref: str, since_ms: int) -> str | None:
        """The batch of the request. None: there is probably none. Raises as long as there may be one."""
        asked_at, since_ms = self._clock.monotonic(), since_ms - CLOCKS_APART_MS
        while (found := self._find_known(ref)) is None and not self._survey.covers(asked_at, since_ms):
            await self._survey.wait(since_ms)
        if found is None:
            self._require_clear(ref, since_ms)
        return found

    def _find_known(self, ref: str) -> str | None:
        return next((batch_id for batch_id, index in self._indexes.items() if ref in index), None)

    def _require_clear(self, ref: str, since_ms: int) -> None:
        """Raises while a batch may have the request, and for some time after that."""
        now, key = self._clock.monotonic(), int(ref[:16], 16)
        if len(self._asked) >= ASKED_REMEMBERED_MAX:
            self._asked.clear()
        asked = self._asked.setdefault(key, _Asked(self._clock.now_ms()))
        size = next((len(index) for index in self._sent if ref in index), None)
        if (batch := self._candidate(since_ms, asked.at_ms + CLOCKS_APART_MS, size)) is not None:
            self._asked[key] = asked._replace(clear_from=None, looks=0)
            raise Transient(f"{batch.id} may have the request; that is known when the batch has ended")
        clear_from = now if asked.clear_from is None else asked.clear_from
        self._asked[key] = asked._replace(clear_from=clear_from, looks=asked.looks + 1)
        if asked.looks + 1 < LOOKS_MIN or now - clear_from < self._channel.lag_seconds:
            raise Transient("no batch has the request, but the provider may not list the newest ones yet")
        del self._asked[key]

    def _candidate(self, from_ms: int, until_ms: int, size: int | None) -> ListedT | None:
        """A batch of the right time and, if that is known, size, whose requests are not known."""
        for batch in self._open:
            in_time = batch.created_ms is None or from_ms <= batch.created_ms <= until_ms
            if in_time and (size is None or batch.total in (0, size)):
                return batch
        return None

    async def _look(self, since_ms: int) -> None:
        still_open: list[ListedT] = []
        for batch in await self._api.since(since_ms):
            if batch.id in self._indexes or batch.id in self._others or batch.archived:
                continue
            if not batch.ended or not await self._read(batch):
                still_open.append(batch)
        self._open = still_open

    async def _read(self, batch: ListedT) -> bool:
        """Whether the requests of an ended batch are known. One whose results cannot be read is given up after some
        time: it must not stop every look-up for ever."""
        try:
            index = await self._index(batch)
        except (Permanent, Transient, OutcomeUnknown):
            now = self._clock.monotonic()
            return now - self._unread_since.setdefault(batch.id, now) >= self._channel.lag_seconds
        self._unread_since.pop(batch.id, None)
        if index is None:
            self._others.add(batch.id)
        else:
            self._indexes[batch.id] = index
        return True

    async def _index(self, batch: ListedT) -> LineIndex | None:
        """The references in the results; None if the batch is somebody else's, of which only the beginning is read."""
        with open_temporary() as file:
            whole = await self._api.peek(batch.id, file)
            index: LineIndex = await in_thread(lambda: LineIndex(references_by_number(file, self.reference_of)))
            if not whole and len(index):
                file.seek(0)
                file.truncate()
                whole = await self._api.download(batch.id, file)
                index = await in_thread(lambda: LineIndex(references_by_number(file, self.reference_of)))
            file.seek(0)
            begins = self.member in file.readline(PEEK_BYTES) or batch.total == 0
            if not begins or (whole and not await in_thread(lambda: ends_whole(file))):
                raise Transient(f"the results of {batch.id} were not received as a whole")
            return index if len(index) else None

    async def close(self) -> None:
        await self._survey.close()
