"""A run in the background: the thread that its event loop runs in, and the line that shows its progress and cost in a
terminal, in a notebook or, now and then, in a log."""

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from html import escape
from typing import Any, Final, Protocol, TypeVar

from backstay.clock import Clock, new_event_loop
from backstay.run.run_state import Meter, RunState
from backstay.run.summary import Summary
from backstay.run.view import describe

LINE_SECONDS: Final = 30.0
DRAW_SECONDS: Final = 0.25
WIDTH_MAX: Final = 160
_CLOCK: Final = Clock()


class LastState:
    """The view of a run for another thread: the last state, and the notes. The thread that waits for the run draws
    them, so that a notebook shows them below the right cell."""

    def __init__(self) -> None:
        self.job_id: int | None = None
        self.state: RunState | None = None
        self.said: list[str] = []

    @contextmanager
    def open(self, job_id: int) -> Iterator["LastState"]:
        self.job_id = job_id
        yield self

    def show(self, state: RunState, now: float) -> None:
        self.state = state

    def say(self, text: str) -> None:
        self.said.append(text)

    def end(self, summary: Summary) -> None:
        """Nothing to show: the caller gets the answers."""


class Progress(Protocol):
    def draw(self, line: str) -> None: ...
    def say(self, text: str) -> None: ...
    def close(self) -> None: ...


class ProgressLine:
    """Draws the state of a run, but not too often."""

    def __init__(self, shown: Progress | None) -> None:
        self._shown = shown
        self._meter = Meter()
        self._drawn_at = float("-inf")

    def draw(self, view: LastState) -> None:
        now = _CLOCK.monotonic()
        state = view.state
        self._repeat(view)
        if self._shown is None or state is None or now - self._drawn_at < DRAW_SECONDS:
            return
        self._drawn_at = now
        reading = self._meter.read(state, now)
        self._shown.draw(describe(state, reading))

    def say(self, text: str) -> None:
        if self._shown is not None:
            self._shown.say(text)

    def close(self, view: LastState) -> None:
        self._repeat(view)
        if self._shown is not None:
            self._shown.close()

    def _repeat(self, view: LastState) -> None:
        """Says what the run has said: how many answers are known, before the rest is sent."""
        while view.said:
            self.say(view.said.pop(0))


class TerminalProgress:
    """One line that is overwritten."""

    def __init__(self) -> None:
        self._width = 0

    def draw(self, line: str) -> None:
        sys.stderr.write(f"\r{line[:WIDTH_MAX]:<{self._width}}")
        sys.stderr.flush()
        self._width = min(len(line), WIDTH_MAX)

    def say(self, text: str) -> None:
        """A line of its own, which stays."""
        self.close()
        _write_line(text)

    def close(self) -> None:
        if self._width:
            sys.stderr.write(f"\r{'':<{self._width}}\r")
            sys.stderr.flush()


class PlainProgress:
    """A line every half minute; nothing for a shorter run."""

    def __init__(self) -> None:
        self._said_at = _CLOCK.monotonic()

    def draw(self, line: str) -> None:
        now = _CLOCK.monotonic()
        if now - self._said_at >= LINE_SECONDS:
            self._said_at = now
            _write_line(line)

    def say(self, text: str) -> None:
        _write_line(text)

    def close(self) -> None:
        """The lines stay."""


class NotebookProgress:
    """A display below a notebook cell, which is updated."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handle: Any = None

    def draw(self, line: str) -> None:
        shown = {"text/plain": line, "text/html": f"<code>{escape(line)}</code>"}
        if self._handle is None:
            self._handle = self._display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def say(self, text: str) -> None:
        self._display({"text/plain": text, "text/html": f"<code>{escape(text)}</code>"}, raw=True)

    def close(self) -> None:
        """The last line stays."""


def _write_line(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def choose_progress(wanted: bool | None) -> ProgressLine:
    """`wanted` None: the progress that fits the output, a notebook, a terminal or a log."""
    if wanted is False:
        return ProgressLine(None)
    display = _notebook_display()
    if display is not None:
        return ProgressLine(NotebookProgress(display))
    return ProgressLine(TerminalProgress() if sys.stderr.isatty() else PlainProgress())


def _notebook_display() -> Any:
    """IPython's display inside a kernel; None in a terminal, also in IPython's own."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    return sys.modules["IPython.display"].display  # loaded by the kernel itself


T = TypeVar("T")


class BackgroundLoop:
    """The thread of the event loop of all calls, so that they work with and without an event loop of the caller. A fork
    has this object but not the thread, and starts its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._ensure_loop())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for the result. The caller's own event loop, if there is one, is blocked meanwhile."""
        return self.start(work).result()

    def clean_up(self, work: Coroutine[Any, Any, None]) -> None:
        """Waits for work that closes something. When Python clears the modules of a program, the thread is dead, and
        nothing that it had open is left."""
        if sys.is_finalizing():
            work.close()
        else:
            self.run(work)

    def call(self, function: Any) -> None:
        self._ensure_loop().call_soon_threadsafe(function)

    def _ensure_loop(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():
            self._lock = threading.Lock() if self._pid is not None else self._lock  # the parent may have held it
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = new_event_loop(), os.getpid()
                threading.Thread(target=_run, args=(self._loop,), name="backstay-map", daemon=True).start()
            return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Runs as long as the process. SystemExit and KeyboardInterrupt of one call end the loop: the call gets them, and
    the others go on."""
    while True:
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()


BACKGROUND = BackgroundLoop()
