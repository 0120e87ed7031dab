"""Decides how much may be claimed now: breakers and holds, as all workers see them, and this worker's own limits."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Sequence

from backstay.core.breaker import Breaker, BreakerState, Call, allowance
from backstay.core.events import BreakerChanged, Trouble
from backstay.core.failures import FailureKind
from backstay.core.models import Settlement
from backstay.core.outcomes import Failed, Outcome, Submitted, Succeeded
from backstay.core.states import StopReason
from backstay.engine.flight import Cut, Flights
from backstay.engine.parts import Parts
from backstay.engine.settler import Ready
from backstay.handlers.handler import Handler
from backstay.store.claim import Want
from backstay.store.providers import Change, Holds

REFRESH_SECONDS = 0.5
CALLS_REMEMBERED_MAX = 100
TELL_SECONDS = 0.25


class Gate:
    def __init__(self, parts: Parts, flights: Flights) -> None:
        self._parts = parts
        self._flights = flights
        self._holds = Holds({}, {}, 0)
        self._read_at = 0.0  # on the steady clock: when the holds were read
        self._stale = True
        self.probing: set[str] = set()  # the providers that this worker alone may try now
        self._told_at: dict[str, float] = defaultdict(lambda: float("-inf"))
        self.refused: set[str] = set()  # providers that refused us, as long as the hold for it is not yet written
        self._recent: dict[str, deque[Call]] = defaultdict(lambda: deque(maxlen=CALLS_REMEMBERED_MAX))
        self._turn = 0
        self.claim_age_seconds = REFRESH_SECONDS  # a claim waits for newer holds than these
        self.states: dict[str, str] = {}

    async def refresh(self, max_age_seconds: float = REFRESH_SECONDS) -> None:
        """Looks at the shared holds unless that was done just now, and cuts off the runs of cancelled jobs."""
        now = self._parts.clock.monotonic()
        if not self._stale and now < self._read_at + max_age_seconds:
            return
        self._stale = False
        self._holds = await self._parts.store.holds()
        self._read_at = now
        self.states.update((name, breaker.state.value) for name, breaker in self._holds.providers.items())
        stopped = {job_id for job_id, reason in self._holds.jobs.items() if reason is StopReason.CANCEL}
        if stopped:
            for flight in self._flights.all():
                if flight.item.job_id in stopped and flight.cut is None:
                    flight.cut_off(Cut.STOPPED)

    async def wants(self, slots: int) -> list[Want]:
        """How many items of each handler to claim at most; together they share the slots. Who is first takes turns."""
        await self.refresh(self.claim_age_seconds)
        await self.give_probes()
        only_job = self._parts.only_job
        handlers = [handler for handler in self._parts.registry if only_job is None or handler.answers is not None]
        self._turn = (self._turn + 1) % max(len(handlers), 1)
        handlers = handlers[self._turn :] + handlers[: self._turn]
        limited = len(handlers) > 1 or any(h.rules.concurrency or h.answers for h in handlers)
        running = self._running_by_handler() if limited else {}
        wants: list[Want] = []
        for handler in handlers:
            items = await self._allowed(handler, min(slots, self._parts.limits.claim_items_max), running)
            if items > 0:
                # Of what cannot be asked about, nothing is learnt by waiting.
                want = Want(handler.name, items, self._parts.reconcile_ms(handler) if handler.askable else 0)
                wants.append(want if handler.answers is None else self._paced(want, handler))
        # Who may take few is served first: nobody else's share suffers, and no probe that was granted is left unused.
        return sorted(wants, key=lambda want: want.items)

    def _paced(self, want: Want, handler: Handler) -> Want:
        return want._replace(paced=handler.pace_name, only_job=self._parts.only_job)

    async def keep_pace(self) -> None:
        """Tells all workers what this one saw of the providers' pace, where it saw anything."""
        for handler in self._parts.registry:
            if handler.answers is not None and handler.answers.any:
                await self._parts.store.judge_pace(handler.pace_name, handler.answers)

    def _running_by_handler(self) -> dict[str, int]:
        running: dict[str, int] = defaultdict(int)
        for flight in self._flights.all():
            if flight.flying:  # what waits for its commit calls nobody
                running[flight.plan.handler.name] += 1
        return running

    async def _allowed(self, handler: Handler, items: int, running: dict[str, int]) -> int:
        if handler.provider in self.refused:
            return 0
        if handler.rules.concurrency is not None:
            items = min(items, handler.rules.concurrency - running.get(handler.name, 0))
        breaker = self._holds.providers.get(handler.provider)
        if breaker is None or breaker.state is BreakerState.CLOSED:
            self.probing.discard(handler.provider)
            return items
        if items <= 0:
            return 0
        return min(items, await self._probes(handler, breaker))

    async def _probes(self, handler: Handler, breaker: Breaker) -> int:
        """How many items may try a provider that is not closed; the right to try goes to one worker at a time."""
        probes = allowance(breaker, handler.rules.breaker, self._now_ms()) or 0
        if probes == 0:
            return 0
        self._tell(await self._parts.store.cool(handler.provider, handler.rules.breaker))
        taken = await self._parts.store.take_probe(handler.provider, self._parts.run_seconds(handler))
        if taken:
            self.probing.add(handler.provider)
        return probes if taken else 0

    async def give_probes(self) -> None:
        """Gives back the right to try a provider with which nothing of ours is under way: others may have items."""
        if not self.probing:
            return
        flying = {flight.plan.handler.provider for flight in self._flights.all()}
        for provider in self.probing - flying:
            self.probing.discard(provider)
            await self._parts.store.give_probe(provider)

    def _now_ms(self) -> int:
        """The database's time, by this worker's steady clock."""
        return self._holds.now + int((self._parts.clock.monotonic() - self._read_at) * 1000)

    def may_call(self, handler: Handler) -> bool:
        """Whether the provider may be asked at all now, for a poll or a look-up."""
        breaker = self._holds.providers.get(handler.provider)
        return breaker is None or allowance(breaker, handler.rules.breaker, self._now_ms()) != 0

    async def observe(self, group: Sequence[Ready]) -> None:
        """Tells all workers what the provider's answers were. In calm weather nobody needs to know."""
        calls: dict[str, list[Call]] = defaultdict(list)
        handlers: dict[str, Handler] = {}
        held: dict[str, tuple[Handler, str]] = {}
        for settlement, item, plan, outcome, _ in _telling(group):
            handler = plan.handler
            call = _call(item.claimed_at, settlement, outcome)
            if call is not None:
                calls[handler.provider].append(call)
                handlers[handler.provider] = handler
            if isinstance(outcome, Failed) and outcome.failure.kind is FailureKind.HELD:
                held[handler.provider] = (handler, outcome.failure.message)
        for handler, reason in held.values():
            await self.hold(handler, reason)
        for provider, made in calls.items():
            await self.observe_calls(handlers[provider], made)

    async def observe_calls(self, handler: Handler, calls: Sequence[Call]) -> None:
        recent = self._recent[handler.provider]
        recent.extend(calls)
        known = self._holds.providers.get(handler.provider)
        closed = known is None or known.state is BreakerState.CLOSED
        calm = known is None or (closed and all(call.ok for call in known.calls))
        if calm and all(call.ok for call in calls):
            return
        now, policy = self._parts.clock.monotonic(), handler.rules.breaker
        latest = list(recent)[-policy.window_calls :]
        few = sum(not call.ok for call in latest) < policy.fail_ratio * len(latest)
        if closed and few and now < self._told_at[handler.provider] + TELL_SECONDS:
            return  # no breaker opens at that, so it can wait for more
        self._told_at[handler.provider] = now
        told = tuple(recent)
        recent.clear()
        self._tell(await self._parts.store.observe(handler.provider, told, handler.rules.breaker))
        self._stale = True

    async def hold(self, handler: Handler, reason: str) -> None:
        try:
            self._tell(await self._parts.store.hold(handler.provider, reason, handler.rules.hold_seconds))
        finally:
            self._stale = True
            self.refused.discard(handler.provider)

    async def heal(self) -> None:
        """Providers in plain hold mode come back when their health probe succeeds, or by time if they have none."""
        for handler in {handler.provider: handler for handler in self._parts.registry}.values():
            breaker = self._holds.providers.get(handler.provider)
            if handler.rules.breaker.mode != "hold" or breaker is None or breaker.state is not BreakerState.OPEN:
                continue
            if self._now_ms() < breaker.since_at + handler.rules.breaker.open_ms:
                continue
            if await self._healthy(handler):
                self._tell(await self._parts.store.release(handler.provider))
                self._stale = True

    async def _healthy(self, handler: Handler) -> bool:
        if handler.rules.health is None:
            return True
        try:
            async with asyncio.timeout(self._parts.limits.call_timeout_seconds):
                await handler.rules.health()
        except Exception as error:
            self._parts.emit(Trouble(f"health of {handler.provider}", type(error).__name__))
            return False
        return True

    def _tell(self, change: Change) -> None:
        self.states[change.after.provider] = change.after.state.value
        if change.before.state is not change.after.state:
            self._parts.emit(BreakerChanged(change.before, change.after))


def _telling(group: Sequence[Ready]) -> Sequence[Ready]:
    """The settlements worth looking at: all of them, or of a group that went well the last few."""
    return group if any(isinstance(ready.outcome, Failed) for ready in group) else group[-CALLS_REMEMBERED_MAX:]


def _call(started_at: int, settlement: Settlement, outcome: Outcome) -> Call | None:
    """What an outcome says about the provider's health; business errors and throttling say nothing."""
    ended_at = settlement.attempt.ended_at if settlement.attempt else started_at
    match outcome:
        case Succeeded() | Submitted():
            return Call(started_at, ended_at, ok=True)
        case Failed() if outcome.flaw is not None:  # it answered; that somebody has no use for the answer is no illness
            return Call(started_at, ended_at, ok=True)
        case Failed() if outcome.failure.kind in (FailureKind.INFRASTRUCTURE, FailureKind.UNKNOWN):
            return Call(started_at, ended_at, ok=False)
        case _:
            return None
