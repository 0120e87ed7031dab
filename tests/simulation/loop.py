"""A virtual event loop with several simulated processes on it, each of which can be killed or frozen at any step."""

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from random import Random
from typing import Any

from backstay.testing import VirtualLoop

CURRENT: ContextVar["Process | None"] = ContextVar("simulated process", default=None)


class Process:
    """Everything that runs in one context. Killed, none of its steps runs again: no finally, no cancellation."""

    def __init__(self, name: str, loop: "SimulatedLoop") -> None:
        self.name = name
        self.loop = loop
        self.alive = True
        self.frozen = False
        self.steps = 0
        self.kill_at: int | None = None
        self.freeze_at: int | None = None
        self.freeze_seconds = 0.0
        self.interrupt_at: int | None = None
        self.interrupted: Callable[[], object] = lambda: None
        self.asking = 0  # look-ups under way
        self.polling = 0
        self._held_up: list[asyncio.Handle] = []
        self._context = Context()
        self._context.run(CURRENT.set, self)

    def start(self, main: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        return self.loop.create_task(main, name=self.name, context=self._context)

    def kill(self) -> None:
        if self.alive:
            self.alive = False
            self.loop.told(self, "killed")

    def freeze(self, seconds: float) -> None:
        if self.alive and not self.frozen:
            self.frozen = True
            self.loop.told(self, f"frozen for {seconds:.1f} s")
            self.loop.call_later(seconds, self._thaw, context=Context())

    def _thaw(self) -> None:
        self.frozen = False
        self.loop.told(self, "thawed")
        held_up, self._held_up = self._held_up, []
        self.loop.resume(held_up)

    def admits(self, handle: asyncio.Handle) -> bool:
        """Whether this step may run now; a frozen process does it when it thaws."""
        if self.alive and not self.frozen:
            self.steps += 1
            if self.steps == self.kill_at:
                self.kill()
            elif self.steps == self.freeze_at:
                self.freeze(self.freeze_seconds)
            elif self.steps == self.interrupt_at:
                self.interrupted()
        if self.alive and self.frozen:
            self._held_up.append(handle)
        return self.alive and not self.frozen


class _Step(asyncio.Handle):
    def _run(self) -> None:
        process = self._context.get(CURRENT)  # type: ignore[attr-defined]
        if process is None or process.admits(self):
            super()._run()


class _Timer(asyncio.TimerHandle):
    def _run(self) -> None:
        process = self._context.get(CURRENT)  # type: ignore[attr-defined]
        if process is None or process.admits(self):
            super()._run()


class SimulatedLoop(VirtualLoop):
    """Steps of one process keep their order, as on a real loop; those of different processes interleave by chance."""

    def __init__(self, rng: Random, told: Callable[[Process, str], None]) -> None:
        super().__init__()
        self._rng = rng
        self.told = told
        self._born: list[asyncio.Task[Any]] = []  # a killed process's tasks must not be collected while others run
        self.set_exception_handler(self._unhandled)
        self.unhandled: list[str] = []

    def create_task(self, coro: Any, **options: Any) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = super().create_task(coro, **options)
        self._born.append(task)
        return task

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def resume(self, handles: list[asyncio.Handle]) -> None:
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def _call_soon(self, callback: Any, args: Any, context: Context | None) -> asyncio.Handle:
        handle = _Step(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def _run_once(self) -> None:
        if len(self._ready) > 1:  # type: ignore[attr-defined]
            self._interleave()
        super()._run_once()  # type: ignore[misc]

    def _interleave(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        queues: dict[int, list[asyncio.Handle]] = {}
        for handle in ready:
            queues.setdefault(id(handle._context.get(CURRENT)), []).append(handle)
        if len(queues) == 1:
            return
        ready.clear()
        waiting = [queue[::-1] for queue in queues.values()]
        while waiting:
            queue = self._rng.choice(waiting)
            ready.append(queue.pop())
            if not queue:
                waiting.remove(queue)

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.unhandled.append(str(context.get("exception") or context.get("message")))

    def bury(self) -> None:
        """Ends the world: what still hangs is closed here, so that it cannot reach into the next one."""
        self._interleave = lambda: None  # type: ignore[method-assign]
        for task in self._born:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if not task.done():
                coroutine = task.get_coro()
                try:
                    coroutine.close()
                except RuntimeError:
                    continue  # it awaits in a finally: it has had its say
        self._born.clear()
        self.close()
