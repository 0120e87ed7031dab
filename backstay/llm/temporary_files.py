"""Temporary files. They have no name in any folder, so they disappear with the process, however it ends."""

import io
import os
import tempfile
from typing import TYPE_CHECKING, BinaryIO, Final

from backstay.core.errors import ErrorCode, Transient

if TYPE_CHECKING:
    from typing_extensions import Buffer

BUFFER_BYTES: Final = 1 << 16


def open_temporary() -> BinaryIO:
    """A temporary file whose errors say which folder is full, and what to do about it."""
    try:
        with tempfile.TemporaryFile(prefix="backstay-", buffering=0) as made:
            return io.BufferedRandom(_Raw(os.dup(made.fileno()), "r+"), BUFFER_BYTES)
    except OSError as error:
        raise no_room_error(error) from error


def no_room_error(error: Exception) -> Transient:
    folder = tempfile.tempdir or "any folder"
    why = error.strerror if isinstance(error, OSError) and error.strerror else error
    message = f"a temporary file cannot be written in {folder}: {why}; set TMPDIR to another folder"
    return Transient(message, ErrorCode.IO_ERROR)


class _Raw(io.FileIO):
    def write(self, data: "Buffer", /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise no_room_error(error) from error
