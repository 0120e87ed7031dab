"""Bedrock's calls. Requests: the model is in the path; which bodies are taken, and how many tokens they need.
Replies: the outcome of a request, the flaw of its answer, and its usage.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import SplitResult, quote, unquote

from yarl import URL

from backstay.core.errors import ErrorCode
from backstay.core.failures import Failure, FailureKind, failure_of_status
from backstay.core.models import Failed, Flaw, Succeeded, Usage
from backstay.llm.bodies import BYTES_PER_TOKEN, question_in
from backstay.llm.chat_format import refuse_chat
from backstay.llm.endpoint import Lane, refuse_path
from backstay.llm.lines import LinePart, LineRefused, preview
from backstay.llm.provider import (
    OUTPUT_TOKENS_EXPECTED,
    TOKENS_MAX,
    PriceOf,
    ProviderAccess,
    ProviderReply,
    TokenEstimate,
    request_attributes,
)
from backstay.llm.providers.anthropic.calls import estimate as estimate_message
from backstay.llm.providers.bedrock.aws import KEY_ENV, REGIONS, check_ready, control_url
from backstay.llm.providers.openai import replies as openai_replies
from backstay.llm.providers.openai.replies import not_an_answer, preview_reply, read_object, response_text
from backstay.llm.rate_limits import LimitHints, read_limit_headers

MODEL: Final = "/model/"
JOBS: Final = "/model-invocation-job"
MODELS: Final = "/foundation-models"
CONVERSE: Final = "converse"
INVOKE: Final = "invoke"

PREAMBLE_TOKENS_MAX: Final = 64  # around the messages
TOOLS_TOKENS_MAX: Final = 2_048  # before the first tool
MEDIA_TOKENS_EXPECTED: Final = 1_600
MEDIA_BYTES_MIN: Final = 1_000  # a text in such a member that is shorter is a name or a format

ACCESS: Final = ProviderAccess(
    base_url="",
    base_url_env="AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
    key_env=KEY_ENV,
    models_path=MODELS,
    needs_key=False,
    address_hint=f"set {REGIONS[0]} to the region, for example us-east-1, or give --base-url",
    check_ready=check_ready,
)

_MAKERS: Final = (
    "ai21.",
    "amazon.",
    "anthropic.",
    "cohere.",
    "deepseek.",
    "meta.llama",
    "mistral.",
    "qwen.",
    "writer.",
)
_PLACES: Final = ("us.", "us-gov.", "eu.", "apac.", "jp.", "au.", "ca.", "global.")
MODEL_PREFIXES: Final = (*_MAKERS, *(place + maker for place in _PLACES for maker in _MAKERS), "arn:aws:bedrock:")
_PATH: Final = re.compile(rf"{MODEL}([^/?]*)/({CONVERSE}|{INVOKE})")
_PATH_AT_END: Final = re.compile(r"/(?:openai(?:/v1)?|v1|model(?:/.*)?)$")
_BODY_KEYS: Final = frozenset(("messages", "system", "inferenceConfig", "anthropic_version", "inputText"))
_NAMED: Final = ("model", "modelId")
_MEDIA: Final = frozenset(("image", "images", "video", "audio", "document", "inputImage"))
_ELSEWHERE: Final = frozenset(("s3Location", "uri", "promptVariables", "cachedContent"))
# The names of the limit of the output, in the bodies of the models.
_BOUNDS: Final = ("max_tokens", "max_completion_tokens", "max_gen_len", "maxTokens", "max_new_tokens", "maxTokenCount")
_INSIDE: Final = ("inferenceConfig", "textGenerationConfig")


def path_to(model: str, operation: str = CONVERSE) -> str:
    return f"{MODEL}{quote(model, safe='-._~')}/{operation}"


def model_in(url: str) -> str:
    """The model in the path of a call; empty for any other path."""
    named = _PATH.fullmatch(url.partition("?")[0])
    return "" if named is None else unquote(named[1])


def is_converse(url: str) -> bool:
    return url.endswith(f"/{CONVERSE}")


def check_base(base: SplitResult) -> None:
    refuse_path(base._replace(path=base.path.rstrip("/")), _PATH_AT_END)


def address(base: SplitResult, path: str) -> URL:
    """The URL is not encoded again, because the signature covers these characters. Models and batches are at another
    host than calls."""
    where = path.partition("#")[0]
    if where.startswith((JOBS, MODELS)):
        return URL(f"{control_url(base)}{where}", encoded=True)
    if base.query:
        where += f"{'&' if '?' in where else '?'}{base.query}"
    return URL(f"{base.scheme}://{base.netloc}{base.path.rstrip('/')}{where}", encoded=True)


def auth_headers(base: SplitResult, key: str | None) -> dict[str, str]:
    """A Bedrock API key. Without one, every request is signed."""
    return {"authorization": f"Bearer {key}"} if key else {}


def only_path(lane: Lane, reconcilable: bool) -> str | None:
    return None


def check_body(url: str, fields: Mapping[str, Any], may_be_background: bool) -> str | None:
    named = _PATH.fullmatch(url)
    if named is None:
        known = f"{MODEL}MODEL/{CONVERSE}, {MODEL}MODEL/{INVOKE}"
        raise LineRefused(f"is for {url}; Bedrock takes {known}, and chat requests, which are translated", LinePart.URL)
    if not (model := unquote(named[1])):
        raise LineRefused("names no model", LinePart.MODEL)
    if fields.get("stream"):
        raise LineRefused("asks for a stream, which is not supported", LinePart.BODY)
    if named[2] == INVOKE:
        if not fields:
            raise LineRefused("has an empty body", LinePart.BODY)
        return model
    for name in _NAMED:
        if name in fields:
            reason = f"has {name} {preview(fields[name])} in its body; Bedrock takes the model in the url, or --model"
            raise LineRefused(reason, LinePart.BODY)
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise LineRefused("has no messages", LinePart.BODY)
    refuse_chat(fields, url)
    return model


def is_body(fields: Mapping[str, Any]) -> bool:
    return not _BODY_KEYS.isdisjoint(fields)


def sends_metadata(fields: Mapping[str, Any]) -> bool:
    """Never: Bedrock's own metadata is called requestMetadata."""
    return False


def url_of_body(fields: Mapping[str, Any], model: str | None) -> str:
    """Converse, unless the body is one that only a model itself understands."""
    own = "messages" not in fields or "anthropic_version" in fields or "schemaVersion" in fields
    return path_to(model or "", INVOKE if own else CONVERSE)


def url_of_prompt(model: str | None) -> str:
    return path_to(model or "")


def prompt_member(url: str, prompt: str, is_text: bool) -> str:
    if not is_text:
        return f'"messages":{prompt}'
    return f'"messages":[{{"role":"user","content":[{{"text":{prompt}}}]}}]'


def model_members(fields: Mapping[str, Any], model: str | None) -> list[str]:
    """The model is in the path."""
    return []


def with_model(url: str, body: str, model: str) -> tuple[str, str]:
    return path_to(model, CONVERSE if is_converse(url) else INVOKE), body


def trace_attributes(base_url: str, url: str, fields: Mapping[str, Any]) -> dict[str, str | int]:
    return request_attributes(base_url, "chat", "aws.bedrock", model_in(url), output_bound(fields))


def question(fields: Mapping[str, Any]) -> str | None:
    return question_in(fields.get("messages"))


def output_bound(fields: Mapping[str, Any]) -> int | None:
    """The bound of the output that a body sets: each model has another name for it."""
    for place in (fields, *(inside for name in _INSIDE if isinstance(inside := fields.get(name), dict))):
        for name in _BOUNDS:
            tokens = place.get(name)
            if type(tokens) is int and tokens > 0:
                return tokens
    return None


def estimate(
    url: str, body: str, fields: Mapping[str, Any], output_tokens_expected: int = OUTPUT_TOKENS_EXPECTED
) -> TokenEstimate:
    model, tier = model_in(url) or None, tier_of(fields)
    if "anthropic_version" in fields:
        return estimate_message(url, body, fields, output_tokens_expected)._replace(model=model, tier=tier)
    bound = output_bound(fields)
    media, elsewhere = _media_bytes(fields)
    size = len(body.encode("utf-8", "surrogatepass"))
    most: int | None = None
    if not media and not elsewhere:  # a token is a byte at least; pictures and documents have no such bound
        most = size + PREAMBLE_TOKENS_MAX + (TOOLS_TOKENS_MAX if "toolConfig" in fields or "tools" in fields else 0)
    return TokenEstimate(
        -(-(size - sum(media)) // BYTES_PER_TOKEN) + len(media) * MEDIA_TOKENS_EXPECTED,
        output_tokens_expected if bound is None else min(bound, output_tokens_expected),
        bound,
        most,
        model=model,
        tier=tier,
    )


def tier_of(fields: Mapping[str, Any]) -> str | None:
    """Only a tier that costs more than the usual one counts."""
    tier = fields.get("serviceTier")
    named = tier.get("type") if isinstance(tier, dict) else None
    return "priority" if named == "priority" else None


def _media_bytes(value: Any, inside: bool = False) -> tuple[list[int], bool]:
    """The bytes of each picture, document and the like; and whether anything is kept elsewhere."""
    if isinstance(value, str):
        return ([len(value)] if inside and len(value) >= MEDIA_BYTES_MIN else []), False
    parts: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = [("", each) for each in value]
    found: list[int] = []
    elsewhere = False
    for name, part in parts:
        media, away = _media_bytes(part, inside or name in _MEDIA)
        if name in _MEDIA and not media:
            media = [len(json.dumps(part))]
        found += media
        elsewhere = elsewhere or away or name in _ELSEWHERE
    return found, elsewhere


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
