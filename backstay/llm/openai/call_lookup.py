"""Finds a chat completion whose reply was lost: the provider stores it with a reference in its metadata."""

from typing import Any, Final
from urllib.parse import quote

from backstay.core.errors import ErrorCode, Permanent, Transient, UsageError
from backstay.core.failures import error_of_failure
from backstay.core.outcomes import CannotAsk, Failed, NeverArrived, Succeeded
from backstay.llm.channel import Channel, object_in
from backstay.llm.lines import LlmRequest
from backstay.llm.openai.requests import CHAT, REFERENCE, add_reference
from backstay.llm.provider import Certainty, ProviderReply

LOOK_SECONDS: Final = 30.0
NO_LIST: Final = (404, 405, 501)  # the service stores no completions, or none that can be looked up
_STORED: Final = {"store": "true"}


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
