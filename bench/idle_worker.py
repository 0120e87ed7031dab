"""A worker in a process of its own that waits for work: started, told to stop, and read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

READY = "ready"
# Items sent before the count begins, and a pause after each so that the worker is idle again.
WARM_UP = 20
PAUSE_SECONDS = 0.005


class IdleWorker:
    """The far end of a worker process that runs until_told_to_stop()."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == READY:
                return
        raise RuntimeError(f"the worker process ended with code {self.process.wait()}")

    def stop(self) -> list[int]:
        """Close its input, and read the last line it prints: a JSON list."""
        output, _ = self.process.communicate(timeout=60)
        return [int(number) for number in json.loads(output.strip().splitlines()[-1])]


@contextlib.contextmanager
def idle_worker(module: str, url: str) -> Iterator[IdleWorker]:
    process = subprocess.Popen(
        [sys.executable, "-m", module, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    worker = IdleWorker(process)
    try:
        worker.wait_until_ready()
        yield worker
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


async def until_told_to_stop() -> None:
    """Called in the worker process: say ready, then wait for the end of the input."""
    print(READY, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
