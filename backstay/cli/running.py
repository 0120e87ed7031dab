"""What `worker` and `tick` share: logs on stderr, and signals that ask first and insist later."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backstay.cli import output

if TYPE_CHECKING:
    from backstay.app import Backstay

INTERRUPTED = 130


def log_to_stderr(app: "Backstay", level: str | None, as_json: bool) -> None:
    """Subscribes the log lines; flags win over the settings. With BACKSTAY_DEBUG libraries log as they like."""
    import logging

    from backstay.observe.logs import LibraryLog, Logs

    wanted = {"json": True, "console": False}.get(app.settings.log_format)
    colours = output.fancy(sys.stderr)
    logs = Logs(sys.stderr, level or app.settings.log_level, True if as_json else wanted, colours)
    app.bus.subscribe(logs)
    if os.environ.get("BACKSTAY_DEBUG", "0") in ("", "0"):
        logging.lastResort = LibraryLog(logs)


class Stopping:
    """Whether someone asked the process to stop. If they ask while it still starts, the start is cut short."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._starting: asyncio.Task[object] | None = None

    def ask(self) -> None:
        self._asked.set()
        if self._starting is not None:
            self._starting.cancel()

    async def wait(self) -> None:
        """Everything has started; returns when someone asks for a stop."""
        self._starting = None
        await self._asked.wait()

    @contextmanager
    def while_starting(self) -> Iterator[None]:
        self._starting = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError:
            if self._starting is None or not self._asked.is_set():
                raise
            self._starting.uncancel()
        finally:
            self._starting = None


class Signals:
    """SIGTERM, SIGINT and a terminal that goes away. The first asks for an end, the second cuts short what runs, the
    third ends the process."""

    def __init__(self, ask: Callable[[], object], insist: Callable[[], object]) -> None:
        self._ask = ask
        self._insist = insist
        self.received = 0
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup is taken at its word
                loop.add_signal_handler(number, self.receive)

    def receive(self) -> None:
        self.received += 1
        if self.received == 1:
            self._ask()
        elif self.received == 2:
            self._insist()
        else:
            os._exit(INTERRUPTED)

    @property
    def exit_code(self) -> int:
        """An end that was asked for is a good one; only insisting interrupts."""
        return INTERRUPTED if self.received > 1 else 0
