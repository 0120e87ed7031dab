"""The batches under way and the results of those that have ended: each is asked for once for many requests.

Results are files with lines in any order. They are found by the references of their requests; lines may be missing.
"""

import asyncio
import re
from array import array
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

from backstay.clock import Clock, Tasks
from backstay.core.errors import ErrorCode
from backstay.core.failures import Failure, FailureKind
from backstay.core.models import Failed, Succeeded
from backstay.handlers.function import TaskAnswer, in_thread
from backstay.llm.bodies import object_of
from backstay.llm.endpoint import Veil
from backstay.llm.lines import LineRefused, number_lines, open_temporary, text_of
from backstay.llm.provider import GONE_SECONDS, BatchApi, BatchView

LINE_BYTES_MAX: Final = 64 << 20
RESULTS_KEPT_MAX: Final = 16  # on disk; the least recently used is deleted first
VIEWS_MAX: Final = 1_000
VIEW_SECONDS: Final = 2.0  # a batch is polled in chunks of its requests, and changes slowly
DOWNLOAD_SECONDS: Final = 20.0  # to wait for a download; it continues, and a later poll finds it
RESULT_MISSING: Final = "the batch ended without a result for this request, which may have been processed and paid"
RESULTS_GONE: Final = "the provider no longer has the results of the batch, which were probably paid for"
_REFERENCE: Final = re.compile(r"[0-9a-f]{40}")
_KEY_DIGITS: Final = 16  # 64 bits of a reference are enough to distinguish any two
_SPOT_BITS: Final = 64

ReferenceOf = Callable[[bytes], str | None]  # of a line; None if its request is unknown


class LineIndex:
    """The positions of lines by their references: sixteen bytes for a line, so a hundred full batches fit in memory."""

    def __init__(self, lines: Iterable[tuple[str, int]]) -> None:
        entries = sorted(_key(ref) << _SPOT_BITS | spot for ref, spot in lines)
        self._keys = array("Q", (entry >> _SPOT_BITS for entry in entries))
        self._spots = array("Q", (entry & ((1 << _SPOT_BITS) - 1) for entry in entries))

    def spots(self, ref: str) -> list[int]:
        """The positions of its lines: none, one, or more if the provider returned it more than once."""
        key = _key(ref)
        at = bisect_left(self._keys, key)
        found: list[int] = []
        while at < len(self._keys) and self._keys[at] == key:
            found.append(self._spots[at])
            at += 1
        return found

    def keys(self) -> set[int]:
        """The keys of all references."""
        return set(self._keys)

    def __contains__(self, ref: str) -> bool:
        return bool(self.spots(ref))

    def __len__(self) -> int:
        return len(self._keys)


def is_reference(text: object) -> bool:
    return isinstance(text, str) and _REFERENCE.fullmatch(text) is not None


def reference_in(line: bytes, head: re.Pattern[bytes], member: str, mark: str = "") -> str | None:
    """The reference in a line of requests or results: nearly every line begins like `head`, which has it as its group.
    A line without one counts as no answer for its request."""
    if (found := head.match(line)) is not None:
        return found[1].decode()
    named = (object_of(line) or {}).get(member)
    if not isinstance(named, str) or not named.startswith(mark):
        return None
    ref = named.removeprefix(mark)
    return ref if is_reference(ref) else None


def references_by_number(file: BinaryIO, reference_of: ReferenceOf) -> Iterator[tuple[str, int]]:
    """The references in a file of requests, each with the number of its line."""
    file.seek(0)
    for number, line in number_lines(file, LINE_BYTES_MAX):
        if line is not None and (ref := reference_of(line)) is not None:
            yield ref, number


def references_by_offset(file: BinaryIO, reference_of: ReferenceOf) -> Iterator[tuple[str, int]]:
    """The references in a file of results, each with the byte where its line begins."""
    file.seek(0)
    at = 0
    for _, line in number_lines(file, LINE_BYTES_MAX):
        if line is not None and (ref := reference_of(line)) is not None:
            yield ref, at
        at = file.tell()


def ends_whole(file: BinaryIO) -> bool:
    """Whether the last line is a JSON object, or there is no line. Otherwise it is only the beginning of a file of
    lines, or something else, such as the page of a proxy."""
    last: bytes | None = b""
    file.seek(0)
    for _, line in number_lines(file, LINE_BYTES_MAX):
        if line is None or line.strip():
            last = line
    return last == b"" or (last is not None and object_of(last) is not None)


def _key(ref: str) -> int:
    return int(ref[:_KEY_DIGITS], 16)


class BatchResultFile:
    """One downloaded file of results, and where its lines are. The file has no name, so it disappears with the process
    that holds it."""

    @classmethod
    async def download(
        cls, into: Callable[[BinaryIO], Awaitable[bool]], reference_of: ReferenceOf
    ) -> "BatchResultFile | None":
        """`into` writes the file, and returns whether there is one."""
        file = open_temporary()
        try:
            if await into(file):
                read: BatchResultFile = await in_thread(lambda: cls(file, reference_of))
                return read
        except BaseException:
            file.close()
            raise
        file.close()
        return None

    def __init__(self, file: BinaryIO, reference_of: ReferenceOf) -> None:
        self._file = file
        self._index = LineIndex(references_by_offset(file, reference_of))
        self.is_whole = ends_whole(file)

    def lines(self, ref: str) -> Iterator[bytes]:
        for offset in self._index.spots(ref):
            self._file.seek(offset)
            yield self._file.readline(LINE_BYTES_MAX)

    def keys(self) -> set[int]:
        return self._index.keys()

    def close(self) -> None:
        self._file.close()


class LineResult(NamedTuple):
    """The answer for one request of a batch."""

    answer: TaskAnswer
    cancelled: bool = False  # it was not processed, because the batch was cancelled


def line_failed(code: ErrorCode, kind: FailureKind, message: str, *, cancelled: bool = False) -> LineResult:
    return LineResult(Failed(Failure(code, kind, message), task_ended=True), cancelled)


def line_of_reply(outcome: Succeeded | Failed, cancelled: bool = False) -> LineResult:
    """The same as for a single reply."""
    return LineResult(replace(outcome, task_ended=True) if isinstance(outcome, Failed) else outcome, cancelled)


class ResultReader(Protocol):
    """Reads the results of one ended batch."""

    @property
    def too_many_tokens(self) -> bool:
        """None of it was processed, because too many tokens of its model wait already."""

    def read_line(self, text: str) -> LineResult | None:
        """None if the line has no answer. May raise LineRefused. A Failed says that the provider's task has ended."""

    def read_missing(self, ref: str, wait_ms: int) -> LineResult:
        """For a request without a line. `wait_ms`: until a refused batch is tried again."""


class BatchResults:
    """The answers of one ended batch."""

    def __init__(self, batch: BatchView, files: list[BatchResultFile], reader: ResultReader, veil: Veil) -> None:
        self.batch = batch
        self._files = files
        self._reader = reader
        self._veil = veil  # the file is stored as it came, and may contain a secret

    @property
    def too_many_tokens(self) -> bool:
        return self._reader.too_many_tokens

    def answer(self, ref: str, wait_ms: int, cancelled_here: bool = False) -> TaskAnswer:
        """A success wins over every other line for the same request.

        A batch that someone else cancelled costs an attempt; otherwise it could be made and cancelled forever.
        """
        first: LineResult | None = None
        for file in self._files:
            for line in file.lines(ref):
                read = self._read(line)
                if read is not None and isinstance(read.answer, Succeeded):
                    return read.answer
                first = first or read
        answer, cancelled = first or self._reader.read_missing(ref, wait_ms)
        if cancelled and cancelled_here and isinstance(answer, Failed):
            return replace(answer, failure=replace(answer.failure, kind=FailureKind.THROTTLED))
        return answer

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _read(self, line: bytes) -> LineResult | None:
        try:
            return self._reader.read_line(self._veil.over(text_of(line)))
        except LineRefused as refused:
            return line_failed(ErrorCode.GW_5XX, FailureKind.UNKNOWN, f"its line in the results {refused}")


class BatchTracker:
    """Looks at each batch from time to time, and keeps the results of some ended ones."""

    def __init__(self, api: BatchApi[Any], clock: Clock, tasks: Tasks) -> None:
        self._api = api
        self._clock = clock
        self._tasks = tasks
        self._views: dict[str, tuple[float, BatchView]] = {}
        self._downloads: dict[str, asyncio.Task[BatchResults]] = {}
        self._kept: dict[str, BatchResults] = {}

    async def look(self, batch_id: str) -> BatchResults | BatchView | None:
        """The batch in its current state: its results if it has ended and they are downloaded; None if it is gone."""
        if (kept := self._kept.pop(batch_id, None)) is not None:
            self._kept[batch_id] = kept  # the most recently used is last
            return kept
        view = await self._view(batch_id)
        if view is None or not view.ended:
            return view
        task = self._downloads.get(batch_id)
        if task is None:
            task = self._downloads[batch_id] = self._tasks.spawn(self._api.read_results(view))
        await asyncio.wait((task,), timeout=DOWNLOAD_SECONDS)
        if not task.done():
            return view
        del self._downloads[batch_id]
        return self._keep(task.result())

    @property
    def requests_under_way(self) -> int:
        """In all batches that were read and had not ended."""
        return sum(view.total for _, view in self._views.values() if not view.ended)

    async def close(self) -> None:
        for task in self._downloads.values():
            task.cancel()
        await asyncio.gather(*self._downloads.values(), return_exceptions=True)
        self._downloads.clear()
        while self._kept:
            self._kept.popitem()[1].close()

    async def _view(self, batch_id: str) -> BatchView | None:
        now = self._clock.monotonic()
        seen_at, view = self._views.get(batch_id, (float("-inf"), None))
        if view is not None and (now < seen_at + VIEW_SECONDS or view.ended):
            return view
        found: BatchView | None = await self._api.show(batch_id)
        if found is None:
            await self._clock.sleep(GONE_SECONDS)
            found = await self._api.show(batch_id)
        if len(self._views) >= VIEWS_MAX:
            self._views.clear()
        self._views.pop(batch_id, None)
        if found is not None:
            self._views[batch_id] = (now, found)
        return found

    def _keep(self, results: BatchResults) -> BatchResults:
        self._kept[results.batch.id] = results
        while len(self._kept) > RESULTS_KEPT_MAX:
            self._kept.pop(next(iter(self._kept))).close()
        return results
