"""The handlers of a simulated application: one per class of provider, each on its scripted provider."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from backstay import Context, Throttled
from backstay.clock import Clock
from backstay.core.models import Delivery
from backstay.handlers.function import FunctionHandler, Registry, TaskHandler
from backstay.handlers.handler import Rules
from backstay.testing import ScriptedProvider
from tests.simulation.loop import CURRENT, Process
from tests.simulation.plan import BREAKER, Kind, Plan


class StatusError(Exception):
    """As client libraries raise it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the answer was {status}")
        self.status = status


class Work:
    """What handlers of one kind do: perhaps dawdle, guard, send. It also checks the handler's concurrency."""

    def __init__(
        self,
        kind: Kind,
        plan: Plan,
        provider: ScriptedProvider,
        clock: Clock,
        reached: Callable[[str], None],
        wrong: Callable[[str], Exception],
    ) -> None:
        self.kind = kind
        self.plan = plan
        self.provider = provider
        self._clock = clock
        self._rng = Random(f"work {plan.seed} {kind.name}")
        self._reached = reached
        self._wrong = wrong
        self._running: Counter[str] = Counter()
        self.killed: Callable[[], object] = lambda: None  # told when an item has killed its worker

    def rules(self) -> Rules:
        delivery = Delivery(self.kind.delivery)
        return Rules(delivery=delivery, concurrency=self.plan.concurrency, breaker=BREAKER, hold_seconds=5)

    async def run(self, payload: Any, context: Context, send: Callable[..., Any]) -> Any:
        name = _process().name
        self._running[name] += 1
        if self.plan.concurrency is not None and self._running[name] > self.plan.concurrency:
            raise self._wrong(f"{name} runs {self._running[name]} handlers, {self.plan.concurrency} are allowed")
        try:
            if self._rng.random() < self.plan.dawdles:
                await self._clock.sleep(self._rng.choice([0.2, 1.5]))
            self._guard(context)
            if isinstance(payload, str) and payload in self.plan.poison:
                await self._poison(self.plan.poison[payload])
            return await send(payload, context.idempotency_key)
        finally:
            self._running[name] -= 1

    async def _poison(self, kind: str) -> None:
        self._reached(f"poison: {kind}")
        await self._clock.sleep(0.1)
        match kind:
            case "500" | "403":
                raise StatusError(int(kind))
            case "kill":
                self.killed()
                _process().kill()
        await asyncio.Event().wait()

    def _guard(self, context: Context) -> None:
        try:
            context.guard()
        except Throttled:
            self._reached("the guard refused a late send")
            raise

    async def find(self, ref: str) -> Any:
        process = _process()
        process.asking += 1
        try:
            return await (self.provider.find_task(ref) if self.kind.is_task else self.provider.find(ref))
        finally:
            process.asking -= 1

    async def poll(self, task_ids: Sequence[str]) -> Mapping[str, Any]:
        process = _process()
        process.polling += 1
        try:
            return await self.provider.poll(task_ids)
        finally:
            process.polling -= 1


def _process() -> Process:
    process = CURRENT.get()
    assert process is not None, "handlers run in a simulated process"
    return process


class _Tasks:
    def __init__(self, work: Work) -> None:
        self._work = work

    async def submit(self, item: Any, context: Context) -> str:
        task_id: str = await self._work.run(item, context, self._work.provider.submit)
        return task_id

    async def poll(self, task_ids: Sequence[str]) -> Mapping[str, Any]:
        return await self._work.poll(task_ids)

    async def cancel(self, task_id: str) -> None:
        await self._work.provider.cancel(task_id)


class _FindableTasks(_Tasks):
    async def find(self, ref: str) -> Any:
        return await self._work.find(ref)


def registry_of(works: Sequence[Work]) -> Registry:
    """A registry of a process's own: nothing is shared between simulated processes but database and providers."""
    registry = Registry()
    for work in works:
        registry.add(_task_handler(work) if work.kind.is_task else _call_handler(work))
    return registry


def _task_handler(work: Work) -> TaskHandler:
    tasks = _FindableTasks(work) if work.kind.can_find else _Tasks(work)
    return TaskHandler(tasks, work.kind.name, work.kind.name, work.rules())


def _call_handler(work: Work) -> FunctionHandler[Any, Any, Any]:
    async def call(item: Any, context: Context) -> Any:
        return await work.run(item, context, work.provider.call)

    find = work.find if work.kind.can_find else None
    return FunctionHandler(call, work.kind.name, work.kind.name, work.rules(), find)
