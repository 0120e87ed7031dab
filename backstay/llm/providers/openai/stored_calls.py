"""Calls that OpenAI stores: a completion whose reply was lost is found by the reference in its metadata, and responses
in the background are tasks, of which there is no list."""

from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from backstay.core.errors import ErrorCode, Permanent, Transient, UsageError
from backstay.core.failures import Failure, FailureKind, error_of_failure
from backstay.core.models import CannotAsk, Failed, NeverArrived, Running, Succeeded
from backstay.handlers.function import TaskAnswer, gone_wrong
from backstay.llm.bodies import id_in, object_in
from backstay.llm.lines import LlmRequest
from backstay.llm.provider import GONE, GONE_SECONDS, Certainty, Channel, ProviderReply
from backstay.llm.providers.openai.replies import failure_of_error, preview_reply, usage_of
from backstay.llm.providers.openai.requests import CHAT, REFERENCE, RESPONSES, add_reference

LOOK_SECONDS: Final = 30.0
TASK_SECONDS: Final = 20.0  # of one question about a task: a poll asks about many
NO_LIST: Final = (404, 405, 501)  # the service stores no completions, or none that can be looked up
_STORED: Final = {"store": "true"}
_IN_BACKGROUND: Final = {"background": "true", **_STORED}


class StoredCompletions:
    certainty = Certainty.CERTAIN

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def check(self, request: LlmRequest) -> None:
        if request.url != CHAT:
            raise UsageError(_only_chat(request.url))

    def body(self, request: LlmRequest, ref: str) -> str:
        """A completion that cannot carry the reference is not sent: later, a failed look-up would count as proof that
        it never arrived."""
        if request.url != CHAT:
            raise Permanent(_only_chat(request.url), ErrorCode.GW_4XX)
        text, findable = add_reference(request.body, ref, _STORED)
        if not findable:
            message = "the metadata is full or is not an object, so a lost completion could not be found again"
            raise Permanent(message, ErrorCode.GW_4XX)
        return text

    async def find(self, ref: str, since_ms: int) -> Succeeded | Failed | NeverArrived | CannotAsk:
        wire = self._channel.wire
        reply = await wire.get(CHAT, {f"metadata[{REFERENCE}]": ref}, LOOK_SECONDS)
        if reply.status in NO_LIST:
            return CannotAsk()
        self._read(reply)
        page = object_in(reply) or {}
        listed = page.get("data")
        if not isinstance(listed, list) or (page.get("has_more") and not listed):
            raise Transient("the look-up did not return a list")
        if not listed:
            return NeverArrived()
        found = next((each["id"] for each in listed if _carries(each, ref)), None)
        if found is None:  # it ignores the reference, so an empty list would mean nothing
            raise Transient("the look-up returned completions of other requests")
        return self._read(await wire.get(f"{CHAT}/{quote(found, safe='')}", timeout_seconds=LOOK_SECONDS))

    def _read(self, reply: ProviderReply) -> Succeeded:
        """The completion; a refusal of the look-up itself raises."""
        outcome = self._channel.read(reply)
        if isinstance(outcome, Failed):
            raise error_of_failure(outcome.failure)
        return outcome


def _only_chat(url: str) -> str:
    return f"only chat completions can be found again after a crash, not {url[1:]}"


def _carries(each: Any, ref: str) -> bool:
    if not isinstance(each, dict) or not isinstance(each.get("id"), str):
        return False
    metadata = each.get("metadata")
    return isinstance(metadata, dict) and metadata.get(REFERENCE) == ref


class BackgroundResponses:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def body(self, request: LlmRequest, ref: str) -> str:
        if request.url != RESPONSES:
            raise Permanent(f"only responses can be made in the background, not {request.url[1:]}", ErrorCode.GW_4XX)
        return add_reference(request.body, ref, _IN_BACKGROUND)[0]

    def task_id(self, reply: ProviderReply) -> str | None:
        return id_in(object_in(reply))

    async def look(self, task_id: str) -> TaskAnswer:
        path, wire = f"{RESPONSES}/{quote(task_id, safe='')}", self._channel.wire
        reply = await wire.get(path, timeout_seconds=TASK_SECONDS)
        if reply.status in GONE:
            await self._channel.clock.sleep(GONE_SECONDS)
            reply = await wire.get(path, timeout_seconds=TASK_SECONDS)
        if reply.status in GONE:
            message = f"the provider no longer knows {task_id}: its outcome is unknown, and it was probably paid for"
            failure = Failure(ErrorCode.UNKNOWN, FailureKind.UNKNOWN, message, provider_status=reply.status)
            return Failed(failure, task_ended=True, reply=preview_reply(reply))
        return self._answer(self._channel.require_answer(reply), task_id)

    async def cancel(self, task_id: str) -> None:
        reply = await self._channel.wire.post(f"{RESPONSES}/{quote(task_id, safe='')}/cancel", "", TASK_SECONDS)
        if reply.status == 429 or reply.status >= 500:
            self._channel.require_answer(reply)
        # Any other refusal means that there is nothing left to cancel.

    def _answer(self, reply: ProviderReply, task_id: str) -> TaskAnswer:
        if reply.cut:
            return self._read_end(reply)
        said = object_in(reply)
        if said is None:
            raise Transient("the provider's answer about a response is not a JSON object")
        if said.get("id", task_id) != task_id:
            raise Transient(f"the provider was asked about {task_id} and answered about another response")
        match said.get("status"):
            case "completed" | "incomplete":
                return self._read_end(reply)
            case "failed":
                return self._read_failure(reply, said)
            case "cancelled":
                return gone_wrong("the response was cancelled at the provider")
            case _:
                return Running()

    def _read_end(self, reply: ProviderReply) -> TaskAnswer:
        outcome = self._channel.read(reply)
        return replace(outcome, task_ended=True) if isinstance(outcome, Failed) else outcome

    def _read_failure(self, reply: ProviderReply, said: dict[str, Any]) -> Failed:
        usage = usage_of(said, self._channel.price_of) if said.get("usage") else None
        failure = failure_of_error(said.get("error"), self._channel.limit_hints(reply).wait_ms)
        return Failed(failure, usage, task_ended=True, reply=preview_reply(reply))
