"""The meaning of a reply: the outcome of an item, the flaw of its answer, and its rate limits.

Many services use this format, each with differences, so the names of some others are read here too.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final, NoReturn

from pydantic_core import from_json

from backstay.core.errors import ErrorCode
from backstay.core.failures import Failure, FailureKind, failure_of_status
from backstay.core.outcomes import Failed, Flaw, Succeeded
from backstay.llm.provider import PriceOf, ProviderReply
from backstay.llm.providers.openai.usage import usage_of
from backstay.llm.rate_limits import LimitHeaders, LimitHints, read_limit_headers

SHOWN_CHARACTERS_MAX: Final = 8_192
_ID_CHARACTERS_MAX: Final = 200
_BOM: Final = "\ufeff"
_UNDONE: Final = frozenset(("queued", "in_progress", "failed", "cancelled"))  # of a response
_quoted = json.encoder.encode_basestring_ascii  # JSON in ASCII: every database accepts it
# The request needs more tokens than the limit of a whole minute: it is always refused, with a status that means
# "later".
_NEVER_FITS: Final = re.compile(r"request too large", re.IGNORECASE)
_WRONG_REQUEST: Final = re.compile(
    r"invalid|not_found|unsupported|too_(?:large|small|long)|content_(?:filter|policy)|context_length|empty_"
)

# Of these services, and of gateways that speak for others.
_LIMIT_HEADERS: Final = (
    LimitHeaders(
        "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
        "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-tokens",
    ),
    LimitHeaders(
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset",
    ),
    LimitHeaders("x-ratelimit-remaining", "x-ratelimit-reset"),
)
PARTS_LOOKED_MAX: Final = 256  # of the answers in one reply, and of the parts of one answer

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


class _Nonsense(ValueError):
    """A successful reply cannot be understood; the message says why."""


def limit_hints(reply: ProviderReply, now_ms: int) -> LimitHints:
    return read_limit_headers(reply.headers, now_ms, _LIMIT_HEADERS)


def read_reply(reply: ProviderReply, hints: LimitHints, price_of: PriceOf) -> Succeeded | Failed:
    """The outcome of the request. A result is the text of a `response` object, as in the lines of a batch's output."""
    if not 200 <= reply.status <= 299:
        return _read_refusal(reply, hints)
    read = read_object(reply)
    if isinstance(read, Failed):
        return read
    text, body = read
    usage = usage_of(body, price_of)
    if error := body.get("error"):
        return Failed(_broken_off(error, reply, hints), usage if "usage" in body else None, reply=preview_reply(reply))
    status = body.get("status")
    if type(status) is str and status in _UNDONE and _is_response(body):
        return Failed(_undone(status, reply, hints), usage if body.get("usage") else None, reply=preview_reply(reply))
    return Succeeded(response_text(reply, text), usage, reply.status, flaw_of(body))


def read_object(reply: ProviderReply) -> tuple[str, dict[str, Any]] | Failed:
    """The text of a successful reply, and its value. If it cannot be read, it was processed and probably paid."""
    code, why = ErrorCode.TOO_LARGE, "a reply that is too large to read"
    if not reply.cut:
        try:
            return _object(reply.text)
        except _Nonsense as nonsense:
            code, why = ErrorCode.GW_5XX, str(nonsense)
    message = f"the provider answered {reply.status} with {why}"
    failure = Failure(code, FailureKind.UNKNOWN, message, provider_status=reply.status)
    return Failed(failure, reply=preview_reply(reply))


def not_an_answer(reply: ProviderReply, what: str) -> Failed:
    """The failure of a successful reply whose JSON object is not the expected one."""
    message = f"the provider answered {reply.status} with an object that is not {what}"
    failure = Failure(ErrorCode.GW_5XX, FailureKind.UNKNOWN, message, provider_status=reply.status)
    return Failed(failure, reply=preview_reply(reply))


def _is_response(body: Mapping[str, Any]) -> bool:
    """Whether the reply is of /v1/responses: such replies have a status of their own."""
    return body.get("object") == "response" or isinstance(body.get("output"), list)


def _undone(status: str, reply: ProviderReply, hints: LimitHints) -> Failure:
    """The failure of a response without a result. Its HTTP status is a success, but only says that it was accepted."""
    if status == "failed":
        return _broken_off(None, reply, hints)
    if status == "cancelled":
        message = "the response was cancelled at the provider"
        return Failure(ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE, message, provider_status=reply.status)
    # Sending it again would start a second one.
    message = f"the response is not finished, its status is {status}; use --lane background, which waits for it"
    return Failure(ErrorCode.NOT_READY, FailureKind.BUSINESS, message, provider_status=reply.status)


def _broken_off(error: object, reply: ProviderReply, hints: LimitHints) -> Failure:
    """The meaning of an error in a reply that began well: it may have come after paid work."""
    failure = replace(failure_of_error(error, hints.wait_ms), provider_status=reply.status)
    return replace(failure, kind=FailureKind.UNKNOWN) if failure.kind is FailureKind.INFRASTRUCTURE else failure


def failure_of_error(error: object, retry_after_ms: int | None = None) -> Failure:
    """The failure behind an error object: its code gives it, as a status or in words."""
    label, message = _words(error)
    named = str(error.get("code", "")) if isinstance(error, Mapping) else ""
    if re.fullmatch(r"[45]\d\d", named, re.ASCII):
        status = int(named)
    elif "rate_limit" in label or "quota" in label:
        status = 429
    else:
        status = 400 if _WRONG_REQUEST.search(label) else 500
    return failure_of_status(status, message or "the provider reports an error without a message", retry_after_ms)


def preview_reply(reply: ProviderReply) -> str:
    """A reply as a `response` object for a person to see: short JSON as it came, else its beginning as text."""
    text = reply.text
    if len(text) <= SHOWN_CHARACTERS_MAX:
        try:
            return response_text(reply, _object(text)[0])
        except _Nonsense:
            pass
    return response_text(reply, _quoted(text[:SHOWN_CHARACTERS_MAX].encode("utf-8", "replace").decode()))


def response_text(reply: ProviderReply, body: str) -> str:
    headers = reply.headers
    named = headers.get("x-request-id") or headers.get("apim-request-id") or headers.get("request-id") or ""
    return f'{{"status_code":{reply.status},"request_id":{_quoted(named[:_ID_CHARACTERS_MAX])},"body":{body}}}'


def _object(text: str) -> tuple[str, dict[str, Any]]:
    """The text of a JSON object, and its value."""
    text = text.removeprefix(_BOM)
    try:
        body = from_json(text, allow_inf_nan=False)  # takes half the time of the decoder below, and is stricter
    except (ValueError, TypeError):  # the latter for text with lone surrogates
        body = _decode(text)
    if type(body) is not dict:
        raise _Nonsense(f"JSON that is not an object but {type(body).__name__}")
    return text, body


def _refuse(token: str) -> NoReturn:
    raise ValueError(f"{token} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse)


def _decode(text: str) -> object:
    """For text that the other parser refused: its value if it is JSON, otherwise the reason why it is not."""
    if not text or text.isspace():
        raise _Nonsense("an empty body")
    try:
        text.encode()
        return _DECODER.decode(text)
    except UnicodeEncodeError:
        raise _Nonsense("a body that is not UTF-8") from None
    except (ValueError, RecursionError):
        raise _Nonsense(f"a body that is not JSON: {text[:80]!a}") from None


def _read_refusal(reply: ProviderReply, hints: LimitHints) -> Failed:
    status = reply.status
    if 300 <= status <= 399:
        target = reply.headers.get("location", "somewhere else")
        message = f"the provider redirects to {target}, where nothing is sent; check the base URL"
        return Failed(failure_of_status(status, message), reply=preview_reply(reply))
    _, message = _words(_error_in(reply.text))
    failure = failure_of_status(status, message, hints.wait_ms if status in (408, 425, 429) or status > 499 else None)
    if status == 429 and _NEVER_FITS.search(message):
        failure = replace(failure, code=ErrorCode.TOO_LARGE, kind=FailureKind.BUSINESS, retry_after_ms=None)
    return Failed(failure, reply=preview_reply(reply))


def _error_in(text: str) -> object:
    """The error object of a refusal, in any of the known forms."""
    try:
        _, body = _object(text)
    except _Nonsense:
        return ""
    return next((body[name] for name in ("error", "detail", "message") if body.get(name)), "")


def _words(error: object) -> tuple[str, str]:
    """An error's label and its one sentence, which ends with the label."""
    if not isinstance(error, Mapping):
        return "", error if isinstance(error, str) else json.dumps(error) if error else ""
    labels = [error.get("code"), error.get("type")]
    label = next((text for text in labels if isinstance(text, str) and text and not text.isdigit()), "")
    message = error.get("message") or error.get("detail") or ""
    sentence = message if isinstance(message, str) else json.dumps(message)
    return label, f"{sentence} ({label})" if sentence and label else sentence or label


def flaw_of(body: Mapping[str, Any]) -> Flaw | None:
    """The worst flaw of a reply of chat, completions, responses, messages or Gemini; None if it is complete."""
    choices = body.get("choices")
    if type(choices) is list and len(choices) == 1 and type(choice := choices[0]) is dict:
        said = choice.get("message")
        is_plain = type(said) is dict and not said.get("refusal") and type(said.get("content")) is not list
        if is_plain and choice.get("finish_reason") in _WHOLE:
            return None  # nearly all are like this
    found = {flaw for flaw in _flaws(body) if flaw is not None}
    return next((flaw for flaw in _WORST_FIRST if flaw in found), None)


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
