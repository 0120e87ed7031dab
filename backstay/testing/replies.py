"""How a scripted provider answers one request, and the chances from which seeded answers are drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from backstay.core.errors import OutcomeUnknown, Permanent, Throttled, Transient


@dataclass(frozen=True, slots=True)
class Reply:
    """What happens to a request: when it arrives, whether it is processed and billed, and what the client receives."""

    value: Any = None  # the result; None leaves it to the provider
    error: Callable[[], Exception] | None = None  # what the client gets
    billed: bool = True
    heard: bool = True  # False: no answer ever comes
    arrives_seconds: float = 0.0  # from sending until the provider has processed it
    answers_seconds: float = 0.5  # from there to the client


def ok(value: Any = None, seconds: float = 0.5) -> Reply:
    """Processed, billed and answered."""
    return Reply(value, answers_seconds=seconds)


def broken(seconds: float = 0.5) -> Reply:
    """A server error: nothing was processed or billed, and another try may help."""
    return Reply(error=lambda: Transient("the provider answered 503"), billed=False, answers_seconds=seconds)


def refused(message: str = "the provider answered 422", seconds: float = 0.5) -> Reply:
    """The request itself is wrong: retries do not help."""
    return Reply(error=lambda: Permanent(message), billed=False, answers_seconds=seconds)


def throttled(retry_after_seconds: float | None = None, seconds: float = 0.1) -> Reply:
    """429, with Retry-After when given."""
    return Reply(
        error=lambda: Throttled("the provider answered 429", retry_after_seconds), billed=False, answers_seconds=seconds
    )


def lost(seconds: float = 0.5) -> Reply:
    """Processed and billed, but the connection breaks before the answer arrives."""
    return Reply(error=lambda: OutcomeUnknown("the connection broke during the call"), answers_seconds=seconds)


def hanging(billed: bool = True) -> Reply:
    """Never answers. Only the bill shows whether it was processed."""
    return Reply(billed=billed, heard=False)


Replying = Callable[[Random], Reply]


@dataclass(frozen=True, slots=True)
class Chances:
    """The probability of each fault; the other requests succeed. Drawn from the provider's own seeded Random."""

    broken: float = 0.0
    throttled: float = 0.0
    refused: float = 0.0
    lost: float = 0.0
    hanging: float = 0.0
    slow: float = 0.0
    latency_seconds: float = 1.0
    slow_seconds: float = 30.0
    arrives_seconds_max: float = 0.0

    def __call__(self, rng: Random) -> Reply:
        reply = self._drawn(rng)
        late = rng.uniform(0, self.arrives_seconds_max) if rng.random() < 0.3 else 0.0
        return Reply(reply.value, reply.error, reply.billed, reply.heard, late, reply.answers_seconds)

    def _drawn(self, rng: Random) -> Reply:
        seconds = rng.uniform(0.01, self.latency_seconds)
        mishaps: tuple[tuple[float, Callable[[], Reply]], ...] = (
            (self.broken, lambda: broken(seconds)),
            (self.throttled, lambda: throttled(rng.choice([None, 1.0, 5.0]), seconds)),
            (self.refused, lambda: refused(seconds=seconds)),
            (self.lost, lambda: lost(seconds)),
            (self.hanging, lambda: hanging(rng.random() < 0.5)),
            (self.slow, lambda: ok(seconds=rng.uniform(0.5, 1) * self.slow_seconds)),
        )
        point = rng.random()
        for chance, make in mishaps:
            point -= chance
            if point < 0:
                return make()
        return ok(seconds=seconds)
