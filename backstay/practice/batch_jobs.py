"""The life of a batch at every imitated API: its input is checked, its lines run in the background, its results are
written. The API defines the formats of input and results."""

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from enum import Enum, StrEnum, auto
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, BinaryIO, ClassVar, Final, NamedTuple, Protocol

from aiohttp import web

from backstay.clock import Tasks
from backstay.practice.faults import FAIL, AnyFault, BatchFault, fault_name, model_named_after
from backstay.practice.pipeline import PaidCall, Pipeline, ProviderState
from backstay.practice.replies import GeneratedReply, ProviderError, ReplyStamp, spoil_usage

STEPS = 20
UNREADABLE: Final = "<html><body>502 Bad Gateway</body></html>"  # a line that no client can use
STEP_LINES_MAX = 250  # so that other requests are answered in between
CHECK_SHARE, RUN_SHARE, WRITE_SHARE = 0.1, 0.8, 0.1  # of the time that a batch takes
_COPIES: dict[AnyFault | None, int] = {BatchFault.LINE_MISSING: 0, BatchFault.LINE_DUPLICATE: 2}


class BatchPhase(StrEnum):
    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


class SkipReason(Enum):
    """Why a line of a batch was never run."""

    EXPIRED = auto()
    CANCELLED = auto()


class QueuedLine(NamedTuple):
    custom_id: str
    body: dict[str, Any]


class BatchInput(NamedTuple):
    """The result of checking all lines of a batch."""

    total: int
    model: str | None
    tokens: int
    lines: Iterator[QueuedLine]


class ScratchFolder:
    """Files on disk for as long as the provider runs."""

    def __init__(self, state: ProviderState) -> None:
        self._state = state
        self._folder: Path | None = None

    def new_path(self) -> Path:
        if self._folder is None:  # not earlier than needed: a killed provider cannot remove it
            self._folder = Path(tempfile.mkdtemp(prefix="backstay-practice-"))
        return self._folder / self._state.mark()

    def remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None


class LineFile:
    """A file that lines are appended to. It exists from the first line on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: BinaryIO | None = None

    def append(self, text: str) -> None:
        if self._open is None:
            self._open = self.path.open("wb")
        self._open.write(f"{text}\n".encode())

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


class BatchQueue:
    """Runs batches in the background, and knows the tokens that wait in all of them."""

    def __init__(self, state: ProviderState) -> None:
        self.state = state
        self._tasks = Tasks()
        self._waiting_tokens: dict[str, int] = {}

    def start(self, job: "BatchJob") -> None:
        self._tasks.spawn(self._run(job))

    def is_visible(self, made_ms: int) -> bool:
        """Whether a batch of this age is listed: the faults may hide new ones for a while."""
        return self.state.clock.now_ms() >= made_ms + self.state.faults.visible_after * 1000

    async def stop(self) -> None:
        await self._tasks.stop()

    async def _run(self, job: "BatchJob") -> None:
        try:
            await job.run()
        finally:
            job.close_results()
            self._waiting_tokens.pop(job.id, None)

    def reserve_tokens(self, name: str, checked: BatchInput) -> bool:
        """False: the batch's tokens do not fit beside those that wait already."""
        limit = self.state.faults.batch_enqueued_tokens
        is_over = limit is not None and sum(self._waiting_tokens.values()) + checked.tokens > limit
        if is_over or checked.model == model_named_after(BatchFault.TOKEN_LIMIT):
            return False
        self._waiting_tokens[name] = checked.tokens
        return True


class ApiPart(Protocol):
    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None: ...


class ImitatedApi(ABC):
    """One API as a whole: its parts, and the files and batches that it has while the provider runs.

    The module of an API has it in `APIS`, and is found by that.
    """

    by_header: ClassVar[bool] = False  # its routes look at a header, and come before those of others at the same paths

    def __init__(self, state: ProviderState) -> None:
        self.folder = ScratchFolder(state)
        self.queue = BatchQueue(state)
        self._parts = tuple(self.make_parts(state))

    @abstractmethod
    def make_parts(self, state: ProviderState) -> Iterable[ApiPart]: ...

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        for part in self._parts:
            part.add_routes(router, pipeline)

    async def stop(self) -> None:
        """Ends the work that runs in the background."""
        await self.queue.stop()

    def remove_files(self) -> None:
        self.folder.remove()


class BatchJob(ABC):
    """One batch. An API says how to check and read the input, how to answer a line, and how to write the results."""

    def __init__(self, name: str, seed: str, queue: BatchQueue) -> None:
        self.id = name
        self.phase = BatchPhase.VALIDATING
        self.reached_at: dict[BatchPhase, int] = {}
        self.model: str | None = None
        self.total = self.completed = self.failed = 0
        self.input_tokens = self.output_tokens = 0
        self._queue = queue
        self._state = queue.state
        self._rng = Random(f"{self._state.faults.seed} {seed}")

    @abstractmethod
    async def check_input(self) -> BatchInput | None:
        """Looks at every line, with pauses. None: the input is not valid, and the batch fails."""

    @abstractmethod
    def refuse_tokens(self, model: str | None, limit: int) -> None:
        """The batch fails because too many tokens wait already."""

    @abstractmethod
    def read_call(self, line: QueuedLine) -> PaidCall: ...

    @abstractmethod
    def generate(self, call: PaidCall, stamp: ReplyStamp) -> GeneratedReply: ...

    @abstractmethod
    def write_answer(self, line: QueuedLine, made: GeneratedReply) -> None: ...

    @abstractmethod
    def write_error(self, line: QueuedLine, error: ProviderError) -> None: ...

    @abstractmethod
    def write_skipped(self, line: QueuedLine, reason: SkipReason) -> None: ...

    @abstractmethod
    def publish_results(self) -> None: ...

    @abstractmethod
    def close_results(self) -> None: ...

    def cancel(self) -> None:
        if self.phase not in (BatchPhase.CANCELLING, BatchPhase.CANCELLED):
            self._move(BatchPhase.CANCELLING)

    async def run(self) -> None:
        seconds = self._state.faults.batch_seconds
        await self.pause(seconds * CHECK_SHARE)
        checked = await self.check_input()
        if checked is not None and not self._queue.reserve_tokens(self.id, checked):
            self.refuse_tokens(checked.model, self._state.faults.batch_enqueued_tokens or 0)
            checked = None
        if checked is None:
            self._move(BatchPhase.CANCELLED if self._is_cancelling() else BatchPhase.FAILED)
            return
        self.model, self.total = checked.model, checked.total
        if not self._is_cancelling():
            self._move(BatchPhase.IN_PROGRESS)
        end = await self._run_lines(checked.lines, seconds * RUN_SHARE)
        if not self._is_cancelling():
            self._move(BatchPhase.FINALIZING)
        await self.pause(seconds * WRITE_SHARE)
        self.publish_results()
        self._move(BatchPhase.CANCELLED if self._is_cancelling() else end)

    async def pause(self, seconds: float) -> None:
        await self._state.clock.sleep(0 if self._is_cancelling() else seconds)

    async def _run_lines(self, lines: Iterator[QueuedLine], seconds: float) -> BatchPhase:
        """Runs the lines in steps, out of order within a step, and returns how the batch ends."""
        expires = (
            self.model == model_named_after(BatchFault.EXPIRE) or self._rng.random() < self._state.faults.batch_expire
        )
        last = self.total // 2 if expires else self.total
        done = 0
        size = max(min(self.total // STEPS + 1, STEP_LINES_MAX), 1)
        while chunk := list(islice(lines, size)):
            self._rng.shuffle(chunk)
            for line in chunk:
                self._take_line(line, done < last)
                done += 1
            await self.pause(seconds * len(chunk) / self.total)
        return BatchPhase.EXPIRED if expires else BatchPhase.COMPLETED

    def _take_line(self, line: QueuedLine, in_time: bool) -> None:
        if self._is_cancelling():
            self._skip_line(line, SkipReason.CANCELLED)
        elif in_time:
            self._run_line(line)
        else:
            self._skip_line(line, SkipReason.EXPIRED)

    def _skip_line(self, line: QueuedLine, reason: SkipReason) -> None:
        self.failed += 1
        self.write_skipped(line, reason)

    def _run_line(self, line: QueuedLine) -> None:
        call, state = self.read_call(line), self._state
        state.counts.calls += 1
        fault = state.choose_fault(call.digest, call.requested).fault
        try:
            state.require_quota()
            # Other random faults are between a client and the provider, and no client waits for this line.
            if fault in FAIL or call.requested is not None:
                self._raise_fault(fault)
            made = spoil_usage(self.generate(call, state.stamp(fault)), fault)
        except ProviderError as error:
            self.failed += 1
            self.write_error(line, error)
            return
        state.charge(call, made, halved=True)
        self.input_tokens += made.input_tokens
        self.output_tokens += made.output_tokens
        self.completed += 1
        for _ in range(_COPIES.get(fault, 1)):
            self.write_answer(line, made)

    def _raise_fault(self, fault: AnyFault | None) -> None:
        self._state.counts.faults[fault_name(fault)] += 1
        if (error := self._state.error_of(fault)) is not None:
            raise error
        if fault is BatchFault.LINE_ZERO:
            raise ProviderError(0, "The provider lost this line (practice).")

    def _is_cancelling(self) -> bool:
        return self.phase is BatchPhase.CANCELLING

    def _move(self, phase: BatchPhase) -> None:
        self.phase = phase
        self.reached_at[phase] = self._state.now_seconds()
