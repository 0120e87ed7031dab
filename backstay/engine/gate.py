"""Decides how many items may be claimed now, by the breakers and holds that all workers share, this worker's own
limits, and the first replies of a run.

`Fallbacks` moves waiting requests to their next provider, when their own fails or refuses for too long, or its time is
over. Only for handlers with `fallback_after_seconds`. No more requests are moved than the next provider can start at
once, so that a provider that works again still has its own requests.
"""

import asyncio
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from backstay.core.breaker import Breaker, BreakerState, Call, allowance, cool
from backstay.core.display import show_seconds
from backstay.core.events import BreakerChanged, Trouble
from backstay.core.failures import Failure, FailureKind
from backstay.core.ids import draw_start
from backstay.core.models import Claimed, Failed, Outcome, Settlement, Submitted, Succeeded
from backstay.core.pace import Answers
from backstay.core.states import ItemState, StopReason
from backstay.engine.parts import Flights, Parts
from backstay.engine.settler import Ready
from backstay.handlers.function import Registry, TaskHandler
from backstay.handlers.handler import Handler
from backstay.store.items import Want
from backstay.store.providers import BreakerChange, HeldWork
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


REFRESH_SECONDS = 0.5
CALLS_REMEMBERED_MAX = 100
TELL_SECONDS = 0.25
REFUSALS_TO_HOLD = 2  # in a row, with no success between: one alone may be the item's own fault
REFUSALS_ENOUGH = 5
WAIT_MS = 2_000
_REFUSALS = (FailureKind.BUSINESS, FailureKind.REFUSED, FailureKind.HELD)
_STATUSES_BY_TEXT = (400, 422)  # their text says what is wrong with one request: only the same text is the same refusal


class FirstReplies:
    """Judges the first replies of a run, so that no item fails if the provider refuses them all. It is over with the
    first success, with a refusal of another kind, or when an item is refused a second time: other items may be fine and
    must not wait for it. A refused item waits a moment, so that the others are tried first."""

    def __init__(self, items: int) -> None:
        self._items = items  # of the whole run: a run with few items needs fewer refusals
        self.over = False
        self.refusal: Failure | None = None
        self._refused: set[int] = set()
        self._account_refused = 0

    @property
    def enough(self) -> bool:
        """Whether enough were refused: then nothing more should be sent until the calls under way have ended."""
        if self.over or self.refusal is None:
            return False
        by_text = self.refusal.provider_status in _STATUSES_BY_TEXT
        needed = REFUSALS_ENOUGH if by_text else min(REFUSALS_ENOUGH, self._items)
        return len(self._refused) >= needed or self._account_refused > 1

    def judge(self, item: Claimed, outcome: Outcome) -> Outcome:
        """A refusal that would be final puts the item back instead."""
        if self.over:
            return outcome
        if isinstance(outcome, Succeeded | Submitted):
            self.over = True
        if not isinstance(outcome, Failed) or not _is_refusal(outcome.failure):
            return outcome
        failure = outcome.failure
        if item.id in self._refused or (self.refusal is not None and _kind(failure) != _kind(self.refusal)):
            self.over = True
            return outcome
        self.refusal = failure
        if failure.kind is FailureKind.HELD:
            self._account_refused += 1
            return outcome
        self._refused.add(item.id)
        return replace(outcome, failure=replace(failure, kind=FailureKind.THROTTLED, retry_after_ms=WAIT_MS))


def _is_refusal(failure: Failure) -> bool:
    status = failure.provider_status
    return failure.kind in _REFUSALS and status is not None and 300 <= status <= 499


def _kind(failure: Failure) -> tuple[int | None, str]:
    status = failure.provider_status
    return status, failure.message if status in _STATUSES_BY_TEXT else ""


class Gate:
    def __init__(self, parts: Parts, flights: Flights) -> None:
        self._parts = parts
        self._flights = flights
        self._holds = HeldWork({}, {}, 0)
        self._read_at = 0.0  # on the steady clock: when the holds were read
        self._stale = True
        # The providers that only this worker may probe now, and since when they have been half-open.
        self._probing: dict[str, int] = {}
        self._told_at: dict[str, float] = defaultdict(lambda: float("-inf"))
        self._worked_at: dict[str, int] = {}  # the last success of a provider, on the database's clock
        self._refusals: Counter[str] = Counter()  # of the account, by provider, since its last success
        # Since when, on the steady clock, a provider refuses the account. Nothing more is sent to it. It is put on hold
        # if none of the calls under way succeeds.
        self._refused_at: dict[str, float] = {}
        self._refusal_words: dict[str, str] = {}
        self._recent: dict[str, deque[Call]] = defaultdict(lambda: deque(maxlen=CALLS_REMEMBERED_MAX))
        self._turn = 0
        self._fallbacks = Fallbacks(parts, lambda: self._holds.providers, self._now_ms)
        self.claim_age_seconds = REFRESH_SECONDS  # holds older than this are read again before a claim
        self.states: dict[str, str] = {}

    async def refresh(self, max_age_seconds: float = REFRESH_SECONDS) -> None:
        """Reads the shared holds, unless that was done recently, and asks the runs of cancelled jobs to end."""
        now = self._parts.clock.monotonic()
        if not self._stale and now < self._read_at + max_age_seconds:
            return
        self._stale = False
        self._holds = await self._parts.store.providers.holds()
        self._read_at = now
        self.states.update((name, breaker.state.value) for name, breaker in self._holds.providers.items())
        stopped = {job_id for job_id, reason in self._holds.jobs.items() if reason is StopReason.CANCEL}
        if stopped:
            end = now + self._parts.limits.cancel_grace_seconds
            for flight in self._flights.all():
                if flight.item.job_id in stopped:
                    flight.stop_by(end)

    async def wants(self, slots: int) -> list[Want]:
        """The most items of each handler to claim now. Handlers share the slots, and take turns in being first."""
        if self._parts.trial is not None and self._parts.trial.enough:
            return []
        await self.refresh(self.claim_age_seconds)
        await self.give_probes()
        await self.keep_pace(pauses_only=True)
        only_job = self._parts.only_job
        handlers = [handler for handler in self._parts.registry if only_job is None or handler.answers is not None]
        self._turn = (self._turn + 1) % max(len(handlers), 1)
        handlers = handlers[self._turn :] + handlers[: self._turn]
        limited = any(h.rules.concurrency is not None or (h.answers and h.answers.room) for h in handlers)
        running = self._running_by_handler() if limited else {}
        wants: list[Want] = []
        before = self._fallbacks.handlers_before()
        for handler in handlers:
            items = await self._items_allowed(handler, min(slots, self._parts.limits.claim_items_max), running)
            if items > 0:
                if handler.name in before:
                    await self._fallbacks.take_over(handler, items, before)
                wants.append(self._want(handler, items))
        # Handlers with a small limit go first: the others lose nothing, and no granted probe is left unused. Of the
        # others the paced ones go last: their claims cost the most, so they get what is left over.
        return sorted(wants, key=lambda want: (want.items, want.paced is not None))

    def _want(self, handler: Handler, items: int) -> Want:
        # If the provider cannot be asked about an item, there is nothing to wait for.
        reconcile_ms = self._parts.reconcile_ms(handler) if handler.askable else 0
        want = Want(handler.name, items, reconcile_ms, from_key=draw_start(self._parts.rng))
        if handler.answers is not None:
            want = want._replace(
                paced=handler.pace_name, only_job=self._parts.only_job, only_first=self._parts.only_first
            )
        calls = handler.rules.calls
        if calls.any:
            cost = None if calls.reads_payload else calls.weigh("")[0]
            want = want._replace(cost_micros=cost, weighs=calls.reads_payload)
        if handler.provider in self._probing:
            want = want._replace(probes=tuple(self._parts.rng.random() for _ in range(items)))
        return want

    def judge(self, item: Claimed, handler: Handler, outcome: Outcome, now_ms: int) -> Outcome:
        """The outcome, as it counts for the item. A second refusal of the account since the last success puts the
        provider on hold. An item that is refused again although others have succeeded since is refused by itself."""
        provider = handler.provider
        if handler.answers is not None and handler.rules.calls.any and item.state == ItemState.SUBMITTING:
            self._note_answer(handler.answers, item, outcome)
        match outcome:
            case Succeeded() | Submitted():
                self._worked_at[provider] = now_ms
                if provider in self._refusals:
                    del self._refusals[provider]
                    self._refused_at.pop(provider, None)
            case Failed(failure=failure) if failure.kind is FailureKind.HELD:
                if item.refused_at is not None and item.refused_at < self._worked_at.get(provider, 0):
                    return replace(outcome, failure=replace(failure, kind=FailureKind.REFUSED))
                self._refusals[provider] += 1
                self._refusal_words[provider] = failure.message
                if self._refusals[provider] >= REFUSALS_TO_HOLD:
                    self._refused_at.setdefault(provider, self._parts.clock.monotonic())
            case _:
                pass
        outcome, trial = self._fallbacks.judge(item, handler, outcome, now_ms), self._parts.trial
        if trial is None or (handler.rules.fallback is not None and isinstance(outcome, Failed)):
            return outcome  # a refusal does not end a run that has another provider to try
        return trial.judge(item, outcome)

    @staticmethod
    def _note_answer(answers: Answers, item: Claimed, outcome: Outcome) -> None:
        """For a handler that declares limits: throttled calls show that there were too many at once. The time of a call
        shows nothing, because items of one handler may differ much."""
        match outcome:
            case Failed(failure=failure) if failure.kind is FailureKind.THROTTLED:
                answers.add(0.0, throttled=True, pause_ms=failure.retry_after_ms or 0)
            case Succeeded() | Submitted() | Failed():
                answers.add(0.0, throttled=False, began_at=item.claimed_at)
            case _:
                pass

    def is_probe(self, handler: Handler) -> bool:
        return handler.provider in self._probing

    async def keep_pace(self, pauses_only: bool = False) -> None:
        """Shares with all workers what this one learnt about the pace of providers. A pause that a provider asks for is
        stored before the next claim: until all workers know it, new calls are refused."""
        for handler in self._parts.registry:
            answers = handler.answers
            if answers is not None and (answers.pause_ms if pauses_only else answers.any):
                own = handler.name if handler.rules.calls.any else None
                await self._parts.store.providers.judge_pace(handler.pace_name, answers, own)

    def _running_by_handler(self) -> dict[str, int]:
        running: dict[str, int] = defaultdict(int)
        for flight in self._flights.all():
            if flight.is_running:  # an item that only waits for its commit makes no call
                running[flight.plan.handler.name] += 1
        return running

    async def _items_allowed(self, handler: Handler, items: int, running: dict[str, int]) -> int:
        if handler.provider in self._refused_at:
            await self._hold_refused(handler)
            return 0
        if handler.answers is not None and self._parts.clock.monotonic() < handler.answers.shut_until:
            return 0
        room = None if handler.answers is None or handler.answers.room is None else handler.answers.room()
        for most in (handler.rules.concurrency, room):
            if most is not None:
                items = min(items, most - running.get(handler.name, 0))
        breaker = self._holds.providers.get(handler.provider)
        if breaker is None or breaker.state is BreakerState.CLOSED:
            self._probing.pop(handler.provider, None)
            return items
        if items <= 0:
            return 0
        return min(items, await self._probes(handler, breaker))

    async def _probes(self, handler: Handler, breaker: Breaker) -> int:
        """How many items may probe a provider whose breaker is not closed; one worker at a time may do it."""
        probes = allowance(breaker, handler.rules.breaker, self._now_ms()) or 0
        if probes == 0:
            return 0
        if self._probing.get(handler.provider) == cool(breaker, handler.rules.breaker, self._now_ms()).since_at:
            # One of our probes may hang: a success of another is enough to send the next.
            alive = any(call.ok for call in breaker.calls)
            return probes - self._under_way(handler.provider) if alive else 0
        change = await self._parts.store.providers.cool(handler.provider, handler.rules.breaker)
        self._tell(change)
        taken = await self._parts.store.providers.take_probe(handler.provider, self._parts.run_seconds(handler))
        if taken:
            self._probing[handler.provider] = change.after.since_at
        return probes if taken else 0

    def _under_way(self, provider: str, since_ms: int = 0) -> int:
        """How many calls of this worker to a provider, begun at that time or later, have not ended."""
        return sum(
            flight.is_running and flight.plan.handler.provider == provider and flight.item.claimed_at >= since_ms
            for flight in self._flights.all()
        )

    async def give_probes(self) -> None:
        """Gives back the right to probe a provider if this worker has no call to it under way: others may have
        items."""
        if not self._probing:
            return
        flying = {flight.plan.handler.provider for flight in self._flights.all()}
        for provider in self._probing.keys() - flying:
            del self._probing[provider]
            await self._parts.store.providers.give_probe(provider)

    def _now_ms(self) -> int:
        """The database's time, by this worker's steady clock."""
        return self._holds.now + int((self._parts.clock.monotonic() - self._read_at) * 1000)

    def may_call(self, handler: Handler) -> bool:
        """Whether the provider may be asked at all now, for a poll or a look-up."""
        breaker = self._holds.providers.get(handler.provider)
        return breaker is None or allowance(breaker, handler.rules.breaker, self._now_ms()) != 0

    async def observe(self, group: Sequence[Ready]) -> None:
        """Shares the results of calls with all workers. While all calls succeed, nothing is written."""
        calls: dict[str, list[Call]] = defaultdict(list)
        handlers: dict[str, Handler] = {}
        for settlement, item, plan, outcome, _ in _evidence(group):
            handler = plan.handler
            call = _call(item, settlement, outcome)
            if call is not None:
                calls[handler.provider].append(call)
                handlers[handler.provider] = handler
            if isinstance(outcome, Failed) and outcome.failure.kind is FailureKind.HELD:
                handlers[handler.provider] = handler
        for handler in handlers.values():
            if handler.provider in self._refused_at:
                await self._hold_refused(handler)
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
        latest = sorted(recent, key=lambda call: call.started_at)[-policy.window_calls :]
        failed = sum(call.first and not call.ok for call in latest)
        under_way = self._under_way(handler.provider, latest[0].started_at if closed else 0)
        if not closed and under_way and not any(call.ok for call in calls):
            return  # one bad item among the probes is not enough: the others may succeed
        bad, few = failed > policy.fail_ratio * len(latest), failed <= policy.fail_ratio * (len(latest) + under_way)
        if closed and few and (bad or now < self._told_at[handler.provider] + TELL_SECONDS):
            return  # too early to decide: the calls under way may succeed, and failures are often faster
        self._told_at[handler.provider] = now
        observed = tuple(recent)
        recent.clear()
        self._tell(await self._parts.store.providers.observe(handler.provider, observed, handler.rules.breaker))
        self._stale = True

    async def _hold_refused(self, handler: Handler) -> None:
        """Puts a provider that refuses the account on hold, when no call under way can show the opposite, or when those
        calls take too long."""
        provider, rules = handler.provider, handler.rules
        waits = self._parts.clock.monotonic() < self._refused_at[provider] + rules.breaker.open_ms / 1000
        if waits and self._under_way(provider):
            return
        reason = self._refusal_words.get(provider, "the provider refuses the account")
        try:
            self._tell(await self._parts.store.providers.refuse(provider, reason, rules.breaker, rules.hold_seconds))
        finally:
            self._stale = True
            self._refused_at.pop(provider, None)

    async def end_holds(self) -> None:
        """Providers in plain hold mode come back when their health probe succeeds, or by time if they have none."""
        for handler in {handler.provider: handler for handler in self._parts.registry}.values():
            breaker = self._holds.providers.get(handler.provider)
            if handler.rules.breaker.mode != "hold" or breaker is None or breaker.state is not BreakerState.OPEN:
                continue
            if self._now_ms() < breaker.since_at + handler.rules.breaker.open_ms:
                continue
            if await self._is_healthy(handler):
                self._tell(await self._parts.store.providers.release(handler.provider))
                self._stale = True

    async def _is_healthy(self, handler: Handler) -> bool:
        if handler.rules.health is None:
            return True
        try:
            async with asyncio.timeout(self._parts.limits.call_timeout_seconds):
                await handler.rules.health()
        except Exception as error:
            self._parts.emit(Trouble(f"health of {handler.provider}", type(error).__name__))
            return False
        return True

    def _tell(self, change: BreakerChange) -> None:
        self.states[change.after.provider] = change.after.state.value
        if change.before.state is not change.after.state:
            self._parts.emit(BreakerChanged(change.before, change.after))


def _evidence(group: Sequence[Ready]) -> Sequence[Ready]:
    """The settlements to look at: all of them, or only the last ones of a group without a failure."""
    return group if any(isinstance(ready.outcome, Failed) for ready in group) else group[-CALLS_REMEMBERED_MAX:]


_UNHEALTHY = (FailureKind.INFRASTRUCTURE, FailureKind.UNKNOWN, FailureKind.REFUSED)


def _call(item: Claimed, settlement: Settlement, outcome: Outcome) -> Call | None:
    """The outcome as evidence about the provider's health; None for business errors and throttling."""
    started_at = item.claimed_at
    ended_at = settlement.attempt.ended_at if settlement.attempt else started_at
    match outcome:
        case Succeeded() | Submitted():
            return Call(started_at, ended_at, ok=True)
        case Failed() if outcome.flaw is not None:  # the provider works: it answered, although with a flaw
            return Call(started_at, ended_at, ok=True)
        case Failed(failure=failure) if failure.kind in _UNHEALTHY:
            first = item.attempt_count == 0 and item.refused_at is None
            return Call(started_at, ended_at, ok=False, first=first)
        case _:
            return None
