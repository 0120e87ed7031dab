"""Result files: an ended item as a line of the Batch output, and the file on disk, which is continued after a crash."""

import contextlib
import errno
import fcntl
import io
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from backstay.core.errors import BackstayError, ErrorCode, UsageError
from backstay.core.ids import POSITIONS_MAX, position_of
from backstay.core.models import Flaw
from backstay.core.states import ItemState
from backstay.llm.fallbacks import Fallback
from backstay.llm.lines import unseal
from backstay.store.results import AnswerRow, Copy, ResultRow

OUTCOME_UNKNOWN: Final = "outcome_unknown"
LATE_RESULT: Final = "late_result"
CANCELLED: Final = "batch_cancelled"
SKIPPED: Final = "skipped"

# Every line begins with this and an id, so the item of a line is known without parsing the reply in it.
OPENING: Final = b'{"id":"batch_req_'
HEAD: Final = re.compile(rb'\{"id":"batch_req_([0-9]{1,11})-([0-9]{1,9})(?:-([0-9]{1,9}))?","custom_id":')

_ERROR_STATUS_MIN = 400  # from this status on, the provider's own answer explains the failure
_CODES: Final = {Flaw.UNKNOWN.value: OUTCOME_UNKNOWN, Flaw.LATE.value: LATE_RESULT}
_NO_REASON = "no reason was recorded"
_WAS_CANCELLED = "the job was cancelled before this request was done"


class EndedRequest(NamedTuple):
    """A request whose item has ended. `response` is the provider's answer, as the text of a Batch `response` object.

    `copies` are further requests that this one item answers for, and whose lines go with its own. In a file in the
    order of requests they stand elsewhere: then each is an EndedRequest of its own, with its `number`.
    """

    position: int
    custom_id: str
    ok: bool
    response: str | None
    code: str | None = None
    message: str | None = None
    copies: tuple[Copy, ...] = ()
    number: int | None = None
    metadata: str | None = None  # of the request, as JSON
    status: int | None = None  # of the response
    answered_by: Fallback | None = None  # the provider and the model that it ended with, in a run with fallbacks


def ended_request(row: ResultRow | AnswerRow, copies: Sequence[Copy] = ()) -> EndedRequest:
    """An ended item of the store, as the request that it answers."""
    request = unseal(row.body)
    return EndedRequest(
        position_of(row.id),
        request.custom_id,
        row.state == ItemState.SUCCEEDED,
        row.result,
        _code(row),
        row.message or (_WAS_CANCELLED if row.state == ItemState.CANCELLED else None),
        tuple(copies),
        metadata=request.metadata,
        status=row.provider_status,
    )


def _code(row: ResultRow | AnswerRow) -> str | None:
    if row.state == ItemState.CANCELLED:
        return CANCELLED
    if row.state == ItemState.SKIPPED:
        return SKIPPED
    return _CODES.get(row.flaw or "", row.flaw) if row.flaw and row.state == ItemState.FAILED else row.error_code


def lines_of(job_id: int | str, ended: EndedRequest) -> bytes:
    """The line of the item, after those of its copies: a cut never leaves an item's line without them."""
    kept = "" if ended.metadata is None else f',"metadata":{ended.metadata}'
    if ended.answered_by is not None:
        provider, model = map(json.dumps, ended.answered_by)
        kept += f',"provider":{provider},"model":{model}'
    rest = f',"response":{_one_line(ended.response or "null")},"error":{_error(ended)}{kept}}}\n'
    item = f"{job_id}-{ended.position}"
    names = [(f"{item}-{copy.number}", copy.custom_id) for copy in ended.copies]
    names.append((item if ended.number is None else f"{item}-{ended.number}", ended.custom_id))
    lines = [f'{{"id":"batch_req_{own}","custom_id":{json.dumps(custom_id)}{rest}' for own, custom_id in names]
    return "".join(lines).encode("utf-8", "backslashreplace")  # half a surrogate pair becomes its JSON escape


def _one_line(text: str) -> str:
    """Providers may indent their JSON. A raw line end in it can only stand between tokens, so a blank does as well."""
    if "\n" in text or "\r" in text:
        return text.replace("\n", " ").replace("\r", " ")
    return text


def _error(ended: EndedRequest) -> str:
    """Null when the provider's own answer is enough. An answer that came too late, makes no sense or is a redirect
    needs a code and a message."""
    if ended.ok or (ended.response and (ended.status or 0) >= _ERROR_STATUS_MIN):
        return "null"
    code, message = ended.code or ErrorCode.UNKNOWN.value, ended.message or _NO_REASON
    return f'{{"code":{json.dumps(code)},"message":{json.dumps(message)}}}'


class Positions:
    __slots__ = ("_bits", "_count")

    def __init__(self) -> None:
        self._bits = bytearray()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, position: int) -> bool:
        at = position >> 3
        return at < len(self._bits) and bool(self._bits[at] >> (position & 7) & 1)

    @property
    def bytes_used(self) -> int:
        return len(self._bits)

    def add(self, position: int) -> bool:
        """Adds a position; returns whether it is new."""
        if not 0 <= position < POSITIONS_MAX:
            raise ValueError(f"{position} is not a position")
        at = position >> 3
        if at >= len(self._bits):
            self._bits.extend(bytes(at + 1 - len(self._bits)))
        elif self._bits[at] >> (position & 7) & 1:
            return False
        self._bits[at] |= 1 << (position & 7)
        self._count += 1
        return True

    def discard(self, position: int) -> None:
        if position in self:
            self._bits[position >> 3] ^= 1 << (position & 7)
            self._count -= 1


SYNC_BYTES: Final = 16 << 20
READ_BYTES: Final = 1 << 20
MOVE_AWAY: Final = "choose another --out, or move that file away"
AFRESH: Final = "move that file away and run the same command again: all results are in the database"
ALL_KEPT: Final = "run the same command again: all results are in the database"
LOST_NOTHING: Final = "nothing is lost: fix the cause, then run the same command again"
# File systems without locks, some network ones, say so in one of these ways.
_NO_LOCKS: Final = frozenset({errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL})


class FoundLine(NamedTuple):
    """A line of a file that was there already, to be held against what the database says."""

    position: int
    custom_id: str
    ok: bool


class ResultFile:
    """Every write begins where the last whole one ended, so that a write that failed leaves nothing behind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._synced = 0
        self._fd, self._made = _open_locked(path)
        self._torn = False

    def scan(self, job_id: int | None, found: Positions, copies: Positions) -> Iterator[tuple[int, bytes]]:
        """The items that have their line, and the line. At the end, what a crash left half written is cut off.

        A run that has no job yet, None, takes only a file without lines. `found` is for the reader to fill: a copy may
        stand anywhere behind its item, in a file that was put in order, or else right before it. `copies` gets the
        numbers of copies that have a line.
        """
        at, own = 0, str(job_id).encode()
        self.size = 0
        copied: int | None = None  # an item whose copies have their lines and it itself not yet
        with self._open_reader() as file:
            self._check_opening(file.peek(READ_BYTES), job_id)
            for number, line in enumerate(file, 1):
                if not line.endswith(b"}\n") or b"\0" in line:
                    self._check_torn(line, number, job_id)
                    break
                head = HEAD.match(line)
                job, item, copy = head.groups() if head else (b"", b"0", None)
                position = int(item)
                if job != own or position >= POSITIONS_MAX or (copied is not None and copied != position):
                    self._refuse_line(number)
                if copy and not (int(copy) < POSITIONS_MAX and copies.add(int(copy))):
                    self._refuse_line(number)
                at += len(line)
                if copy and position not in found:
                    copied = position
                    continue
                self.size, copied = at, None
                if not copy:
                    yield position, line
        self._synced = self.size
        with self._explain_errors():
            os.ftruncate(self._fd, self.size)
            self._part.unlink(missing_ok=True)  # a crash may have left it

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines written so far, those of copies included, each with the position of its item."""
        with self._open_reader() as file:
            for line in file:
                head = HEAD.match(line)
                assert head is not None, "only lines of ours were written since the file was scanned"
                yield int(head[2]), line

    def _open_reader(self) -> "io.BufferedReader[io.FileIO]":
        file = io.BufferedReader(io.FileIO(os.dup(self._fd)), READ_BYTES)
        file.seek(0)
        return file

    def _check_opening(self, start: bytes, job_id: int | None) -> None:
        """Looks at the first bytes before any line is read: a foreign file may be one line of many gigabytes."""
        if not start:
            return
        head = HEAD.match(start)
        if job_id is None:
            what = f"the results of job {int(head[1])}" if head else "something"
            raise UsageError(f"{self.path} already holds {what}, and this is a new run", hint=MOVE_AWAY)
        if head is not None and int(head[1]) != job_id:
            said = f"{self.path} holds the results of job {int(head[1])}, and this run is job {job_id}"
            raise UsageError(said, hint=MOVE_AWAY)
        if head is None and not _begins_like_ours(start, job_id):
            raise UsageError(f"{self.path} does not hold results of a run", hint=MOVE_AWAY)

    def _check_torn(self, line: bytes, number: int, job_id: int | None) -> None:
        """A line of ours that a crash cut short, or the hole that a power failure left, may be cut off."""
        cut_short = not line.endswith(b"\n") and _begins_like_ours(line, job_id)
        if not (cut_short or b"\0" in line):
            self._refuse_line(number)

    def _refuse_line(self, number: int) -> NoReturn:
        raise UsageError(f"line {number} of {self.path} is not a line that this run wrote", hint=AFRESH)

    @property
    def _part(self) -> Path:
        return self.path.with_name(f".{self.path.name}.backstay-part")

    def append(self, data: bytes) -> None:
        if self._torn:
            raise BackstayError(f"{self.path} cannot be written: an earlier write failed", hint=LOST_NOTHING)
        if self.size - self._synced >= SYNC_BYTES:
            self.sync()  # before the write: once the data is there, nothing may fail that would have it written again
        self.check_untouched()
        with self._explain_errors():
            _write_all(self._fd, data, self.size)
        self.size += len(data)

    def check_untouched(self) -> None:
        """Raises if another program has removed lines or the file: further lines would be lost."""
        with self._explain_errors():
            in_place, size = self.in_place, os.fstat(self._fd).st_size
        if not in_place:
            raise BackstayError(f"{self.path} was removed or replaced while the run wrote to it", hint=ALL_KEPT)
        if size != self.size:
            raise BackstayError(f"{self.path} was changed by another program while the run wrote to it", hint=ALL_KEPT)

    def sync(self) -> None:
        with self._explain_errors():
            os.fdatasync(self._fd)
        self._synced = self.size

    @contextmanager
    def replace_file(self) -> Iterator["ResultFile"]:
        """Replaces the file; readers see either the old one or the new one, complete."""
        part = self._part
        fresh = ResultFile(part)
        try:
            with fresh._explain_errors():
                os.fchmod(fresh._fd, stat.S_IMODE(os.fstat(self._fd).st_mode))
            yield fresh
            fresh.sync()
            with self._explain_errors():
                os.replace(part, self.path)
        except BaseException:
            fresh.release()
            with contextlib.suppress(OSError):
                part.unlink()
            raise
        self.release()
        self._fd, self.size, self._synced, self._torn = fresh._fd, fresh.size, fresh.size, False
        _sync_folder(part.parent)

    @property
    def in_place(self) -> bool:
        """Whether the path still leads to this file."""
        return _leads_to(self.path, self._fd)

    def release(self) -> None:
        """Closes the descriptor once: the next file that is opened gets its number."""
        os.close(self._fd)
        self._fd = -1

    def abandon(self) -> None:
        """Removes a file that was created here and has no lines: nothing is to be written."""
        if self._made and self.size == 0 and self.in_place:
            self.path.unlink()
        self.release()

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Turns a failure of the disk into one line, and takes back what was half written."""
        try:
            yield
        except OSError as error:
            try:
                os.ftruncate(self._fd, self.size)
            except OSError:
                self._torn = True
            why = error.strerror or type(error).__name__
            raise BackstayError(f"{self.path} cannot be written: {why}", hint=LOST_NOTHING) from error


def _begins_like_ours(line: bytes, job_id: int | None) -> bool:
    ours = OPENING + f"{job_id}-".encode()
    return line.startswith(ours) or ours.startswith(line)


def read_found_line(line: bytes, ok: bool) -> FoundLine:
    head = HEAD.match(line)
    assert head is not None, "it was matched when it was read"
    custom_id, _ = json.JSONDecoder().raw_decode(line.decode(), len(line[: head.end()].decode()))
    return FoundLine(int(head[2]), custom_id, ok)


def _open_locked(path: Path) -> tuple[int, bool]:
    """The file, and whether it is new."""
    while True:
        made = not path.exists()
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            said = f"{path} cannot be opened for writing: {error.strerror}"
            raise UsageError(said, hint="choose another --out") from error
        try:
            _lock(fd, path)
        except BaseException:
            os.close(fd)
            raise
        if _leads_to(path, fd):
            return fd, made
        os.close(fd)  # its holder replaced or removed it between our opening it and its unlocking it


def _lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        hint = "wait until it ends, or choose another --out"
        raise UsageError(f"another run is writing to {path}", hint=hint) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _leads_to(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _write_all(fd: int, data: bytes, at: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(fd, rest, at)
        rest, at = rest[written:], at + written


def _sync_folder(folder: Path) -> None:
    """Makes a rename durable, on file systems that can sync a folder."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
