"""Commits settlements in groups: those that come in during one commit are the next group."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from backstay.core.decide import decide
from backstay.core.errors import DatabaseUnreachable
from backstay.core.events import ItemsSettled, JobEnded, LeasesLost, Trouble
from backstay.core.failures import ErrorCode, Failure, FailureKind, one_line
from backstay.core.models import Claimed, Failed, Flaw, Outcome, Settlement
from backstay.core.states import ItemState, JobState
from backstay.engine.parts import Flights, ItemPlan, Parts
from backstay.handlers.handler import Handler
from backstay.store.inbox import LateSuccess
from backstay.store.settle import Settled

GROUP_ITEMS_MAX = 1_000
BACKLOG_ITEMS_MAX = 5_000
AGAIN_SECONDS = 1.0
SETTLE = "settle"
LATE = "late results"


class Ready(NamedTuple):
    """A decided item that waits for its commit."""

    settlement: Settlement
    item: Claimed
    plan: ItemPlan
    outcome: Outcome
    unstorable: bool = False  # the database has refused its real result


class Settler:
    def __init__(
        self,
        parts: Parts,
        flights: Flights,
        observe: Callable[[Sequence[Ready]], None],
        breakers: Mapping[str, str],
        judge: Callable[[Claimed, Handler, Outcome, int], Outcome],
    ) -> None:
        self._parts = parts
        self._flights = flights
        self._observe = observe
        self._breakers = breakers
        self._judge = judge
        self._pending: list[Ready] = []
        self.job_ended = False  # since the reader last reset it: another job may wait for that end
        self._committing = 0
        self._there = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, item: Claimed, plan: ItemPlan, outcome: Outcome, started: float) -> None:
        """Decides about an item, at the database's time, and queues its settlement. `started`: when it was claimed, on
        the steady clock."""
        now_ms = item.claimed_at + int((self._parts.clock.monotonic() - started) * 1000)
        outcome = self._judge(item, plan.handler, outcome, now_ms)
        settlement = decide(item, outcome, plan.terms, now_ms, self._parts.rng)
        self._pending.append(Ready(settlement, item, plan, outcome))
        self._idle.clear()
        self._there.set()

    @property
    def full(self) -> bool:
        """Whether nothing more should be claimed, because too many settlements wait or the database refuses them."""
        return len(self._pending) >= BACKLOG_ITEMS_MAX or SETTLE in self._parts.refusals

    @property
    def unsettled(self) -> int:
        """How many outcomes are not committed yet."""
        return len(self._pending) + self._committing

    async def run(self) -> None:
        while True:
            await self._there.wait()
            try:
                await self.run_once()
            except Exception as error:  # this group is rescued when its leases end; later groups must not wait
                self._parts.emit(Trouble(SETTLE, f"{type(error).__name__}: {error}"))

    async def wait_until_committed(self) -> None:
        """Returns when everything put so far is committed."""
        await self._idle.wait()

    async def run_once(self) -> None:
        group, self._pending = self._pending[:GROUP_ITEMS_MAX], self._pending[GROUP_ITEMS_MAX:]
        self._committing = len(group)
        if group:
            await self._commit(group)
            self._committing = 0
            self._observe(group)
        if not self._pending:
            self._there.clear()
            self._idle.set()

    async def _commit(self, group: list[Ready]) -> None:
        """Tries until the database answers: the leases are extended meanwhile, and a lost one settles nothing."""
        while True:
            try:
                group = await self._end_asked(group)
                settled = await self._parts.store.items.settle([ready.settlement for ready in group])
                self._parts.note_success(SETTLE)
                break
            except DatabaseUnreachable as error:
                self._parts.note_refusal(SETTLE, str(error))
                await self._parts.clock.sleep(AGAIN_SECONDS)
            except Exception as error:
                if len(group) > 1:
                    await self._one_by_one(group)
                    return
                self._parts.emit(Trouble(SETTLE, f"{type(error).__name__}: {one_line(str(error))}"))
                if group[0].unstorable:
                    self._flights.drop(group[0].item)  # its lease runs out, and it is rescued
                    return
                group = [self._fail_unstorable(group[0], error)]
        for ready in group:
            self._flights.drop(ready.item)
        if settled.lost:
            await self._keep_late(set(map(id, settled.lost)), group)
        self._tell(settled, group)
        if self._parts.bus.tracing is not None:
            drawn = [(ready.settlement, ready.item, ready.plan.job) for ready in group]
            self._parts.bus.tracing.record_settlements(drawn, settled.lost)
        self.tell_ended(settled.ended_jobs)

    async def _end_asked(self, group: list[Ready]) -> list[Ready]:
        """Fails the items with another invalid answer, if the model was asked for a better one often enough. Only the
        stored attempts show how often that was, because other workers may have asked as well."""
        asked = [ready.item.id for ready in group if _asks_again(ready)]
        if not asked:
            return group
        counts = await self._parts.store.item_views.count_invalid(asked)
        return [self._end(ready) if _asks_again(ready, counts) else ready for ready in group]

    def _end(self, ready: Ready) -> Ready:
        assert isinstance(ready.outcome, Failed)
        outcome = replace(ready.outcome, failure=replace(ready.outcome.failure, kind=FailureKind.BUSINESS))
        attempt = ready.settlement.attempt
        now_ms = ready.item.claimed_at if attempt is None else attempt.ended_at
        return ready._replace(
            settlement=decide(ready.item, outcome, ready.plan.terms, now_ms, self._parts.rng), outcome=outcome
        )

    async def _keep_late(self, lost: set[int], group: list[Ready]) -> None:
        """Keeps results as late ones if a time limit ended their items meanwhile; the store knows which those are."""
        results = [late for ready in group if id(ready.settlement) in lost and (late := _late_success(ready))]
        try:
            await keep_late(self._parts, results)
        except DatabaseUnreachable as error:
            self._parts.emit(Trouble(LATE, str(error)))

    def tell_ended(self, jobs: Sequence[tuple[int, JobState]]) -> None:
        for job_id, state in jobs:
            self.job_ended = True
            self._parts.emit(JobEnded(job_id, state))

    async def _one_by_one(self, group: list[Ready]) -> None:
        """Commits items separately, so that a row that the database refuses does not stop the others."""
        for ready in group:
            await self._commit([ready])

    def _fail_unstorable(self, ready: Ready, error: Exception) -> Ready:
        """Fails an item whose result the database refuses, with a message that can be stored."""
        message = f"the result could not be stored: {one_line(str(error), 120)}"
        outcome = Failed(Failure(ErrorCode.UNKNOWN, FailureKind.BUSINESS, message))
        terms = replace(ready.plan.terms, fallback=None)  # the call itself succeeded, and was paid
        settlement = decide(ready.item, outcome, terms, ready.item.claimed_at, self._parts.rng)
        return Ready(settlement, ready.item, ready.plan, outcome, unstorable=True)

    def _tell(self, settled: Settled, group: list[Ready]) -> None:
        if settled.applied:
            won = set(map(id, settled.applied)) if settled.lost else None
            kept = group if won is None else [ready for ready in group if id(ready.settlement) in won]
            bodies = [ready.item.body for ready in kept]
            for ready in kept:
                self._parts.sums.add(ready.plan.source, ready.settlement, ready.item.claimed_at)
            self._parts.emit(ItemsSettled(self._parts.worker, settled.applied, dict(self._breakers), bodies))
        if settled.lost:
            self._parts.emit(LeasesLost(self._parts.worker, tuple(settlement.id for settlement in settled.lost)))


async def keep_late(parts: Parts, results: Sequence[LateSuccess]) -> None:
    """Stores results that came too late. A result that the database refuses does not keep the others from being
    stored."""
    if not results:
        return
    try:
        await parts.store.inbox.keep_late(results)
    except DatabaseUnreachable:
        raise
    except Exception as error:
        if len(results) == 1:
            parts.emit(Trouble(LATE, f"{type(error).__name__}: {one_line(str(error))}"))
        else:
            for result in results:
                await keep_late(parts, [result])


def _asks_again(ready: Ready, counts: Mapping[int, int] | None = None) -> bool:
    """Whether the answer was invalid and the model is asked again. With `counts`: whether it was asked often enough."""
    outcome = ready.outcome
    if (
        not isinstance(outcome, Failed)
        or ready.settlement.state is not ItemState.QUEUED
        or ready.settlement.handler_next
    ):
        return False
    return outcome.flaw is Flaw.INVALID and (counts is None or counts.get(ready.item.id, 0) >= outcome.asks_max)


def _late_success(ready: Ready) -> LateSuccess | None:
    settlement = ready.settlement
    attempt = settlement.attempt
    if attempt is None:
        return None
    result = attempt.result if settlement.state == ItemState.SUCCEEDED else settlement.late_result
    return None if result is None else LateSuccess(attempt, result, ready.item.reserved, ready.item.handler)
