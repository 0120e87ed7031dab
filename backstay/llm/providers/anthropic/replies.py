"""The meaning of Anthropic's replies: the outcome of a request, the flaw of its answer, its usage and its limits."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from backstay.core.errors import ErrorCode
from backstay.core.failures import Failure, FailureKind, failure_of_status
from backstay.core.models import Usage
from backstay.core.outcomes import Failed, Flaw, Succeeded
from backstay.llm.provider import TOKENS_MAX, PriceOf, ProviderReply
from backstay.llm.providers.openai.replies import not_an_answer, preview_reply, read_object, response_text
from backstay.llm.rate_limits import LimitHeaders, LimitHints, read_limit_headers

# The types of errors, each with the status of a reply that has it.
STATUS_OF_TYPE: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
# The account must wait for a person or for the next month, whatever the status is.
_HOLDING: Final = frozenset(("billing_error", "enforced_spend_limit_reached", "organization_on_hold"))
# A limit that the account's owner has set has no code. A request cannot have put these words at the beginning.
_SPEND_LIMIT: Final = re.compile(r"you have reached your specified (?:\w+ )?(?:api )?usage limits", re.IGNORECASE)
_SHOULD_RETRY: Final = "x-should-retry"

_FLAW_OF_REASON: Final[Mapping[str, Flaw]] = {
    "max_tokens": Flaw.TRUNCATED,
    "model_context_window_exceeded": Flaw.TRUNCATED,
    "pause_turn": Flaw.UNFINISHED,  # a turn with Anthropic's own tools that was not finished
    "refusal": Flaw.REFUSED,
}

_REQUESTS: Final = ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset")
# The first is the most restrictive of the others, where it is sent.
_FAMILIES: Final = tuple(
    LimitHeaders(*_REQUESTS, f"anthropic-ratelimit-{kind}-remaining", f"anthropic-ratelimit-{kind}-reset")
    for kind in ("tokens", "input-tokens", "output-tokens")
)


def limit_hints(reply: ProviderReply, now_ms: int) -> LimitHints:
    """Limits of all tokens, of input and of output are counted apart: one that is used up decides, else the first."""
    found = [read_limit_headers(reply.headers, now_ms, (family,)) for family in _FAMILIES]
    used_up = [hints for hints in found if hints.tokens_remaining == 0]
    if used_up:
        return max(used_up, key=lambda hints: hints.tokens_reset_ms or 0)
    return next((hints for hints in found if hints.tokens_remaining is not None), found[0])


def read_reply(reply: ProviderReply, hints: LimitHints, price_of: PriceOf) -> Succeeded | Failed:
    if not 200 <= reply.status <= 299:
        return _read_refusal(reply, hints)
    read = read_object(reply)
    if isinstance(read, Failed):
        return read
    text, body = read
    if body.get("type") == "error":
        failure = failure_of_error(body.get("error"), hints.wait_ms)
        return Failed(replace(failure, provider_status=reply.status), reply=preview_reply(reply))
    if not isinstance(body.get("content"), list):
        return not_an_answer(reply, "a message")
    return Succeeded(response_text(reply, text), usage_of(body, price_of), reply.status, flaw_of(body))


def flaw_of(body: Mapping[str, Any]) -> Flaw | None:
    reason = body.get("stop_reason")
    return _FLAW_OF_REASON.get(reason) if isinstance(reason, str) else None


def usage_of(body: Mapping[str, Any], price_of: PriceOf) -> Usage:
    """All tokens read, those of the cache included, all tokens written, and their cost; None: it is not known."""
    said, model = body.get("usage"), body.get("model")
    said = said if isinstance(said, dict) else {}
    read, written = _count(said.get("input_tokens")), _count(said.get("output_tokens"))
    if read is None or written is None:
        return Usage()
    hit = _count(said.get("cache_read_input_tokens")) or 0
    parts = said.get("cache_creation")
    by_time = _counts(parts if isinstance(parts, dict) else {})
    kept = max(_count(said.get("cache_creation_input_tokens")) or 0, sum(by_time.values()))
    total = read + hit + kept
    if max(total, written) > TOKENS_MAX:
        return Usage()  # then its other figures are not credible either
    tier = "fast" if said.get("speed") == "fast" else "priority" if said.get("service_tier") == "priority" else None
    price = price_of(model, tier) if isinstance(model, str) else None
    if price is None:
        return Usage(total, written)
    cost = price.cost_micros(total, written, hit, kept)
    # The list also knows the cache of an hour and the searches, which are paid apart.
    tools = said.get("server_tool_use")
    figures = {
        "input_tokens": read,
        "output_tokens": written,
        "cache_read_input_tokens": hit,
        "cache_creation_input_tokens": kept,
        "cache_creation": by_time,
        "server_tool_use": _counts(tools if isinstance(tools, dict) else {}),
    }
    listed = price_of.usage_by_list(str(model), tier, {"model": model, "usage": figures})
    return Usage(total, written, max([cost, *(used.cost_micros or 0 for used in listed)]))


def _counts(figures: Mapping[str, Any]) -> dict[str, int]:
    names = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens", "web_search_requests")
    return {name: count for name in names if (count := _count(figures.get(name))) is not None}


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= TOKENS_MAX else None


def failure_of_error(error: object, retry_after_ms: int | None = None, status: int | None = None) -> Failure:
    """The failure behind an error object, by its code or its type; `status`: that of the reply, if it is one."""
    named = error if isinstance(error, Mapping) else {}
    details = named.get("details")
    code = details.get("error_code") if isinstance(details, Mapping) else None
    kind, message = named.get("type"), named.get("message")
    labels = [text for text in (code, kind) if isinstance(text, str) and text]
    label = labels[0] if labels else ""
    sentence = message if isinstance(message, str) else json.dumps(message) if message else ""
    shown = f"{sentence} ({label})" if sentence and label else sentence or label
    if status is None:
        status = STATUS_OF_TYPE.get(kind, 500) if isinstance(kind, str) else 500
        shown = shown or "the provider reports an error without a message"
    later = status in (408, 409, 429) or status >= 500
    failure = failure_of_status(status, shown, retry_after_ms if later else None)
    if not _HOLDING.isdisjoint(labels) or (status < 500 and _SPEND_LIMIT.match(sentence)):
        return replace(failure, code=ErrorCode.FORBIDDEN, kind=FailureKind.HELD, retry_after_ms=None)
    if status == 409:
        return replace(failure, kind=FailureKind.INFRASTRUCTURE)
    return failure


def _read_refusal(reply: ProviderReply, hints: LimitHints) -> Failed:
    status = reply.status
    if 300 <= status <= 399:
        target = reply.headers.get("location", "somewhere else")
        message = f"the provider redirects to {target}, where nothing is sent; check the base URL"
        return Failed(failure_of_status(status, message), reply=preview_reply(reply))
    failure = failure_of_error(_error_in(reply.text), hints.wait_ms, status)
    return Failed(_follow_retry_header(failure, reply.headers.get(_SHOULD_RETRY)), reply=preview_reply(reply))


def _follow_retry_header(failure: Failure, should_retry: str | None) -> Failure:
    """The header that says whether a further try can help wins over the status."""
    if should_retry == "true" and failure.kind is FailureKind.BUSINESS:
        return replace(failure, kind=FailureKind.INFRASTRUCTURE)
    if should_retry == "false" and failure.kind is FailureKind.THROTTLED:  # a limit that does not end by itself
        return replace(failure, code=ErrorCode.FORBIDDEN, kind=FailureKind.HELD, retry_after_ms=None)
    if should_retry == "false" and failure.kind is FailureKind.INFRASTRUCTURE:
        return replace(failure, kind=FailureKind.BUSINESS, retry_after_ms=None)
    return failure


def _error_in(text: str) -> object:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return body.get("error") if isinstance(body, dict) else None
