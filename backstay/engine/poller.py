"""Asks providers how their tasks are doing, many at a time, and settles what they say."""

from collections.abc import Mapping

from backstay.core.breaker import Call
from backstay.core.events import Trouble
from backstay.core.failures import failure_of_exception
from backstay.core.models import Claimed
from backstay.core.outcomes import Outcome, Running, Stopped
from backstay.core.states import StopReason
from backstay.engine.calling import ask_provider
from backstay.engine.gate import Gate
from backstay.engine.parts import Parts
from backstay.engine.settler import Settler
from backstay.handlers.task import TaskHandler

POLL_ITEMS_MAX = 500


class Poller:
    def __init__(self, parts: Parts, gate: Gate, settler: Settler) -> None:
        self._parts = parts
        self._gate = gate
        self._settler = settler

    async def run_once(self, items_max: int = POLL_ITEMS_MAX) -> int:
        """Polls one batch of every task handler; returns how many items were looked at."""
        polled = 0
        await self._gate.refresh()
        for handler in self._parts.registry.polled():
            if self._gate.may_call(handler) and polled < items_max:
                polled += await self._poll(handler, items_max - polled)
        return polled

    async def _poll(self, handler: TaskHandler, items_max: int) -> int:
        parts = self._parts
        taken = await parts.store.poll(
            handler.name, handler.account, min(items_max, POLL_ITEMS_MAX), parts.worker, parts.lease_ms, parts.met()
        )
        parts.remember(taken.jobs)
        if not taken.items:
            return 0
        started = parts.clock.monotonic()
        answers = await self._answers(handler, taken.items)
        for item in taken.items:
            outcome = answers.get(item.provider_task_id or "", Running())
            if item.stop_reason == StopReason.CANCEL and isinstance(outcome, Running):
                await self._cancel(handler, item)
                outcome = Stopped()
            elif item.stop_reason == StopReason.MOVE and isinstance(outcome, Running):
                await self._cancel(handler, item)  # what comes of it is polled for as before
            self._settler.put(item, parts.plan(item), outcome, started)
        return len(taken.items)

    async def _answers(self, handler: TaskHandler, items: list[Claimed]) -> Mapping[str, Outcome]:
        """What the provider says. A poll that fails is no verdict on the tasks: they are still running."""
        parts = self._parts
        started_at = items[0].claimed_at
        try:
            ids = [item.provider_task_id or "" for item in items]
            answers = await ask_provider(parts, lambda: handler.poll(ids))
            ok = True
        except Exception as error:
            parts.emit(Trouble(f"poll of {handler.name}", failure_of_exception(error).message))
            answers, ok = {}, False
        await self._gate.observe_calls(handler, [Call(started_at, started_at, ok)])
        return answers

    async def _cancel(self, handler: TaskHandler, item: Claimed) -> None:
        try:
            await ask_provider(self._parts, lambda: handler.cancel(item.provider_task_id or ""))
        except Exception as error:
            self._parts.emit(Trouble(f"cancel at {handler.provider}", failure_of_exception(error).message))
