"""A provider that keeps a bill: what it was asked, under which reference, and what it would charge."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from backstay.handlers.function import done, gone_wrong, running
from backstay.handlers.handler import Context


class HttpError(Exception):
    """As client libraries raise it: with a status, and headers that may hold a Retry-After."""

    def __init__(self, status: int, retry_after: str | None = None) -> None:
        super().__init__(f"the answer was {status}")
        self.status = status
        self.headers = {} if retry_after is None else {"Retry-After": retry_after}


class Provider:
    """`script` is what the next calls come to: an exception to raise, or a value; without one, calls go well."""

    def __init__(self) -> None:
        self.bill: Counter[str] = Counter()
        self.script: list[Any] = []
        self.results: dict[str, Any] = {}
        self.times: list[float] = []
        self.now = 0
        self.peak = 0
        self.contexts: list[Context] = []
        self.entered = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def call(self, item: Any, context: Context) -> Any:
        self.now += 1
        self.contexts.append(context)
        self.peak = max(self.peak, self.now)
        self.times.append(asyncio.get_running_loop().time())
        try:
            self.bill[context.idempotency_key] += 1
            self.entered.set()
            await self.gate.wait()
            said = self.script.pop(0) if self.script else item
            if isinstance(said, Exception):
                raise said
            self.results[context.idempotency_key] = said
            return said
        finally:
            self.now -= 1

    async def find(self, ref: str) -> Any:
        return self.results.get(ref)

    @property
    def calls(self) -> int:
        return self.bill.total()

    @property
    def paid_twice(self) -> list[str]:
        return [ref for ref, times in self.bill.items() if times > 1]


class TaskProvider:
    """Takes tasks. A task is under way until `finish`, unless the provider finishes all at once."""

    def __init__(self) -> None:
        self.bill: Counter[str] = Counter()
        self.tasks: dict[str, str] = {}  # task -> reference
        self.ended: dict[str, Any] = {}
        self.cancelled: list[str] = []
        self.polls = 0
        self.finishes_all = False
        self.poll_script: list[Exception] = []
        self.after_submit: Exception | None = None

    async def submit(self, item: Any, context: Context) -> str:
        ref = context.idempotency_key
        self.bill[ref] += 1
        task = f"task-{len(self.tasks)}"
        self.tasks[task] = ref
        if self.after_submit is not None:
            raise self.after_submit
        return task

    async def poll(self, task_ids: Sequence[str]) -> dict[str, Any]:
        self.polls += 1
        if self.poll_script:
            raise self.poll_script.pop(0)
        return {task: self._answer(task) for task in task_ids}

    def _answer(self, task: str) -> Any:
        if task in self.ended:
            said = self.ended[task]
            return gone_wrong(str(said)) if isinstance(said, Exception) else done(said)
        return done(task) if self.finishes_all else running(50)

    async def cancel(self, task_id: str) -> None:
        self.cancelled.append(task_id)


class AskableTaskProvider(TaskProvider):
    async def find(self, ref: str) -> str | None:
        return next((task for task, known in self.tasks.items() if known == ref), None)
