"""Asks providers about their tasks, many at a time, and settles the answers."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from backstay.core.breaker import Call
from backstay.core.decide import LATE_POLL_MS
from backstay.core.events import Trouble
from backstay.core.failures import FailureKind, failure_of_exception
from backstay.core.models import Attempt, AttemptOutcome, Claimed
from backstay.core.outcomes import Failed, Outcome, Running, Stopped, Succeeded
from backstay.core.retry import RETRY_AFTER_CAP_MS
from backstay.core.states import StopReason
from backstay.engine.fallbacks import time_shares
from backstay.engine.gate import Gate
from backstay.engine.handler_tasks import CallQuota, HandlerTasks, ItemQuota, ask_provider, new_call_quota
from backstay.engine.parts import Flights, Parts
from backstay.engine.settler import Settler, keep_late
from backstay.handlers.function import TaskHandler
from backstay.store.inbox import LateSuccess

POLL_ITEMS_MAX = 500
LATE_ITEMS_MAX = 100
CANCELS_AT_ONCE = 10
CANCELLED_MAX = 100_000  # tasks remembered; a task that was forgotten is cancelled once more


class PollAnswers(NamedTuple):
    """A provider's answers about its tasks, and when to ask about the rest again."""

    answers: Mapping[str, Outcome]
    after_ms: int = 0


class Poller:
    def __init__(self, parts: Parts, flights: Flights, gate: Gate, settler: Settler) -> None:
        self._parts = parts
        self._flights = flights
        self._gate = gate
        self._settler = settler
        self._beside = HandlerTasks(parts, "poll")
        self._cancelled: set[tuple[str, str]] = set()  # handler and task: the provider accepted the cancel

    async def run_once(self, items: ItemQuota) -> None:
        """Polls the due tasks of every task handler, within the quota of items."""
        await items.share_out(await self._handlers_to_poll(), partial(self._poll_some, items))

    async def start_polls(self) -> None:
        """The same for a long-running worker: starts a poll for every handler that has none under way."""
        for handler in await self._handlers_to_poll():
            self._beside.start(handler, partial(self._poll_all, handler))

    async def stop_polls(self) -> None:
        await self._beside.stop()

    async def _handlers_to_poll(self) -> list[TaskHandler]:
        await self._gate.refresh()
        return [handler for handler in self._parts.registry.task_handlers() if self._gate.may_call(handler)]

    async def _poll_all(self, handler: TaskHandler) -> None:
        while self._gate.may_call(handler) and await self._poll(handler, POLL_ITEMS_MAX):
            await self._settler.wait_until_committed()
            await self._gate.refresh()
        if self._gate.may_call(handler):
            await self._poll_late(handler)

    async def _poll_some(self, items: ItemQuota, handler: TaskHandler, items_max: int) -> int:
        """Returns how many items were looked at."""
        polled = 0
        while (wanted := min(POLL_ITEMS_MAX, items_max - polled)) > 0:
            found = await self._poll(handler, wanted, items.look_at)
            polled += found
            if found < wanted:
                await self._poll_late(handler)
                break
        return polled

    async def _poll(
        self, handler: TaskHandler, items_max: int, look_at: Callable[[int], None] = lambda items: None
    ) -> int:
        parts = self._parts
        grace_ms = int(parts.limits.cancel_grace_seconds * 1000)
        whose, lease = (handler.name, handler.account), (parts.worker, parts.lease_ms)
        taken = await parts.store.items.poll(
            *whose, items_max, *lease, parts.known_jobs(), grace_ms, time_shares(parts.registry, handler)
        )
        parts.remember(taken.jobs)
        look_at(len(taken.items))
        if not taken.items:
            return 0
        with self._flights.asking(taken.items):
            started = parts.clock.monotonic()
            turn = new_call_quota(parts.limits)
            polled = await self._ask(handler, taken.items, turn)
            waits = Running(after_ms=polled.after_ms)
            found = [(item, polled.answers.get(item.provider_task_id or "", waits)) for item in taken.items]
            await self._cancel_some(handler, [item for item, outcome in found if _is_unwanted(item, outcome)], turn)
            for item, outcome in found:
                self._settler.put(item, parts.plan(item), _outcome_of_poll(item, outcome), started)
        return len(taken.items)

    async def _poll_late(self, handler: TaskHandler) -> None:
        """Looks at tasks whose items have run out of time: a result is kept as a late one."""
        parts = self._parts
        late_ms = int(parts.limits.late_result_seconds * 1000)
        items = await parts.store.items.poll_late(
            handler.name, handler.account, LATE_ITEMS_MAX, parts.lease_ms, late_ms
        )
        if not items:
            return
        answers = (await self._ask(handler, items, new_call_quota(parts.limits))).answers
        found = [(item, answers.get(item.provider_task_id or "", Running())) for item in items]
        results = [_late_success(item, outcome) for item, outcome in found if isinstance(outcome, Succeeded)]
        await keep_late(parts, results)
        looks = [(item.id, item.fence, _next_look_ms(outcome)) for item, outcome in found]
        await parts.store.items.put_off_late(looks)

    async def _ask(self, handler: TaskHandler, items: list[Claimed], turn: CallQuota) -> PollAnswers:
        """The provider's answer. A failed poll says nothing about the tasks: they are still running."""
        parts = self._parts
        started_at = items[0].claimed_at
        spare = any(item.stop_reason in (StopReason.CANCEL, StopReason.MOVE) for item in items)
        try:
            ids = [item.provider_task_id or "" for item in items]
            polled, ok = PollAnswers(await ask_provider(parts, lambda: handler.poll(ids), turn, int(spare))), True
        except Exception as error:
            failure = failure_of_exception(error, parts.clock.now_ms())
            parts.emit(Trouble(f"poll of {handler.name}", failure.message))
            polled, ok = PollAnswers({}, min(failure.retry_after_ms or 0, RETRY_AFTER_CAP_MS)), False
        await self._gate.observe_calls(handler, [Call(started_at, started_at, ok)])
        return polled

    async def _cancel_some(self, handler: TaskHandler, items: list[Claimed], turn: CallQuota) -> None:
        """Cancels tasks that are no longer needed, a few at once, with the calls that are left in this turn.

        After a failed cancel the provider is not asked to cancel the others: with many tasks that could take hours.
        """
        if len(self._cancelled) > CANCELLED_MAX:
            self._cancelled.clear()
        tasks = [(handler.name, item.provider_task_id or "") for item in items]
        left, troubles = iter([task for task in tasks if task not in self._cancelled]), list[str]()

        async def work() -> None:
            for task in left:
                try:
                    await ask_provider(self._parts, partial(handler.cancel, task[1]), replace(turn))
                    self._cancelled.add(task)
                except Exception as error:
                    troubles.append(failure_of_exception(error).message)
                if troubles:
                    return

        await asyncio.gather(*(work() for _ in range(CANCELS_AT_ONCE)))
        if troubles:
            skipped = sum(1 for _ in left)
            rest = f"; {skipped} more were not tried" if skipped else ""
            self._parts.emit(Trouble(f"cancel at {handler.provider}", f"{troubles[0]}{rest}"))


def _outcome_of_poll(item: Claimed, outcome: Outcome) -> Outcome:
    """The meaning of a poll for an item, also if its job is cancelled: a result counts, and a task that has ended
    without one is cancelled. A task that never ends is given up at last, and its outcome is unknown."""
    match item.stop_reason, outcome:
        case StopReason.CANCEL | StopReason.CANCEL_OVER, Failed(failure=failure) if (
            failure.kind is not FailureKind.UNKNOWN
        ):
            return Stopped()
        case StopReason.CANCEL_OVER, Running():
            return Stopped(sent=True)
        case _:
            return outcome


def _late_success(item: Claimed, outcome: Succeeded) -> LateSuccess:
    used = outcome.usage or (None, None, None)
    end = (AttemptOutcome.LATE, item.started_at, item.claimed_at, None, None, outcome.provider_status, None)
    attempt = Attempt(item.id, item.fence - 1, item.calls, *end, *used)
    return LateSuccess(attempt, outcome.result, item.reserved, item.handler)


def _next_look_ms(outcome: Outcome) -> int | None:
    return max(LATE_POLL_MS, outcome.after_ms) if isinstance(outcome, Running) else None


def _is_unwanted(item: Claimed, outcome: Outcome) -> bool:
    """Whether to cancel the task at the provider: its job was cancelled, or another handler continues its item."""
    return item.stop_reason in (StopReason.CANCEL, StopReason.MOVE) and isinstance(outcome, Running)
