"""What `worker` and `tick` share: logs on stderr, and signals that ask first and insist later."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from backstay.cli import output

if TYPE_CHECKING:
    from backstay.app import Backstay

INTERRUPTED = 130


def log_to_stderr(app: "Backstay", level: str | None, as_json: bool) -> None:
    """Subscribes the log lines; flags win over the settings."""
    from backstay.observe.logs import Logs

    wanted = {"json": True, "console": False}.get(app.settings.log_format)
    colours = output.fancy(sys.stderr)
    app.bus.subscribe(Logs(sys.stderr, level or app.settings.log_level, True if as_json else wanted, colours))


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
