"""The lane `background`: responses that the provider makes in its own time, polled until they end."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from backstay.clock import Clock
from backstay.core.errors import ErrorCode, OutcomeUnknown, Permanent, Transient
from backstay.core.failures import Failure, FailureKind
from backstay.core.outcomes import Failed, Running, Submitted, Succeeded
from backstay.handlers.context import Context
from backstay.handlers.handler import Rules
from backstay.handlers.task import Answer, gone_wrong
from backstay.llm.call import RETRY
from backstay.llm.endpoint import Endpoint
from backstay.llm.flaws import fail_flawed
from backstay.llm.http.wire import ProviderReply, Wire
from backstay.llm.marked import marked
from backstay.llm.replies import failure_of_error, preview_reply, read_reply
from backstay.llm.requests import unseal
from backstay.llm.task_lane import GONE, GONE_SECONDS, TaskLane, ask_each, id_in, object_in, rules_for, seconds_of
from backstay.llm.usage import usage_of

RESPONSES: Final = "/v1/responses"
RULES: Final = Rules(retry=RETRY, timeout_seconds=60.0)
LOOK_SECONDS: Final = 20.0
LOOKS_AT_ONCE: Final = 20
_ADDED: Final = {"background": "true", "store": "true"}


class BackgroundHandler(TaskLane):
    """The provider has no list of responses, so one whose id was lost cannot be asked about."""

    def __init__(
        self, endpoint: Endpoint, wire: Wire, rules: Rules | None = None, *, clock: Clock | None = None
    ) -> None:
        super().__init__(endpoint, wire, rules or rules_for(endpoint, RULES), askable=False, clock=clock)
        self._seconds = seconds_of(self.rules)

    async def run(self, body: str, context: Context) -> Succeeded | Submitted | Failed:
        request = unseal(body)
        if request.url != RESPONSES:
            raise Permanent(f"only responses can be made in the background, not {request.url[1:]}", ErrorCode.GW_4XX)
        ref = context.idempotency_key
        text = marked(request.body, ref, _ADDED)
        context.guard()
        began = self.clock.monotonic()
        reply = await self.wire.post(request.url, text, self._seconds, ref, context.outside_traceparent)
        learned = self.learn(reply)
        self.pacer.answered(reply.status, self.clock.monotonic() - began, learned)
        if 200 <= reply.status <= 299 and (task_id := id_in(object_in(reply))) is not None:
            return Submitted(task_id, self.account)
        outcome = read_reply(reply, learned, self.price_of)
        if isinstance(outcome, Succeeded):
            raise OutcomeUnknown("the provider took the request and gave no id to ask for it by")
        return outcome

    async def poll(self, task_ids: Sequence[str]) -> Mapping[str, Answer]:
        """Asks about each. What cannot be learnt now is left out, and an error only if nothing was learnt at all."""
        answers: dict[str, Answer] = {}

        async def look(task_id: str) -> None:
            answers[task_id] = await self._look(task_id)

        troubles = await ask_each(task_ids, look, LOOKS_AT_ONCE, self.poll_seconds)
        if troubles and not answers:
            raise troubles[0]
        return answers

    async def _look(self, task_id: str) -> Answer:
        path = f"{RESPONSES}/{quote(task_id, safe='')}"
        reply = await self.wire.get(path, timeout_seconds=LOOK_SECONDS)
        if reply.status in GONE:
            await self.clock.sleep(GONE_SECONDS)
            reply = await self.wire.get(path, timeout_seconds=LOOK_SECONDS)
        if reply.status in GONE:
            message = f"the provider no longer knows {task_id}: its outcome is unknown, and it was probably paid for"
            failure = Failure(ErrorCode.UNKNOWN, FailureKind.UNKNOWN, message, provider_status=reply.status)
            return Failed(failure, task_ended=True, reply=preview_reply(reply))
        return self._answer(self.require_answer(reply), task_id)

    def _answer(self, reply: ProviderReply, task_id: str) -> Answer:
        if reply.cut:
            return self._ended(reply)
        said = object_in(reply)
        if said is None:
            raise Transient("the provider's answer about a response is no JSON object")
        if said.get("id", task_id) != task_id:
            raise Transient(f"the provider was asked about {task_id} and answered about another response")
        match said.get("status"):
            case "completed" | "incomplete":
                return self._ended(reply)
            case "failed":
                return self._failed(reply, said)
            case "cancelled":
                return gone_wrong("the response was cancelled at the provider")
            case _:
                return Running()

    def _ended(self, reply: ProviderReply) -> Answer:
        outcome = fail_flawed(read_reply(reply, self.learn(reply), self.price_of), self.fail_on)
        return replace(outcome, task_ended=True) if isinstance(outcome, Failed) else outcome

    def _failed(self, reply: ProviderReply, said: dict[str, Any]) -> Failed:
        usage = usage_of(said, self.price_of) if said.get("usage") else None
        failure = failure_of_error(said.get("error"), self.learn(reply).wait_ms)
        return Failed(failure, usage, task_ended=True, reply=preview_reply(reply))

    async def cancel(self, task_id: str) -> None:
        reply = await self.wire.post(f"{RESPONSES}/{quote(task_id, safe='')}/cancel", "", LOOK_SECONDS)
        if reply.status == 429 or reply.status >= 500:
            self.require_answer(reply)
        # Any other refusal says that there is nothing left to cancel.
