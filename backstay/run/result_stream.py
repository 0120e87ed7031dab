"""Output that is not a plain file: a pipe, a device, the standard streams. It is written once and never read."""

import os
import select
import sys
from pathlib import Path
from typing import Final

from backstay.core.errors import BackstayError, UsageError

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
        """It is not ours to close."""

    abandon = release
