"""What private servers have in common: a temporary folder and a keeper, who clears up when the owner is gone."""

import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

# Reads until its owner closes the pipe or dies in whatever way, then clears up.
KEEPER = 'cat >/dev/null; [ -f "$1/pid" ] && kill -9 "$(cat "$1/pid")" 2>/dev/null; rm -rf "$1"'


class Kept:
    """A server whose process writes its number to the file `pid` in its folder. The subclass starts it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._keeper: subprocess.Popen[bytes] | None = None
        self.folder = Path()

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix=f"backstay-{self._name}-", dir="/tmp"))
        self._keeper = subprocess.Popen(
            ["/bin/sh", "-c", KEEPER, "keeper", str(self.folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Gone with its folder; safe to call twice."""
        if self._keeper is not None:
            self._keeper.communicate()
            self._keeper = None
