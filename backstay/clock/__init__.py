"""Time, randomness and tasks: the only module that uses them, so that tests can replace them."""

import asyncio
import contextlib
import gc
import os
import secrets
import time
import uuid
from collections.abc import Collection, Coroutine
from pathlib import Path
from random import Random
from typing import Any, Final

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
CANCEL_AGAIN_SECONDS: Final = 1.0


class Clock:
    """The machine's clocks. Timers follow the event loop, so a virtual loop makes them virtual."""

    _ahead_ms: int | None = None  # of the steady clock: the time that this clock follows

    def now_ms(self) -> int:
        if self._ahead_ms is not None:
            return self._ahead_ms + int(self.monotonic() * 1000)
        return time.time_ns() // 1_000_000

    def follow(self, now_ms: int) -> None:
        """From now on the time is that of another clock, which shows this now. The machine's own may be wrong, or be
        set while the process runs."""
        self._ahead_ms = now_ms - int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Tasks:
    """Starts tasks and holds them until they end: asyncio itself keeps only weak references."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str | None = None) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task that the caller itself keeps until it ends: there is one per item, so it avoids the cost of the
        set."""
        return asyncio.get_running_loop().create_task(work)

    async def stop(self) -> None:
        """Cancels all running tasks, and waits until they have ended."""
        await cancel_until_ended(list(self._running))

    def __len__(self) -> int:
        return len(self._running)


async def cancel_until_ended(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancels tasks again and again until they have ended. Once is not enough: `asyncio.wait_for` of Python 3.11 loses
    a cancellation that arrives together with the result it waits for, and database and broker drivers use it."""
    while running := [task for task in tasks if not task.done()]:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=CANCEL_AGAIN_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)


def collect_rarely() -> None:
    """For a process that only works on items. They create and drop so many objects that Python would spend a seventh of
    its time looking for garbage that has already been freed."""
    gc.set_threshold(50_000, 20, 50)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The faster event loop, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def new_random() -> Random:
    return Random(int.from_bytes(os.urandom(8), "big"))


def new_incarnation() -> str:
    """A worker's name for this process only: a restarted process does not own the leases of the earlier one."""
    return uuid.uuid4().hex[:16]


def new_id() -> str:
    """A unique part of a name that nobody can guess."""
    return secrets.token_hex(12)


def new_secret() -> str:
    """256 random bits in 43 characters."""
    return secrets.token_urlsafe(32)


def own_namespace() -> str:
    """Where a process id is valid: this boot of this kernel, and this process namespace in it.

    Empty where it is unknown: then no process is considered dead by its id.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def is_process_alive(pid: int) -> bool:
    """Whether a process of this place exists; if that cannot be checked, it counts as alive."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


async def wait_for_event(event: asyncio.Event, seconds: float) -> None:
    """Returns when the event is set or the time is over, whichever comes first."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
