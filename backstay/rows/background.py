"""The thread that runs the event loop of all calls, so that they work with and without an event loop of the caller."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from backstay.clock import new_event_loop

T = TypeVar("T")


class BackgroundLoop:
    """One daemon thread for each process: a fork has the object and not the thread, and starts its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for the end. The caller's own event loop, if there is one, stands still so long."""
        return self.start(work).result()

    def call(self, function: Any) -> None:
        self._running().call_soon_threadsafe(function)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():
            self._lock = threading.Lock() if self._pid is not None else self._lock  # the parent may have held it
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = new_event_loop(), os.getpid()
                threading.Thread(target=self._loop.run_forever, name="backstay-map", daemon=True).start()
            return self._loop


BACKGROUND = BackgroundLoop()
