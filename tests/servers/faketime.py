"""Wrong clocks for single processes, by libfaketime. Their steady clocks stay right."""

import os
from collections.abc import Mapping
from pathlib import Path

from tests.servers import apt

HOUR_SECONDS = 3_600


class FaketimeMissing(Exception):
    """These tests need libfaketime; on Debian: apt-get install libfaketime"""


def library() -> Path:
    def find() -> Path | None:
        return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)

    return apt.found_or_installed(find, "libfaketime", FaketimeMissing)


class WrongClock:
    """The clock of processes that have its `environment`. It is set while they run."""

    def __init__(self, file: Path, hours: float) -> None:
        self._file = file
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_NO_CACHE": "1",
        }
        self.set(hours)

    def set(self, hours: float) -> None:
        """How far it is ahead."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{hours * HOUR_SECONDS:+.0f}\n")
        os.replace(new, self._file)
