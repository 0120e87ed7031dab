"""Virtual time: an event loop that never sleeps. When nothing is ready, its clock jumps to the next timer."""

import asyncio
import functools
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, ParamSpec, TypeVar

from backstay.clock import Clock
from backstay.core.errors import BackstayError

P = ParamSpec("P")
T = TypeVar("T")

FIRST_MS = 1_767_225_600_000  # midnight, 1 January 2026, UTC; any time would work
THREAD_LOOK_SECONDS = 0.02


class EverythingWaits(BackstayError):
    """All tasks wait, and no timer is left that could wake one."""


class VirtualClock(Clock):
    """All clocks of a test: wall clock, monotonic clock and the loop's timers move together."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return FIRST_MS + round(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


class _Selector(selectors.DefaultSelector):
    """Where a real loop would sleep, this one moves the clock; it really waits only while a thread works."""

    def __init__(self, clock: VirtualClock, busy: Callable[[], bool]) -> None:
        super().__init__()
        self._clock = clock
        self._busy = busy

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self._busy():
            seconds = THREAD_LOOK_SECONDS if timeout is None else min(timeout, THREAD_LOOK_SECONDS)
            self._clock.seconds += seconds  # time goes on beside a thread, or one that never returns would stop it
            return super().select(seconds)
        if timeout is None:
            raise EverythingWaits
        self._clock.seconds += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop on a virtual clock. Timers fire in order, at once, and the same way every time."""

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self._in_executor = 0
        super().__init__(_Selector(self.clock, self._threads_work))
        self._clock_resolution = 1e-6  # sums of floats miss a timer by less than this

    def time(self) -> float:
        return self.clock.seconds

    def _threads_work(self) -> bool:
        return self._in_executor > 0 or any(
            thread.name.startswith("backstay-handler") for thread in threading.enumerate()
        )

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        future = super().run_in_executor(executor, func, *args)
        self._in_executor += 1
        future.add_done_callback(self._came_back)
        return future

    async def shutdown_default_executor(self, *args: Any) -> None:
        self._in_executor += 1  # a thread waits for the others to end
        try:
            await super().shutdown_default_executor(*args)
        finally:
            self._in_executor -= 1

    def _came_back(self, _: "asyncio.Future[Any]") -> None:
        self._in_executor -= 1


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Turns an async test into a plain one that runs on its own VirtualLoop, under any test runner."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(test(*args, **kwargs))

    return run
