"""What is wrong with an answer that came: it was cut off, the model refused, or a filter removed it."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

from backstay.core.failures import ErrorCode, Failure, FailureKind
from backstay.core.outcomes import Failed, Flaw, Succeeded

T = TypeVar("T")

PARTS_LOOKED_MAX: Final = 256  # of the answers in one reply, and of what one answer is made of

_BY_REASON: Final = {
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_length"), Flaw.TRUNCATED),
    **dict.fromkeys(("model_context_window_exceeded", "insufficient_system_resource", "error"), Flaw.TRUNCATED),
    "refusal": Flaw.REFUSED,
    **dict.fromkeys(("content_filter", "content_filtered", "guardrail_intervened", "safety"), Flaw.FILTERED),
    **dict.fromkeys(("recitation", "blocklist", "prohibited_content", "spii", "image_safety"), Flaw.FILTERED),
    **dict.fromkeys(("image_prohibited_content", "image_recitation"), Flaw.FILTERED),
}
_WHOLE: Final = ("stop", "tool_calls")
_WORST_FIRST: Final = (Flaw.FILTERED, Flaw.REFUSED, Flaw.TRUNCATED)
_WORDS: Final = {
    Flaw.TRUNCATED: "the answer is cut off",
    Flaw.REFUSED: "the model refused to answer",
    Flaw.FILTERED: "a filter of the provider removed the answer",
}


def flaw_of(body: Mapping[str, Any]) -> Flaw | None:
    """The worst flaw of a reply of chat, completions, responses, messages or Gemini; None if it is whole."""
    choices = body.get("choices")
    if type(choices) is list and len(choices) == 1 and type(choice := choices[0]) is dict:
        said = choice.get("message")
        is_plain = type(said) is dict and not said.get("refusal") and type(said.get("content")) is not list
        if is_plain and choice.get("finish_reason") in _WHOLE:
            return None  # nearly all are so
    found = {flaw for flaw in _flaws(body) if flaw is not None}
    return next((flaw for flaw in _WORST_FIRST if flaw in found), None)


def fail_flawed(outcome: T, flaws: tuple[str, ...]) -> T | Failed:
    """The same outcome, or a failure if the user does not accept this flaw: paid for, kept, and tried again."""
    if not isinstance(outcome, Succeeded) or outcome.flaw is None or outcome.flaw not in flaws:
        return outcome
    failure = Failure(
        ErrorCode.GW_4XX, FailureKind.INFRASTRUCTURE, _WORDS[outcome.flaw], provider_status=outcome.provider_status
    )
    return Failed(failure, outcome.usage, task_ended=True, reply=outcome.result, flaw=outcome.flaw)


def _flaws(body: Mapping[str, Any]) -> Iterator[Flaw | None]:
    yield from (_by_reason(body.get(name)) for name in ("stop_reason", "stopReason"))
    for choice in _some(body.get("choices")):
        yield _by_reason(choice.get("finish_reason"))
        message = choice.get("message")
        if isinstance(message, dict):
            yield Flaw.REFUSED if message.get("refusal") else _refusal(message.get("content"))
    for part in _some(body.get("output")):
        yield _refusal(part.get("content"))
    if body.get("status") == "incomplete":
        details = body.get("incomplete_details")
        yield _by_reason(details.get("reason") if isinstance(details, dict) else None) or Flaw.TRUNCATED
    yield from (_by_reason(candidate.get("finishReason")) for candidate in _some(body.get("candidates")))
    feedback = body.get("promptFeedback")
    if isinstance(feedback, dict) and feedback.get("blockReason"):
        yield Flaw.FILTERED


def _by_reason(reason: object) -> Flaw | None:
    return _BY_REASON.get(reason.lower()) if isinstance(reason, str) else None


def _refusal(content: object) -> Flaw | None:
    return Flaw.REFUSED if any(part.get("type") == "refusal" for part in _some(content)) else None


def _some(values: object) -> Iterator[dict[str, Any]]:
    if isinstance(values, list):
        yield from (value for value in islice(values, PARTS_LOOKED_MAX) if isinstance(value, dict))
