"""The meaning of Bedrock's replies: the outcome of a request, the flaw of its answer, and its usage."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from backstay.core.errors import ErrorCode
from backstay.core.failures import Failure, FailureKind, failure_of_status
from backstay.core.models import Usage
from backstay.core.outcomes import Failed, Flaw, Succeeded
from backstay.llm.provider import TOKENS_MAX, PriceOf, ProviderReply
from backstay.llm.providers.bedrock.requests import is_converse, model_in, tier_of
from backstay.llm.providers.openai import replies as openai_replies
from backstay.llm.providers.openai.replies import not_an_answer, preview_reply, read_object, response_text
from backstay.llm.rate_limits import LimitHints, read_limit_headers

# The types of errors, each with the status of a reply that has it.
STATUS_OF_TYPE: Final[Mapping[str, int]] = {
    "ValidationException": 400,
    "ServiceQuotaExceededException": 400,
    "AccessDeniedException": 403,
    "ResourceNotFoundException": 404,
    "ModelTimeoutException": 408,
    "ConflictException": 409,
    "ModelErrorException": 424,
    "ThrottlingException": 429,
    "ModelNotReadyException": 429,
    "InternalServerException": 500,
    "ServiceUnavailableException": 503,
}
# The credentials are refused: every other request would be, too.
_HOLDING: Final = frozenset(
    (
        "ExpiredTokenException",
        "ExpiredToken",
        "IncompleteSignatureException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "NotAuthorizedException",
        "OptInRequired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    )
)
_FULL: Final = frozenset(("ServiceQuotaExceededException", "ThrottlingException", "ModelNotReadyException"))
_QUOTA_WAIT_MS: Final = 60_000
_FLAW_OF_REASON: Final[Mapping[str, Flaw]] = {
    "max_tokens": Flaw.TRUNCATED,
    "length": Flaw.TRUNCATED,
    "model_context_window_exceeded": Flaw.TRUNCATED,
    # The output of the model cannot be read as an answer; only a part of it, or nothing, is there.
    "malformed_model_output": Flaw.TRUNCATED,
    "malformed_tool_use": Flaw.TRUNCATED,
    "guardrail_intervened": Flaw.FILTERED,
    "content_filtered": Flaw.FILTERED,
    "refusal": Flaw.REFUSED,
}
_IN, _OUT, _HIT, _KEPT = "input", "output", "cache-read-input", "cache-write-input"
# How the bodies of different makers name the tokens: read, written, from the cache, to the cache.
_NAMES: Final = (
    ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"),
    ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
    ("prompt_tokens", "completion_tokens", "", ""),
    ("prompt_token_count", "generation_token_count", "", ""),
)


def limit_hints(reply: ProviderReply, now_ms: int) -> LimitHints:
    """Bedrock reports no limits, only sometimes how long to wait."""
    return read_limit_headers(reply.headers, now_ms, ())


def read_reply(reply: ProviderReply, hints: LimitHints, price_of: PriceOf) -> Succeeded | Failed:
    """A reply to Converse names no model: the path of the call does."""
    if not 200 <= reply.status <= 299:
        return _read_refusal(reply, hints)
    read = read_object(reply)
    if isinstance(read, Failed):
        return read
    text, body = read
    if is_converse(reply.path) and not isinstance(body.get("output"), dict):
        return not_an_answer(reply, "a reply of Converse")
    named = reply._replace(headers={"request-id": reply.headers.get("x-amzn-requestid", "")})
    usage = usage_of(body, reply.headers, model_in(reply.path), price_of)
    return Succeeded(response_text(named, text), usage, reply.status, flaw_of(body))


def flaw_of(body: Mapping[str, Any]) -> Flaw | None:
    """The models' own bodies have the reason in several places."""
    for name in ("stopReason", "stop_reason"):
        if isinstance(reason := body.get(name), str):
            return _FLAW_OF_REASON.get(reason)
    return openai_replies.flaw_of(body)


def usage_of(body: Mapping[str, Any], headers: Mapping[str, str], model: str, price_of: PriceOf) -> Usage:
    """All tokens read, those of the cache included, all tokens written, and their cost; None: it is not known."""
    figures = _figures(body) or _figures_in(headers)
    if figures is None:
        return Usage()
    plain, written, hit, kept = figures
    total = plain + hit + kept
    if max(total, written) > TOKENS_MAX:
        return Usage()  # then its other figures are not credible either
    tier = tier_of(body)
    price = price_of(model, tier) if model else None
    if price is None:
        return Usage(total, written)
    cost = price.cost_micros(total, written, hit, kept)
    # The list also knows the cache of an hour, which is paid apart.
    said = body.get("usage")
    counts = {"inputTokens": plain, "outputTokens": written, "cacheReadInputTokens": hit, "cacheWriteInputTokens": kept}
    details = said.get("cacheDetails") if isinstance(said, dict) else None
    figures_told = {**counts, **({"cacheDetails": details} if isinstance(details, list) else {})}
    listed = price_of.usage_by_list(model, tier, {"model": model, "usage": figures_told})
    return Usage(total, written, max([cost, *(used.cost_micros or 0 for used in listed)]))


def _figures(body: Mapping[str, Any]) -> tuple[int, int, int, int] | None:
    said = body.get("usage")
    places = [said, body] if isinstance(said, dict) else [body]
    for place in places:
        for read, written, hit, kept in _NAMES:
            plain, made = _count(place.get(read)), _count(place.get(written))
            if plain is not None and made is not None:
                return plain, made, _count(place.get(hit)) or 0, _count(place.get(kept)) or 0
    return None


def _figures_in(headers: Mapping[str, str]) -> tuple[int, int, int, int] | None:
    """A reply of InvokeModel has its tokens in headers too, whatever its body looks like."""
    told = [headers.get(f"x-amzn-bedrock-{name}-token-count", "") for name in (_IN, _OUT, _HIT, _KEPT)]
    counts = [_count(int(text)) if text.isdecimal() and len(text) < 12 else None for text in told]
    plain, made, hit, kept = counts
    return None if plain is None or made is None else (plain, made, hit or 0, kept or 0)


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= TOKENS_MAX else None


def failure_of_error(kind: str, message: str, status: int | None = None, wait_ms: int | None = None) -> Failure:
    """The failure behind an error, by its type; `status`: that of the reply, if it is one."""
    status = STATUS_OF_TYPE.get(kind, 500) if status is None else status
    shown = f"{message} ({kind})" if message and kind else message or kind
    if kind in _FULL and status < 500:
        wait_ms = wait_ms if wait_ms is not None or kind != "ServiceQuotaExceededException" else _QUOTA_WAIT_MS
        return replace(failure_of_status(429, shown, wait_ms), kind=FailureKind.THROTTLED, provider_status=status)
    later = status in (408, 409, 424, 429) or status >= 500
    failure = failure_of_status(status, shown, wait_ms if later else None)
    if kind in _HOLDING:
        return replace(failure, code=ErrorCode.FORBIDDEN, kind=FailureKind.HELD, retry_after_ms=None)
    if status in (409, 424):
        return replace(failure, kind=FailureKind.INFRASTRUCTURE)
    return failure


def _read_refusal(reply: ProviderReply, hints: LimitHints) -> Failed:
    if 300 <= reply.status <= 399:
        target = reply.headers.get("location", "somewhere else")
        message = f"the provider redirects to {target}, where nothing is sent; check the base URL"
        return Failed(failure_of_status(reply.status, message), reply=preview_reply(reply))
    kind, message = error_in(reply)
    return Failed(failure_of_error(kind, message, reply.status, hints.wait_ms), reply=preview_reply(reply))


def error_in(reply: ProviderReply) -> tuple[str, str]:
    """The type of an error, which is in a header or in the body, and its text."""
    try:
        body = json.loads(reply.text)
    except (ValueError, RecursionError):
        body = None
    body = body if isinstance(body, dict) else {}
    named = reply.headers.get("x-amzn-errortype") or body.get("__type")
    kind = named.partition(":")[0].rpartition("#")[2] if isinstance(named, str) else ""
    said = next((body[name] for name in ("message", "Message") if isinstance(body.get(name), str)), "")
    return kind[:100], said
