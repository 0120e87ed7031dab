"""A command in a process of its own, timed from its start to its end, with the most memory it ever had."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.probes import NotMeasured


class Spent(NamedTuple):
    seconds: float
    cpu_seconds: float
    peak_mb: float

    def figures(self, n: int) -> dict[str, float]:
        return {"requests_per_second": n / self.seconds, **self._asdict()}


def spend(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Spent:
    """Runs it with its output in a file of the folder; NotMeasured has the last line of it when it failed."""
    said = folder / "output"
    with said.open("wb") as output:
        started = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        # What a process leaves behind includes its VmHWM, which could otherwise be read only while it lives.
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        lines = said.read_text(errors="replace").strip().splitlines()
        raise NotMeasured(f"exit code {process.returncode}: {lines[-1] if lines else 'it said nothing'}")
    return Spent(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
