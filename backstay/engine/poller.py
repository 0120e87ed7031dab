"""Asks providers about their tasks, many at a time, and settles the answers. Handlers are served side by side, one task
at a time for each, and questions to providers are retried.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from backstay.clock import cancel_until_ended
from backstay.core.breaker import Call
from backstay.core.decide import LATE_POLL_MS
from backstay.core.events import Trouble
from backstay.core.failures import QUEUE, RETRY_AFTER_CAP_MS, FailureKind, failure_of_exception, next_delay_ms
from backstay.core.limits import Limits
from backstay.core.models import Attempt, AttemptOutcome, Claimed, Failed, Outcome, Running, Stopped, Succeeded
from backstay.core.states import StopReason
from backstay.engine.gate import Gate, time_shares
from backstay.engine.parts import Flights, Parts
from backstay.engine.settler import Settler, keep_late
from backstay.handlers.function import TaskHandler
from backstay.handlers.handler import Handler
from backstay.store.inbox import LateSuccess

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
    def items_used(self) -> int:
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
        self._cut_off: list[Claimed] = []  # items of polls that were cut off

    async def run_once(self, items: ItemQuota) -> None:
        """Polls the due tasks of every task handler, within the quota of items."""
        await items.share_out(await self._handlers_to_poll(), partial(self._poll_some, items))

    async def start_polls(self) -> None:
        """The same for a long-running worker: starts a poll for every handler that has none under way."""
        for handler in await self._handlers_to_poll():
            self._beside.start(handler, partial(self._poll_all, handler))

    async def stop_polls(self) -> None:
        await self._beside.stop()

    async def give_back(self) -> None:
        """Ends the leases of polls that were cut off, so that the next worker need not wait for their end."""
        cut_off, self._cut_off = self._cut_off, []
        if cut_off:
            await self._parts.store.items.put_off_polls([(item.id, item.fence, 0) for item in cut_off])

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
        with self._flights.keep_leases(taken.items):
            started = parts.clock.monotonic()
            turn = new_call_quota(parts.limits)
            with self._note_cut_off(taken.items):
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
        with self._note_cut_off(items):
            answers = (await self._ask(handler, items, new_call_quota(parts.limits))).answers
        found = [(item, answers.get(item.provider_task_id or "", Running())) for item in items]
        results = [_late_success(item, outcome) for item, outcome in found if isinstance(outcome, Succeeded)]
        await keep_late(parts, results)
        looks = [(item.id, item.fence, _next_look_ms(outcome)) for item, outcome in found]
        await parts.store.items.put_off_polls(looks)

    @contextmanager
    def _note_cut_off(self, items: Sequence[Claimed]) -> Iterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            self._cut_off += items
            raise

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
