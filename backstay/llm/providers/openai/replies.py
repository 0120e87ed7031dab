"""The meaning of a reply: the outcome of an item, the flaw of its answer, and its rate limits.

Many services use this format, each with differences, so the names of some others are read here too.

The usage that a reply reports, and its cost. If it can be read in several ways, the most expensive one counts.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from itertools import islice
from typing import Any, Final, NamedTuple, NoReturn

from pydantic_core import from_json

from backstay.core.errors import ErrorCode
from backstay.core.failures import Failure, FailureKind, failure_of_status
from backstay.core.models import Failed, Flaw, Succeeded, Usage
from backstay.llm.provider import TOKENS_MAX, PriceOf, ProviderReply, TokenPrice
from backstay.llm.rate_limits import LimitHeaders, LimitHints, read_limit_headers

STATED_MICROS_MAX: Final = 10**10  # ten thousand dollars for one call; the same
PARTS_MAX: Final = 64  # of a usage object, or of one inside it: a larger one is not passed to the price list
DOLLAR_MICROS: Final = 1_000_000
TICKS_PER_MICRO: Final = 10_000  # of xAI

# The usual shapes. With nothing else in them, and sums that agree, there is one way to read them.
_CHAT: Final = frozenset(
    ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details")
)
_RESPONSES: Final = frozenset(
    ("input_tokens", "output_tokens", "total_tokens", "input_tokens_details", "output_tokens_details")
)

_PLACES: Final = ("usage", "usageMetadata", "usage_metadata")
_INSIDE: Final = ("billed_units", "tokens")
_READ: Final = ("prompt_tokens", "input_tokens", "promptTokenCount", "inputTokens")
_WRITTEN: Final = ("completion_tokens", "output_tokens", "candidatesTokenCount", "outputTokens")
_TOTAL: Final = ("total_tokens", "totalTokenCount", "totalTokens")
_DETAILS_READ: Final = ("prompt_tokens_details", "input_tokens_details")
_DETAILS_WRITTEN: Final = ("completion_tokens_details", "output_tokens_details")
_CACHED: Final = ("prompt_cache_hit_tokens", "cached_tokens", "cached_prompt_text_tokens", "cachedContentTokenCount")
_CACHE_HIT: Final = ("cache_read_input_tokens", "cacheReadInputTokens")  # beside the input, not a part of it
_CACHE_WRITE: Final = ("cache_creation_input_tokens", "cacheWriteInputTokens")
_AMOUNT: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,20})?", re.ASCII)
_BESIDE_WRITTEN: Final = ("thoughtsTokenCount", "reasoning_tokens", "citation_tokens")


class UsageReading(NamedTuple):
    """One way to read a usage object, in tokens."""

    read: int
    written: int
    cached: int = 0  # of those read: found in the provider's cache
    kept: int = 0  # of those read: written to the provider's cache


def usage_of(body: Mapping[str, Any], price_of: PriceOf) -> Usage:
    """The usage that a reply of any provider reports. The cost is None if the reply gives no credible figures."""
    model, tier = body.get("model"), body.get("service_tier")
    if type(model) is not str:
        model = body.get("modelVersion")
    tier = tier if type(tier) is str else None
    price = price_of(model, tier) if type(model) is str else None
    said = body.get("usage")
    usual = _read_usual(said) if type(said) is dict else None
    if usual is None:
        return _dearest_usage(body, model if type(model) is str else "", tier, price, price_of)
    if price is None:
        return Usage(usual[0], usual[1])
    return Usage(usual[0], usual[1], price.cost_micros(*usual))


def _dearest_usage(
    body: Mapping[str, Any], model: str, tier: str | None, price: TokenPrice | None, price_of: PriceOf
) -> Usage:
    readings = [one for said in _objects(body) if (one := _read_usage(said, bool(body.get("data")))) is not None]
    if any(max(one) > TOKENS_MAX for one in readings):
        return Usage()  # then its other figures are not credible either
    found = [Usage(*one[:2], None if price is None else price.cost_micros(*one)) for one in readings]
    if price is not None and _is_small(body):
        found += (used for used in price_of.usage_by_list(model, tier, body) if _is_plausible(used))
    dearest = max(found, key=lambda used: (used.cost_micros or 0, used.input_tokens + used.output_tokens), default=None)
    dearest = dearest or Usage()
    stated = max((micros for micros in map(_stated_micros, _objects(body)) if micros is not None), default=None)
    if stated is None:
        return dearest
    return dearest._replace(cost_micros=max(stated, dearest.cost_micros or 0))


def _read_usual(said: dict[str, Any]) -> tuple[int, int, int] | None:
    """Tokens read, written and cached, if there is only one way to read the reply, as with nearly all.
    Every reply passes here, so this is written for speed."""
    get = said.get
    if said.keys() <= _CHAT:
        read, written, total = get("prompt_tokens"), get("completion_tokens"), get("total_tokens")
        parts, answer = get("prompt_tokens_details"), get("completion_tokens_details")
    elif said.keys() <= _RESPONSES:
        read, written, total = get("input_tokens"), get("output_tokens"), get("total_tokens")
        parts, answer = get("input_tokens_details"), get("output_tokens_details")
    else:
        return None
    if type(read) is not int or type(written) is not int or not 0 <= read <= TOKENS_MAX >= written >= 0:
        return None
    if total is None:
        if answer:
            return None
    elif total != read + written:
        return None
    cached = thought = 0
    # Parts other than these have prices of their own.
    if parts is not None:
        if type(parts) is not dict or type(cached := parts.get("cached_tokens", 0)) is not int:
            return None
        if [*parts.values()].count(0) < len(parts) - (cached != 0):
            return None
    if answer is not None:
        if type(answer) is not dict or type(thought := answer.get("reasoning_tokens", 0)) is not int:
            return None
        if [*answer.values()].count(0) < len(answer) - (thought != 0):
            return None
    return (read, written, cached) if 0 <= cached <= read and 0 <= thought <= written else None


def _objects(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name in _PLACES:
        said = body.get(name)
        if isinstance(said, dict):
            yield said
            yield from (inner for inner in map(said.get, _INSIDE) if isinstance(inner, dict))


def _read_usage(said: dict[str, Any], is_embedding: bool) -> UsageReading | None:
    """The most expensive reading of one usage object; None if the tokens read or written are missing."""
    read, written, total = _most(said, _READ), _most(said, _WRITTEN), _most(said, _TOTAL)
    if "promptTokenCount" in said or "totalTokenCount" in said:  # Gemini leaves zeros out
        read, written = read or 0, written or 0
    if is_embedding:  # these have no output, and some name the total alone
        read, written = total if read is None else read, written or 0
    if read is None or (written is None and (total is None or total <= read)):
        return None
    written = written or 0
    read, cached, kept = _input(said, read, is_sum=total == read + written)
    written += _unsaid_output(said, written, total, read)
    if total is not None and total > read + written:
        written = total - read  # the unexplained difference is charged as well
    return UsageReading(read, written, cached, kept)


def _input(said: dict[str, Any], read: int, is_sum: bool) -> tuple[int, int, int]:
    """All tokens read, and of these the ones read from a cache and written to one. `is_sum`: the total is the
    sum of input and output, so other figures can only be parts of them."""
    read += _most(said, ("toolUsePromptTokenCount",)) or 0
    hit, kept = _most(said, _CACHE_HIT) or 0, _most(said, _CACHE_WRITE) or 0
    if hit or kept:
        is_part = "prompt_tokens" in said and is_sum and hit + kept <= read
        return (read if is_part else read + hit + kept), hit, kept
    parts = _details(said, _DETAILS_READ)
    named = [_count(said.get(name)) for name in _CACHED] + [_count(parts.get("cached_tokens"))]
    hits = [count for count in named if count is not None]
    cached = min(hits, default=0)  # it is cheaper, so the least counts
    kept = _count(parts.get("cache_write_tokens")) or 0
    return read, cached if cached <= read else 0, kept


def _unsaid_output(said: dict[str, Any], written: int, total: int | None, read: int) -> int:
    """Tokens written besides the answer, such as reasoning, where they are not a part of it."""
    beside = sum(_most(said, (name,)) or 0 for name in _BESIDE_WRITTEN)
    thought = _count(_details(said, _DETAILS_WRITTEN).get("reasoning_tokens")) or 0
    is_part = total is not None and thought <= written and total == read + written
    return max(beside, 0 if is_part else thought)


def _stated_micros(said: dict[str, Any]) -> int | None:
    """The charge that the provider itself reports, if any."""
    ticks = _count(said.get("cost_in_usd_ticks"))
    in_ticks = None if ticks is None else -(-ticks // TICKS_PER_MICRO)
    cost = said.get("cost")
    named = (cost.get("total_cost") if isinstance(cost, dict) else cost, said.get("estimated_cost"))
    charged = [micros for micros in map(_micros, named) if micros is not None]
    more = said.get("cost_details")
    upstream = _micros(more.get("upstream_inference_cost")) if isinstance(more, dict) else None
    if upstream is not None and charged:
        own_key = said.get("is_byok", upstream > max(charged))  # then the charge is a fee on top of it
        charged.append(max(charged) + upstream if own_key is True else upstream)
    if in_ticks is not None:
        charged.append(in_ticks)
    return max((micros for micros in charged if micros <= STATED_MICROS_MAX), default=None)


def _micros(dollars: object) -> int | None:
    """An amount in any notation; None if it is not an amount of money, or impossibly large."""
    if isinstance(dollars, str):
        dollars = float(dollars) if _AMOUNT.fullmatch(dollars) else None
    if isinstance(dollars, bool) or not isinstance(dollars, int | float):
        return None
    if not 0 <= dollars <= STATED_MICROS_MAX // DOLLAR_MICROS:
        return None
    return int((Decimal(str(dollars)) * DOLLAR_MICROS).to_integral_value(ROUND_CEILING))


def _is_plausible(used: Usage) -> bool:
    tokens = max(used.input_tokens, used.output_tokens)
    return tokens <= TOKENS_MAX and (used.cost_micros or 0) <= STATED_MICROS_MAX


def _is_small(body: Mapping[str, Any]) -> bool:
    """Whether it is small enough for the price list, which walks through every list inside."""
    for said in _objects(body):
        inner = (
            [value for value in said.values() if isinstance(value, dict | list)] if len(said) <= PARTS_MAX else [said]
        )
        if any(len(value) > PARTS_MAX for value in inner):
            return False
    return True


def _most(said: dict[str, Any], names: tuple[str, ...]) -> int | None:
    return max((count for name in names if (count := _count(said.get(name))) is not None), default=None)


def _details(said: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return next((parts for name in names if isinstance(parts := said.get(name), dict)), {})


def _count(value: object) -> int | None:
    """A number of tokens in any notation; None if it is not one."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) <= 40 else None
    if isinstance(value, float):
        return math.ceil(value) if math.isfinite(value) and value >= 0 else None
    return value if type(value) is int and value >= 0 else None


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
