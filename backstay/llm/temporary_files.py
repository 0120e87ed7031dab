"""Temporary files. They have no name in any folder, so they are gone with the process, however that ends."""

import io
import os
import tempfile
from typing import TYPE_CHECKING, BinaryIO, Final

from backstay.core.errors import ErrorCode, Transient

if TYPE_CHECKING:
    from typing_extensions import Buffer

BUFFER_BYTES: Final = 1 << 16


def open_temporary() -> BinaryIO:
    """One that says where there was no room for it, and what to do about that."""
    try:
        with tempfile.TemporaryFile(prefix="backstay-", buffering=0) as made:
            return io.BufferedRandom(_Raw(os.dup(made.fileno()), "r+"), BUFFER_BYTES)
    except OSError as error:
        raise no_room_error(error) from error


def no_room_error(error: Exception) -> Transient:
    folder = tempfile.tempdir or "any folder"
    why = error.strerror if isinstance(error, OSError) and error.strerror else error
    message = f"a temporary file cannot be written in {folder}: {why}; TMPDIR names another folder"
    return Transient(message, ErrorCode.IO_ERROR)


class _Raw(io.FileIO):
    def write(self, data: "Buffer", /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise no_room_error(error) from error
