"""The lane `background`: requests that the provider works on in the background, polled until they end."""

from collections.abc import Mapping, Sequence
from typing import Final

from backstay.clock import Clock
from backstay.core.errors import OutcomeUnknown, UsageError
from backstay.core.outcomes import Failed, Submitted, Succeeded
from backstay.handlers.context import Context
from backstay.handlers.handler import Rules
from backstay.handlers.task import Answer
from backstay.llm.call import RETRY
from backstay.llm.endpoint import Endpoint
from backstay.llm.http.wire import Wire
from backstay.llm.lane_handler import TaskLane, ask_each, fail_flawed, rules_for, seconds_of
from backstay.llm.requests import unseal

RULES: Final = Rules(retry=RETRY, timeout_seconds=60.0)
LOOKS_AT_ONCE: Final = 20


class BackgroundHandler(TaskLane):
    """A task whose id was lost cannot be asked about."""

    def __init__(
        self, endpoint: Endpoint, wire: Wire, rules: Rules | None = None, *, clock: Clock | None = None
    ) -> None:
        super().__init__(endpoint, wire, rules or rules_for(endpoint, RULES), clock)
        if self.llm.tasks is None:
            raise UsageError(f"{self.llm.name} has no background requests", hint="use --lane call")
        self._tasks = self.llm.tasks(self.channel)
        self._seconds = seconds_of(self.rules)

    async def run(self, body: str, context: Context) -> Succeeded | Submitted | Failed:
        request, channel = unseal(body), self.channel
        ref = context.idempotency_key
        text = self._tasks.body(request, ref)
        context.guard()
        began = self.clock.monotonic()
        reply = await channel.wire.post(request.url, text, self._seconds, ref, context.outside_traceparent)
        channel.pacer.answered(reply.status, self.clock.monotonic() - began, channel.limit_hints(reply))
        if 200 <= reply.status <= 299 and (task_id := self._tasks.task_id(reply)) is not None:
            return Submitted(task_id, self.account)
        outcome = channel.read(reply)
        if isinstance(outcome, Succeeded):
            raise OutcomeUnknown("the provider accepted the request but gave no id for it")
        return outcome

    async def poll(self, task_ids: Sequence[str]) -> Mapping[str, Answer]:
        """Asks about each task. Tasks without an answer now are left out; it raises only if there was no answer at
        all."""
        answers: dict[str, Answer] = {}

        async def look(task_id: str) -> None:
            answers[task_id] = fail_flawed(await self._tasks.look(task_id), self.fail_on)

        troubles = await ask_each(task_ids, look, LOOKS_AT_ONCE, self.poll_seconds)
        if troubles and not answers:
            raise troubles[0]
        return answers

    async def cancel(self, task_id: str) -> None:
        await self._tasks.cancel(task_id)
