"""The result files of a run: each custom_id stands in exactly one of them, once, after any number of crashes.

`results.jsonl` gets the successes and `results.errors.jsonl` the failures, as lines of the Batch output format. The
database is the truth: a line is written only after its result is committed, so a file lacks lines at worst. The next
run reads which positions are there and writes the others. A crash leaves, at the end of a file,

- a line without its end: cut off when the file is opened;
- lines of copies whose own item's line is missing (it stands behind them): cut off likewise;
- a failure that has succeeded since, in both files: its line is dropped from the errors.

A failure may be retried at any time, by this command or another, while a run goes on or not. So the errors are
rewritten as a whole when a run resumes, and at its end if anything was retried meanwhile.

What is not a plain file (`-`, /dev/stdout, a named pipe) cannot be read back: it gets every result of the run, those of
earlier tries included, once per try, and the failures go to stderr unless a file is named for them. A symbolic link is
followed, also when the file is replaced.
"""

import os
import select
import stat
import sys
from collections.abc import AsyncIterable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Final, Self

from backstay.core.errors import BackstayError, UsageError
from backstay.run.result_file import (
    AFRESH,
    MOVE_AWAY,
    EndedRequest,
    FoundLine,
    Positions,
    ResultFile,
    lines_of,
    read_found_line,
)

STDOUT: Final = "-"
# Opened again, a redirected standard stream would be written from its start, over what others wrote there.
_STANDARD: Final = {
    **dict.fromkeys((STDOUT, "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"), 1),
    **dict.fromkeys(("/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"), 2),
}


class ResultStream:
    def __init__(self, path: str | Path) -> None:
        self.path = path
        number = _STANDARD.get(str(path))
        try:
            self._fd = os.open(path, os.O_WRONLY) if number is None else os.dup(number)
        except OSError as error:
            said = f"{path} cannot be opened for writing: {error.strerror}"
            raise UsageError(said, hint="choose another --out") from error

    def append(self, data: bytes) -> None:
        """Waits for a slow reader. A reader that has gone is a BrokenPipeError, as everywhere."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                select.select([], [self._fd], [])
            except BrokenPipeError:
                raise
            except OSError as error:
                raise BackstayError(f"{self.path} cannot be written: {error.strerror}") from error

    def release(self) -> None:
        os.close(self._fd)
        self._fd = -1

    abandon = release


class FailureStream:
    """Stderr as it is at the moment, because a live view puts itself in its place to keep the lines above its block."""

    def append(self, data: bytes) -> None:
        sys.stderr.write(data.decode())
        sys.stderr.flush()

    def release(self) -> None:
        """Stderr stays open: others use it too."""

    abandon = release


CHUNK_BYTES: Final = 4 << 20

Sink = ResultFile | ResultStream | FailureStream


def errors_path(out: Path) -> Path:
    """The file of failures: results.jsonl has results.errors.jsonl beside it."""
    return out.with_name(f"{out.stem}.errors{out.suffix}")


def is_stream(out: str | Path) -> bool:
    """Whether the path can only be written to, such as a pipe, and not be read back or replaced."""
    if str(out) == STDOUT or str(out).startswith(("/dev/std", "/dev/fd/", "/proc/")):
        return True  # whatever it leads to at the moment
    try:
        mode = os.stat(out).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


class ResultFiles:
    """Opened before anything is sent, so that what cannot be written is known before it is paid for.

    A run that has no job yet gives None and sets `job_id` when it has one; it takes only files without lines. Calls may
    block as long as the disk or the reader of a pipe does, so they may be made in a thread; closing waits for it.
    """

    def __init__(self, out: str | Path, job_id: int | None = None, errors: str | Path | None = None) -> None:
        self.out = out
        self.is_stream = is_stream(out)
        self.errors = errors if errors is not None or self.is_stream else errors_path(Path(out))  # None: stderr
        self.witnesses: list[FoundLine] = []
        self.job_id = job_id
        self._in_results = Positions()
        self._in_errors = Positions()
        self._copies_found = Positions()  # in the results when they were opened, by their numbers
        self._lock = Lock()
        self._overtaken = False  # something that stands in the errors has succeeded since

    def open(self) -> Self:
        """Creates the files, or continues those that are there; what is not this job's is refused and left alone."""
        if not self.is_stream and os.path.realpath(self.out) == os.path.realpath(str(self.errors)):
            raise UsageError(f"results and failures cannot both go to {self.out}")
        with ExitStack() as undo:
            self._results: Sink = self._sink(self.out)
            undo.callback(self._results.abandon)
            self._read(self._results, self._in_results, self._copies_found, ok=True)
            self._errors: Sink = FailureStream() if self.errors is None else self._sink(self.errors)
            undo.callback(self._errors.abandon)
            self._read(self._errors, self._in_errors, Positions(), ok=False)
            if self._overtaken:
                self._drop_failures()
            undo.pop_all()
        return self

    def _sink(self, path: str | Path) -> ResultFile | ResultStream:
        if is_stream(path):
            return ResultStream(path)
        return ResultFile(Path(os.path.realpath(path)))

    def _read(self, sink: Sink, positions: Positions, copies: Positions, ok: bool) -> None:
        if not isinstance(sink, ResultFile):
            return
        first = last = b""
        for position, line in sink.scan(self.job_id, positions, copies):
            if not positions.add(position):
                raise UsageError(f"{sink.path} has two results for item {self.job_id}-{position}", hint=AFRESH)
            first, last = first or line, line
            self._overtaken |= not ok and position in self._in_results
        self.witnesses += [read_found_line(line, ok) for line in dict.fromkeys((first, last)) if line]

    def verify(self, known: Mapping[int, tuple[str, bool]]) -> None:
        """Refuses the files of a job that has the same number in another database.

        `known` says of every witness's position its custom_id in the database, and whether it has succeeded. What
        failed may be anything by now, for it may have been retried.
        """
        for witness in self.witnesses:
            custom_id, succeeded = known.get(witness.position, (None, False))
            if witness.custom_id != custom_id or (witness.ok and not succeeded):
                where = self.out if witness.ok else self.errors
                said = f"{where} holds results of job {self.job_id} of another database"
                raise UsageError(said, hint=MOVE_AWAY)

    def lacks_line(self, position: int, ok: bool = False) -> bool:
        """Whether the line of an item is missing: in the results if it succeeded (`ok`), otherwise in both files."""
        return position not in self._in_results and (ok or position not in self._in_errors)

    def lacks_copy(self, position: int, number: int) -> bool:
        """Whether the results, as they were opened, have an item and not this copy of it: somebody cut it off."""
        return position in self._in_results and number not in self._copies_found

    def drop_results(self, dropped: Positions) -> None:
        """Removes all lines of these items, so that they are written again completely."""
        with self._lock:
            self._in_results = _drop_lines(self._results, dropped)

    @property
    def succeeded(self) -> int:
        """How many items have a line in the results."""
        return len(self._in_results)

    @property
    def failed(self) -> int:
        """How many items have a line in the errors."""
        return len(self._in_errors)

    def write(self, rows: Iterable[EndedRequest]) -> int:
        """Appends the lines of items that have none yet, and returns how many items these are."""
        with self._lock:
            return self._write(rows)

    def _write(self, rows: Iterable[EndedRequest]) -> int:
        results = _Pending(self._job, self._results, self._in_results)
        errors = _Pending(self._job, self._errors, self._in_errors)
        try:
            for ended in rows:
                if ended.ok:
                    self._overtaken |= ended.position in self._in_errors
                    results.add(ended)
                elif ended.position not in self._in_results:
                    errors.add(ended)
            results.flush()
            errors.flush()
        except BaseException:
            results.forget()
            errors.forget()
            raise
        return results.items + errors.items

    @property
    def _job(self) -> int:
        assert self.job_id is not None, "results belong to a job"
        return self.job_id

    async def renew_errors(self, rows: AsyncIterable[EndedRequest]) -> None:
        """Rewrites the failures: earlier ones may run again, have succeeded, or have failed in another way."""
        with ExitStack() as replaced:
            errors = _Pending(self._job, *_replacement_of(self._errors, self._in_errors, replaced))
            async for ended in rows:
                if not ended.ok and ended.position not in self._in_results:
                    errors.add(ended)
            errors.flush()
        self._in_errors, self._overtaken = errors.positions, False

    def _drop_failures(self) -> None:
        """The items in the errors that have succeeded since."""
        if isinstance(self._errors, ResultFile):
            self._in_errors, self._overtaken = _drop_lines(self._errors, self._in_results), False

    async def rewrite_in_order(self, rows: AsyncIterable[EndedRequest]) -> None:
        """Rewrites both files from all ended items, in the order in which they are given.

        A stream gets those that it has not got yet, so for one in order nothing is written before.
        """
        with ExitStack() as replaced:
            results = _Pending(self._job, *_replacement_of(self._results, self._in_results, replaced))
            errors = _Pending(self._job, *_replacement_of(self._errors, self._in_errors, replaced))
            async for ended in rows:
                (results if ended.ok else errors).add(ended)
            results.flush()
            errors.flush()
        self._in_results, self._in_errors, self._overtaken = results.positions, errors.positions, False

    def sync(self) -> None:
        """Waits until all written lines are on the disk."""
        for sink in (self._results, self._errors):
            if isinstance(sink, ResultFile):
                sink.sync()

    def close(self) -> None:
        """Leaves no errors file when nothing failed."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        try:
            if self._overtaken:
                self._drop_failures()
            self.sync()
            for sink in (self._results, self._errors):
                if isinstance(sink, ResultFile):
                    sink.check_untouched()
            if isinstance(self._errors, ResultFile) and self._errors.size == 0:
                self._errors.path.unlink()
        finally:
            self._results.release()
            self._errors.release()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.close()
        except BackstayError:
            if error is None:  # otherwise the first failure is raised
                raise


class _Pending:
    """Lines on their way to one file: written together, and forgotten together when that fails."""

    def __init__(self, job_id: int, sink: Sink, positions: Positions) -> None:
        self.positions = positions
        self.items = 0
        self._job_id = job_id
        self._sink = sink
        self._lines: list[bytes] = []
        self._waiting: list[int] = []
        self._bytes = 0

    def add(self, ended: EndedRequest) -> None:
        if ended.number is not None:
            if ended.position not in self.positions:
                return  # it has no place in a file without its item, which may have ended otherwise a moment ago
        elif self.positions.add(ended.position):
            self._waiting.append(ended.position)
        else:
            return
        lines = lines_of(self._job_id, ended)
        self._lines.append(lines)
        self._bytes += len(lines)
        if self._bytes >= CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            self._sink.append(b"".join(self._lines))
        self.items += len(self._waiting)
        self._lines, self._waiting, self._bytes = [], [], 0

    def forget(self) -> None:
        for position in self._waiting:
            self.positions.discard(position)


def _replacement_of(sink: Sink, positions: Positions, replaced: ExitStack) -> tuple[Sink, Positions]:
    if isinstance(sink, ResultFile):
        return replaced.enter_context(sink.replace_file()), Positions()
    return sink, positions


def _drop_lines(sink: Sink, dropped: Positions) -> Positions:
    """Rewrites a file without the lines of the items to drop; returns the items whose lines are left."""
    assert isinstance(sink, ResultFile), "lines can be removed from a file only"
    kept = Positions()
    with sink.replace_file() as fresh:
        for position, line in sink.lines():
            if position not in dropped:
                kept.add(position)
                fresh.append(line)
    return kept
