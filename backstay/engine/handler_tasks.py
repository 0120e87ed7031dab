"""Work for many handlers side by side, one task at a time for each, and questions to providers with retries."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from backstay.clock import cancel_until_ended
from backstay.core.events import Trouble
from backstay.core.failures import FailureKind, failure_of_exception
from backstay.core.limits import Limits
from backstay.core.retry import QUEUE, next_delay_ms
from backstay.engine.parts import Parts
from backstay.handlers.handler import Handler

H = TypeVar("H", bound=Handler)


async def run_side_by_side(*works: Coroutine[Any, Any, object]) -> None:
    """Returns when all have ended; the first error is raised then."""
    for end in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(end, BaseException):
            raise end


class HandlerTasks:
    """For a worker: starts work and does not wait for it. One life: `stop` ends the work under way."""

    def __init__(self, parts: Parts, what: str) -> None:
        self._parts = parts
        self._what = what
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._stopped = False

    def start(self, handler: Handler, work: Callable[[], Awaitable[object]]) -> None:
        """Starts the work, unless this handler's last work is still under way."""
        if handler.name not in self._under_way and not self._stopped:
            task = self._parts.tasks.spawn(self._do(work))
            self._under_way[handler.name] = task
            task.add_done_callback(lambda _: self._under_way.pop(handler.name))

    async def _do(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except Exception as error:  # reported, and tried again at the next start
            self._parts.emit(Trouble(self._what, f"{type(error).__name__}: {error}"))

    async def stop(self) -> None:
        self._stopped = True
        await cancel_until_ended(list(self._under_way.values()))


class ItemQuota:
    """For a tick: how many items all handlers together may look at. Each has an equal part; the fast ones also use what
    the others leave."""

    def __init__(self, items_max: int) -> None:
        self.items_max = self._left = max(items_max, 0)
        self.looked_at = 0

    @property
    def taken(self) -> int:
        """How many items are used, or given to handlers that may still return some."""
        return self.items_max - self._left

    def look_at(self, items: int) -> None:
        self.looked_at += items

    async def share_out(self, handlers: Collection[H], work: Callable[[H, int], Awaitable[int]]) -> None:
        """Returns when all are done. `work` gets a handler and a bound of items; it returns how many it looked at."""
        part = max(self.items_max // max(len(handlers), 1), 1)
        await run_side_by_side(*(self._serve(each, part, work) for each in handlers))

    async def _serve(self, handler: H, part: int, work: Callable[[H, int], Awaitable[int]]) -> None:
        while (items_max := min(part, self._left)) > 0:
            self._left -= items_max
            looked_at = await work(handler, items_max)
            self._left += items_max - looked_at
            if looked_at < items_max:
                return


T = TypeVar("T")

_AGAIN = (FailureKind.INFRASTRUCTURE, FailureKind.THROTTLED, FailureKind.UNKNOWN)


@dataclass(slots=True)
class CallQuota:
    """The calls that may still be made for an item in its turn: a question with its retries, and the calls after it."""

    calls_left: int


def new_call_quota(limits: Limits) -> CallQuota:
    return CallQuota(limits.call_retries_max + 1)


async def ask_provider(parts: Parts, question: Callable[[], Awaitable[T]], turn: CallQuota, spare: int = 0) -> T:
    """Tries a poll, look-up or cancel until the provider answers, or only the last `spare` calls of the turn are left.

    No wait is longer than a call may take. If the provider asks for a longer one, the question is given up for now.
    """
    longest = parts.limits.call_timeout_seconds
    tried = 0
    while True:
        turn.calls_left -= 1
        try:
            async with asyncio.timeout(longest):
                return await question()
        except Exception as error:
            failure = failure_of_exception(error, parts.clock.now_ms())
            seconds = next_delay_ms(QUEUE, tried, failure.retry_after_ms, parts.rng) / 1000
            too_long = failure.retry_after_ms is not None and seconds > longest
            if failure.kind not in _AGAIN or turn.calls_left <= spare or too_long:
                raise
        await parts.clock.sleep(min(seconds, longest))
        tried += 1
