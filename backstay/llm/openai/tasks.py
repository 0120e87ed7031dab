"""Background responses: tasks of the provider. It has no list of them."""

from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from backstay.core.errors import ErrorCode, Permanent, Transient
from backstay.core.failures import Failure, FailureKind
from backstay.core.outcomes import Failed, Running
from backstay.handlers.function import Answer, gone_wrong
from backstay.llm.channel import GONE, GONE_SECONDS, Channel, id_in, object_in
from backstay.llm.lines import LlmRequest
from backstay.llm.openai.replies import failure_of_error, preview_reply
from backstay.llm.openai.requests import RESPONSES, add_reference
from backstay.llm.openai.usage import usage_of
from backstay.llm.provider import ProviderReply

LOOK_SECONDS: Final = 20.0
_ADDED: Final = {"background": "true", "store": "true"}


class BackgroundResponses:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def body(self, request: LlmRequest, ref: str) -> str:
        if request.url != RESPONSES:
            raise Permanent(f"only responses can be made in the background, not {request.url[1:]}", ErrorCode.GW_4XX)
        return add_reference(request.body, ref, _ADDED)[0]

    def task_id(self, reply: ProviderReply) -> str | None:
        return id_in(object_in(reply))

    async def look(self, task_id: str) -> Answer:
        path, wire = f"{RESPONSES}/{quote(task_id, safe='')}", self._channel.wire
        reply = await wire.get(path, timeout_seconds=LOOK_SECONDS)
        if reply.status in GONE:
            await self._channel.clock.sleep(GONE_SECONDS)
            reply = await wire.get(path, timeout_seconds=LOOK_SECONDS)
        if reply.status in GONE:
            message = f"the provider no longer knows {task_id}: its outcome is unknown, and it was probably paid for"
            failure = Failure(ErrorCode.UNKNOWN, FailureKind.UNKNOWN, message, provider_status=reply.status)
            return Failed(failure, task_ended=True, reply=preview_reply(reply))
        return self._answer(self._channel.require_answer(reply), task_id)

    async def cancel(self, task_id: str) -> None:
        reply = await self._channel.wire.post(f"{RESPONSES}/{quote(task_id, safe='')}/cancel", "", LOOK_SECONDS)
        if reply.status == 429 or reply.status >= 500:
            self._channel.require_answer(reply)
        # Any other refusal means that there is nothing left to cancel.

    def _answer(self, reply: ProviderReply, task_id: str) -> Answer:
        if reply.cut:
            return self._ended(reply)
        said = object_in(reply)
        if said is None:
            raise Transient("the provider's answer about a response is not a JSON object")
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
        outcome = self._channel.read(reply)
        return replace(outcome, task_ended=True) if isinstance(outcome, Failed) else outcome

    def _failed(self, reply: ProviderReply, said: dict[str, Any]) -> Failed:
        usage = usage_of(said, self._channel.price_of) if said.get("usage") else None
        failure = failure_of_error(said.get("error"), self._channel.limit_hints(reply).wait_ms)
        return Failed(failure, usage, task_ended=True, reply=preview_reply(reply))
