"""The meaning of Gemini's replies: the outcome of a request, the flaw of its answer, its usage and its limits."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from backstay.core.errors import ErrorCode
from backstay.core.failures import Failure, FailureKind, failure_of_status
from backstay.core.models import Usage
from backstay.core.outcomes import Failed, Flaw, Succeeded
from backstay.llm.provider import TOKENS_MAX, PriceOf, ProviderReply
from backstay.llm.providers.openai.replies import not_an_answer, preview_reply, read_object, response_text
from backstay.llm.rate_limits import LimitHints, read_limit_headers, wait_ms_of

CANDIDATES_LOOKED_MAX: Final = 256
DETAILS_LOOKED_MAX: Final = 50
# The codes of errors as gRPC numbers and names them, each with the status that it has as a reply of its own.
_CODES: Final[tuple[tuple[int, str, int], ...]] = (
    (1, "CANCELLED", 499),
    (2, "UNKNOWN", 500),
    (3, "INVALID_ARGUMENT", 400),
    (4, "DEADLINE_EXCEEDED", 504),
    (5, "NOT_FOUND", 404),
    (6, "ALREADY_EXISTS", 409),
    (7, "PERMISSION_DENIED", 403),
    (8, "RESOURCE_EXHAUSTED", 429),
    (9, "FAILED_PRECONDITION", 400),
    (10, "ABORTED", 409),
    (11, "OUT_OF_RANGE", 400),
    (12, "UNIMPLEMENTED", 501),
    (13, "INTERNAL", 500),
    (14, "UNAVAILABLE", 503),
    (15, "DATA_LOSS", 500),
    (16, "UNAUTHENTICATED", 401),
)
STATUS_OF_NUMBER: Final = {number: status for number, _, status in _CODES}
STATUS_OF_NAME: Final = {name: status for _, name, status in _CODES}
_NAME_OF_NUMBER: Final = {number: name for number, name, _ in _CODES}

# The account must wait for a person or for the next day, whatever the status is.
_HOLDING: Final = frozenset(
    (
        "API_KEY_INVALID",
        "API_KEY_EXPIRED",
        "API_KEY_SERVICE_BLOCKED",
        "API_KEY_IP_ADDRESS_BLOCKED",
        "BILLING_DISABLED",
        "SERVICE_DISABLED",
        "CONSUMER_SUSPENDED",
        "CONSUMER_INVALID",
        "ACCESS_TOKEN_EXPIRED",
        "ACCOUNT_STATE_INVALID",
        "CREDENTIALS_MISSING",
    )
)
_PRECONDITION: Final = "FAILED_PRECONDITION"  # the region, or billing that is not enabled
_UNREADY_FILE: Final = re.compile(r"\bnot in an ACTIVE state\b")  # the one precondition that is about a request
# A refusal for too many requests never quotes the request.
_SPENT: Final = re.compile(r"spend(?:ing)? (?:cap|limit)|prepa(?:id|y(?:ment)?) credits?", re.IGNORECASE)

_FLAW_OF_REASON: Final[Mapping[str, Flaw]] = {
    **dict.fromkeys(("MAX_TOKENS", "OTHER", "CONTINUATION", "LANGUAGE", "NO_IMAGE", "IMAGE_OTHER"), Flaw.TRUNCATED),
    **dict.fromkeys(("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"), Flaw.TRUNCATED),
    **dict.fromkeys(("TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE"), Flaw.TRUNCATED),
    **dict.fromkeys(("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"), Flaw.FILTERED),
    **dict.fromkeys(("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR"), Flaw.FILTERED),
}
_TIERS: Final = {"priority": "priority", "flex": "flex", "on_demand_priority": "priority", "on_demand_flex": "flex"}
_DETAILS: Final = ("promptTokensDetails", "cacheTokensDetails", "candidatesTokensDetails", "toolUsePromptTokensDetails")
_COUNTS: Final = (
    "promptTokenCount",
    "cachedContentTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "toolUsePromptTokenCount",
    "totalTokenCount",
)


def limit_hints(reply: ProviderReply, now_ms: int) -> LimitHints:
    """The body of an error says how long to wait; there are no headers with limits."""
    hints = read_limit_headers(reply.headers, now_ms, ())
    if 200 <= reply.status <= 299:
        return hints
    for detail in _details(_error_in(reply.text)):
        delay = detail.get("retryDelay")
        if isinstance(delay, str) and (wait_ms := wait_ms_of(delay, now_ms)) is not None:
            return hints._replace(retry_after_ms=wait_ms)
    return hints


def read_reply(reply: ProviderReply, hints: LimitHints, price_of: PriceOf) -> Succeeded | Failed:
    if not 200 <= reply.status <= 299:
        return _read_refusal(reply, hints)
    read = read_object(reply)
    if isinstance(read, Failed):
        return read
    text, body = read
    if "error" in body and "candidates" not in body:
        failure = failure_of_error(body["error"], hints.wait_ms)
        return Failed(replace(failure, provider_status=reply.status), reply=preview_reply(reply))
    if not any(isinstance(body.get(name), kind) for name, kind in _ANSWER.items()):
        return not_an_answer(reply, "an answer")
    return Succeeded(response_text(reply, text), usage_of(body, price_of), reply.status, flaw_of(body))


_ANSWER: Final[Mapping[str, type]] = {"candidates": list, "promptFeedback": dict, "usageMetadata": dict}


def flaw_of(body: Mapping[str, Any]) -> Flaw | None:
    """The worst flaw of all candidates. A prompt that was blocked has none."""
    feedback, candidates = body.get("promptFeedback"), body.get("candidates")
    if isinstance(feedback, dict) and feedback.get("blockReason"):
        return Flaw.FILTERED
    if not isinstance(candidates, list) or not candidates:
        return Flaw.TRUNCATED
    reasons = (each.get("finishReason") for each in islice(candidates, CANDIDATES_LOOKED_MAX) if isinstance(each, dict))
    found = {_FLAW_OF_REASON.get(reason) for reason in reasons if isinstance(reason, str)}
    return next((flaw for flaw in (Flaw.FILTERED, Flaw.TRUNCATED) if flaw in found), None)


def usage_of(body: Mapping[str, Any], price_of: PriceOf) -> Usage:
    """All tokens read, those of tools and of the cache included; all tokens written, the thinking included; and their
    cost. None: it is not known. Counts of zero are left out in a reply."""
    said, model = body.get("usageMetadata"), body.get("modelVersion")
    said = said if isinstance(said, dict) else {}
    counts = {name: count_in(said[name]) for name in _COUNTS if said.get(name) is not None}
    if "promptTokenCount" not in counts or None in counts.values():
        return Usage()
    known = {name: count or 0 for name, count in counts.items()}
    read = known["promptTokenCount"] + known.get("toolUsePromptTokenCount", 0)
    written = known.get("candidatesTokenCount", 0) + known.get("thoughtsTokenCount", 0)
    # Tokens that only the total contains must be output.
    written = max(written, known.get("totalTokenCount", 0) - read)
    if max(read, written) > TOKENS_MAX:
        return Usage()
    tiers = (str(said.get(name)).lower() for name in ("serviceTier", "trafficType"))
    tier = next((_TIERS[name] for name in tiers if name in _TIERS), None)
    price = price_of(model, tier) if isinstance(model, str) else None
    if price is None:
        return Usage(read, written)
    cost = price.cost_micros(read, written, known.get("cachedContentTokenCount", 0))
    # The list also knows what sounds and pictures cost.
    figures = {**known, **{name: found for name in _DETAILS if (found := _modalities(said.get(name)))}}
    listed = price_of.usage_by_list(str(model), tier, {"modelVersion": model, "usageMetadata": figures})
    return Usage(read, written, max([cost, *(used.cost_micros or 0 for used in listed)]))


def _modalities(details: object) -> list[dict[str, Any]]:
    found = islice(details, DETAILS_LOOKED_MAX) if isinstance(details, list) else ()
    return [
        {"modality": each.get("modality"), "tokenCount": count}
        for each in found
        if isinstance(each, dict) and (count := count_in(each.get("tokenCount"))) is not None
    ]


def count_in(value: object) -> int | None:
    """A count; numbers of 64 bits are written as text."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 15:
        value = int(value)
    return value if type(value) is int and 0 <= value <= TOKENS_MAX else None


def failure_of_error(error: object, retry_after_ms: int | None = None, status: int | None = None) -> Failure:
    """The failure behind an error object; `status`: that of the reply, if it is one. Otherwise its name or its code
    gives it, which is a status or a number of gRPC."""
    named = error if isinstance(error, Mapping) else {}
    label = _label(named)
    message = named.get("message")
    sentence = message if isinstance(message, str) else json.dumps(message) if message else ""
    if status is None:
        status = _status(named)
        sentence = sentence or "the provider reports an error without a message"
    reasons = {detail.get("reason") for detail in _details(error) if isinstance(detail.get("reason"), str)}
    held = sorted(str(reason) for reason in reasons & _HOLDING)
    shown = f"{sentence} ({held[0] if held else label})" if sentence and (held or label) else sentence or label
    failure = failure_of_status(status, shown, retry_after_ms if status in (408, 409, 429) or status >= 500 else None)
    if label == _PRECONDITION and _UNREADY_FILE.search(sentence):
        return replace(failure, kind=FailureKind.INFRASTRUCTURE)
    is_spent = status == 429 and (_is_for_long(error) or _SPENT.search(sentence))
    if held or label == _PRECONDITION or is_spent:
        return replace(failure, code=ErrorCode.FORBIDDEN, kind=FailureKind.HELD, retry_after_ms=None)
    return replace(failure, kind=FailureKind.INFRASTRUCTURE) if status in (409, 499) else failure


def _label(error: Mapping[str, Any]) -> str:
    name, code = error.get("status"), error.get("code")
    if isinstance(name, str) and name:
        return name
    return _NAME_OF_NUMBER.get(code, "") if type(code) is int else ""


def _status(error: Mapping[str, Any]) -> int:
    name, code = error.get("status"), error.get("code")
    if type(code) is int and 400 <= code <= 599:
        return code
    by_name = STATUS_OF_NAME.get(name) if isinstance(name, str) else None
    return by_name or (STATUS_OF_NUMBER.get(code, 500) if type(code) is int else 500)


def _is_for_long(error: object) -> bool:
    """Whether a limit of a day is used up, or is zero: waiting for a minute does not help."""
    for detail in _details(error):
        violations = detail.get("violations")
        for each in islice(violations, DETAILS_LOOKED_MAX) if isinstance(violations, list) else ():
            if isinstance(each, dict) and ("PerDay" in str(each.get("quotaId")) or each.get("quotaValue") == "0"):
                return True
    return False


def _details(error: object) -> Iterator[Mapping[str, Any]]:
    details = error.get("details") if isinstance(error, Mapping) else None
    if isinstance(details, list):
        yield from (each for each in islice(details, DETAILS_LOOKED_MAX) if isinstance(each, dict))


def _read_refusal(reply: ProviderReply, hints: LimitHints) -> Failed:
    status = reply.status
    if 300 <= status <= 399:
        target = reply.headers.get("location", "somewhere else")
        message = f"the provider redirects to {target}, where nothing is sent; check the base URL"
        return Failed(failure_of_status(status, message), reply=preview_reply(reply))
    return Failed(failure_of_error(_error_in(reply.text), hints.wait_ms, status), reply=preview_reply(reply))


def _error_in(text: str) -> object:
    """Some errors come in a list of one."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    body = body[0] if isinstance(body, list) and body else body
    return body.get("error") if isinstance(body, dict) else None
