"""Keeps several worker processes alive: starts them, passes signals on, restarts what died, ends when they have."""

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from backstay.clock import Clock, Tasks, wait_for_event
from backstay.core.events import Trouble

RESTART_SECONDS_FIRST = 1.0
RESTART_SECONDS_MAX = 30.0
STEADY_SECONDS = 60.0  # a process that lived this long starts with a clean record
DEATHS_MAX = 10  # in a row, none of them steady
USAGE_EXIT = 2  # an error in the command: a restart does not help


@dataclass(slots=True)
class Orders:
    """What to run, how often, and how long its end may take."""

    command: Sequence[str]
    environment: Mapping[str, str]
    processes: int
    stop_seconds: float


class Supervisor:
    """One life: run. Each child holds the other end of a pipe as its stdin, and stops when that ends with us."""

    def __init__(
        self,
        orders: Orders,
        clock: Clock,
        emit: Callable[[Trouble], None],
        ended: Callable[[int], None] = lambda pid: None,
    ) -> None:
        self._orders = orders
        self._clock = clock
        self._emit = emit
        self._ended = ended
        self._tasks = Tasks()
        self._stopping = asyncio.Event()
        self._children: dict[int, asyncio.subprocess.Process] = {}

    async def run(self) -> int:
        """Returns the exit code when all children have ended: 0 unless one of them could not be kept alive."""
        lives = [self._tasks.spawn(self._keep(number)) for number in range(1, self._orders.processes + 1)]
        codes: list[int] = await asyncio.gather(*lives)
        return max(codes)

    def forward_signal(self, number: signal.Signals) -> None:
        """A signal that we got is theirs: the first asks them to finish, the second not to wait."""
        first = not self._stopping.is_set()
        self._stopping.set()
        for child in self._children.values():
            _signal(child, number)
        if first:
            self._tasks.spawn(self._kill_unresponsive())

    async def _kill_unresponsive(self) -> None:
        await self._clock.sleep(self._orders.stop_seconds)
        for child in self._children.values():
            self._emit(Trouble("supervisor", f"process {child.pid} did not stop in time and is killed"))
            _signal(child, signal.SIGKILL)

    async def _keep(self, number: int) -> int:
        """Starts one child, again and again, until we are asked to stop or it cannot be kept alive."""
        deaths = 0
        while not self._stopping.is_set():
            started = self._clock.monotonic()
            code = await self._live(number)
            if self._stopping.is_set():
                return 0
            deaths = 1 if self._clock.monotonic() - started >= STEADY_SECONDS else deaths + 1
            if code == USAGE_EXIT or deaths >= DEATHS_MAX:
                return self._give_up(number, code)
            seconds = min(RESTART_SECONDS_FIRST * 2 ** (deaths - 1), RESTART_SECONDS_MAX)
            died = f"worker process {number} ended with {_show(code)}; a new one starts in {seconds:g} s"
            self._emit(Trouble("supervisor", died))
            await wait_for_event(self._stopping, seconds)
        return 0

    async def _live(self, number: int) -> int:
        # A session of its own: Ctrl-C on the terminal comes to us alone, and is passed on once.
        child = await asyncio.create_subprocess_exec(
            *self._orders.command,
            stdin=asyncio.subprocess.PIPE,
            env=dict(self._orders.environment),
            start_new_session=True,
        )
        self._children[number] = child
        if self._stopping.is_set():
            _signal(child, signal.SIGTERM)
        try:
            return await child.wait()
        finally:
            del self._children[number]
            self._ended(child.pid)

    def _give_up(self, number: int, code: int) -> int:
        self._emit(
            Trouble("supervisor", f"worker process {number} ended with {_show(code)}; all worker processes are stopped")
        )
        self.forward_signal(signal.SIGTERM)
        return code if code > 0 else 1


def _signal(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        child.send_signal(number)


def _show(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
