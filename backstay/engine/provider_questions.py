"""One question to a provider, with its own time limit and inner retries: for calls that may safely be repeated."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from backstay.core.failures import FailureKind, failure_of_exception
from backstay.core.limits import Limits
from backstay.core.retry import QUEUE, next_delay_ms
from backstay.engine.parts import Parts

T = TypeVar("T")

_AGAIN = (FailureKind.INFRASTRUCTURE, FailureKind.THROTTLED, FailureKind.UNKNOWN)


@dataclass(slots=True)
class CallQuota:
    """The calls that an item may still make in its turn: a question with its retries, and what follows from it."""

    calls_left: int


def new_turn(limits: Limits) -> CallQuota:
    return CallQuota(limits.call_retries_max + 1)


async def ask_provider(parts: Parts, question: Callable[[], Awaitable[T]], turn: CallQuota, spare: int = 0) -> T:
    """Tries a poll, look-up or cancel until the provider answers, or only the last `spare` calls of the turn are left.

    No wait is longer than a call may take. If the provider asks for a longer one, the question is given up for now.
    """
    longest = parts.limits.call_timeout_seconds
    for tried in count():
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
    raise AssertionError("the last try returns or raises")
