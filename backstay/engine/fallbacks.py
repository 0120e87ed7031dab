"""Moves waiting requests to their next provider, when their own fails or refuses for too long, or its time is over.

Only for handlers with `fallback_after_seconds`. No more requests are moved than the next provider can start at once, so
that a provider that works again still has its own requests.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from backstay.core.breaker import Breaker, BreakerState, cool
from backstay.core.display import show_seconds
from backstay.core.failures import FailureKind
from backstay.core.models import Claimed
from backstay.core.outcomes import Failed, Outcome, Submitted, Succeeded
from backstay.engine.parts import Parts
from backstay.handlers.function import Registry, TaskHandler
from backstay.handlers.handler import Handler
from backstay.store.sweeps import Relief

LOOK_SECONDS = 0.5  # between two looks that found nothing to move
ITEMS_REMEMBERED_MAX = 10_000


def time_shares(registry: Registry, handler: Handler) -> int:
    """How many handlers share the time until an item's deadline, from this one on; 1: it has all of it."""
    shares, rules = 1, handler.rules
    while rules.fallback_after_seconds is not None and rules.fallback is not None and rules.fallback in registry:
        shares, rules = shares + 1, registry[rules.fallback].rules
    return shares


class Fallbacks:
    def __init__(self, parts: Parts, breakers: Callable[[], Mapping[str, Breaker]], now_ms: Callable[[], int]) -> None:
        self._parts = parts
        self._breakers = breakers
        self._now_ms = now_ms  # the database's time
        # Since when, on the database's clock: a provider takes no calls; a provider has only answered that it has no
        # capacity; an item has only got that answer.
        self._shut_at: dict[str, int] = {}
        self._throttled_at: dict[str, int] = {}
        self._turned_away_at: OrderedDict[int, int] = OrderedDict()
        self._look_at: dict[str, float] = defaultdict(lambda: float("-inf"))  # on the steady clock

    def judge(self, item: Claimed, handler: Handler, outcome: Outcome, now_ms: int) -> Outcome:
        """The outcome. "No capacity" becomes a final failure at this provider if it has been the only answer for too
        long. A batch that waits for its turn at the provider does not count."""
        after_seconds = handler.rules.fallback_after_seconds
        if after_seconds is None:
            return outcome
        throttled = isinstance(outcome, Failed) and outcome.failure.kind is FailureKind.THROTTLED
        if not throttled:
            self._turned_away_at.pop(item.id, None)
        if isinstance(outcome, Succeeded | Submitted):
            self._throttled_at.pop(handler.provider, None)
        if not throttled or item.ask_first or isinstance(handler, TaskHandler):
            return outcome
        assert isinstance(outcome, Failed)
        self._throttled_at.setdefault(handler.provider, now_ms)
        since = self._turned_away_at.setdefault(item.id, now_ms)
        if len(self._turned_away_at) > ITEMS_REMEMBERED_MAX:
            self._turned_away_at.popitem(last=False)
        failure, after_ms = outcome.failure, after_seconds * 1000
        if handler.rules.fallback is None or max(now_ms - since, failure.retry_after_ms or 0) < after_ms:
            return outcome
        self._turned_away_at.pop(item.id, None)
        message = f"the provider had no capacity for {show_seconds(after_seconds)}: {failure.message}"
        return replace(outcome, failure=replace(failure, kind=FailureKind.BUSINESS, message=message))

    def handlers_before(self) -> Mapping[str, Sequence[Handler]]:
        """By the name of a handler: the handlers whose items it takes over. Empty if there is no such handler here."""
        found: dict[str, list[Handler]] = {}
        for handler in self._parts.registry:
            if handler.rules.fallback_after_seconds is not None and handler.rules.fallback is not None:
                found.setdefault(handler.rules.fallback, []).append(handler)
        return found

    async def take_over(self, handler: Handler, room: int, before: Mapping[str, Sequence[Handler]]) -> None:
        """Moves up to `room` items to a handler from handlers whose fallback it is, if they wait there in vain. If a
        provider in between takes no calls itself, the items of the one before it are taken."""
        for first in before.get(handler.name, ()):
            why = self._why_shut(first)
            if why is not None:
                await self.take_over(first, room, before)
            now = self._parts.clock.monotonic()
            if now >= self._look_at[first.name] and (not await self._move(first, handler, why, room) or why is None):
                self._look_at[first.name] = now + LOOK_SECONDS

    async def _move(self, first: Handler, then: Handler, why: str | None, room: int) -> int:
        """Moves items; without a reason (`why`), only those whose share of the time is over."""
        shares = time_shares(self._parts.registry, first) if why is None else 0
        detail = f"{first.name}: {why or 'its share of the time is over'}, and {then.name} tries next"
        relief = Relief(first.name, then.name, detail, shares, self._parts.only_job)
        return await self._parts.store.sweeps.move_on(relief, room)

    def _why_shut(self, handler: Handler) -> str | None:
        """Why items should not wait for this handler's provider any longer; None: it takes calls, or may soon."""
        after_seconds, now_ms = handler.rules.fallback_after_seconds, self._now_ms()
        assert after_seconds is not None
        provider, state, since_at = handler.provider, BreakerState.CLOSED, now_ms
        if (breaker := self._breakers().get(provider)) is not None:
            state = cool(breaker, handler.rules.breaker, now_ms).state
            since_at = breaker.since_at if state is BreakerState.OPEN else now_ms
        if state is BreakerState.HELD:
            return "the provider is on hold"
        no_key = handler.answers is not None and self._parts.clock.monotonic() < handler.answers.shut_until
        if state is BreakerState.CLOSED and not no_key:
            self._shut_at.pop(provider, None)
        elif now_ms - self._shut_at.setdefault(provider, since_at) >= after_seconds * 1000:
            return "there is no valid API key" if state is BreakerState.CLOSED else "the provider is failing"
        throttled_at = self._throttled_at.get(provider)
        if throttled_at is not None and now_ms - throttled_at >= after_seconds * 1000:
            return "the provider has no capacity"
        return None
