"""`backstay serve` as a process of its own, and how much memory it has needed at most."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.house.sources import ROOT

STOP_SECONDS = 30


@dataclass(frozen=True)
class Served:
    url: str
    process: int
    files: Path

    @property
    def peak_mb(self) -> int:
        """The largest that it has been; what Linux calls the high water mark."""
        status = Path(f"/proc/{self.process}/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) // 1024

    @property
    def kept(self) -> int:
        """How many files it keeps the bytes of."""
        return sum(1 for path in self.files.rglob("*") if path.is_file())


@contextmanager
def serving(folder: Path, *options: str, **settings: str) -> Iterator[Served]:
    """The service on a new SQLite database; no key is needed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BACKSTAY_", "OPENAI_"))}
    command = [sys.executable, "-m", "backstay", "serve", "--port", "0", "--db", f"sqlite:///{folder / 'new.db'}"]
    with subprocess.Popen(
        [*command, "--data", str(folder / "data"), *options],
        env={**kept, "PYTHONPATH": str(ROOT), **settings},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            said = next(
                (found for line in process.stderr if (found := re.search(r"serving on (http://\S+)", line))), None
            )
            assert said, "it did not start"
            yield Served(said[1], process.pid, folder / "data" / "files")
        finally:
            process.terminate()
            process.communicate(timeout=STOP_SECONDS)
