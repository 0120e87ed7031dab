"""Anthropic's calls. Requests: addresses, keys, which bodies are taken, and how many tokens they need.

Replies: the outcome of a request, the flaw of its answer, its usage and its limits.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import SplitResult

from yarl import URL

from backstay.core.errors import ErrorCode
from backstay.core.failures import Failure, FailureKind, failure_of_status
from backstay.core.models import Failed, Flaw, Succeeded, Usage
from backstay.llm.bodies import BYTES_PER_TOKEN, InputSize, longest_text, question_in, utf8_length
from backstay.llm.chat_format import refuse_chat
from backstay.llm.endpoint import Lane, refuse_path, url_below
from backstay.llm.lines import LinePart, LineRefused, body_with_model, preview, quote_json
from backstay.llm.provider import (
    OUTPUT_TOKENS_EXPECTED,
    TOKENS_MAX,
    PriceOf,
    ProviderAccess,
    ProviderReply,
    TokenEstimate,
    request_attributes,
)
from backstay.llm.providers.openai.replies import not_an_answer, preview_reply, read_object, response_text
from backstay.llm.rate_limits import LimitHeaders, LimitHints, read_limit_headers

MESSAGES: Final = "/v1/messages"
VERSION: Final = "2023-06-01"

MESSAGE_TOKENS: Final = 4  # of a message, besides its text
PREAMBLE_TOKENS_MAX: Final = 64  # around the messages
TOOLS_TOKENS_MAX: Final = 2_048  # before the first tool, and for the tools that Anthropic defines itself
IMAGE_TOKENS_EXPECTED: Final = 1_600
IMAGE_TOKENS_MAX: Final = 10_000  # the largest picture has less than half of that
DOCUMENT_BYTES_PER_TOKEN: Final = 50  # of base64: a page of a PDF file is read as text and as a picture

ACCESS: Final = ProviderAccess(
    base_url="https://api.anthropic.com",
    base_url_env="ANTHROPIC_BASE_URL",
    key_env="ANTHROPIC_API_KEY",
    models_path="/v1/models",
)

ADD_TOKENS: Final = "; add it to the body, or set it for prompts and chat requests with --max-output-tokens"
_BODY_KEYS: Final = frozenset(("messages", "system", "model"))
_PATH_AT_END: Final = re.compile(r"(?:/v1)?/(?:messages|models|complete|chat/completions)(?:/.*)?$")
_ASKED: Final = ("messages", "system", "tools", "output_config")
_UNREAD: Final = frozenset(("role", "type", "id", "tool_use_id", "cache_control", "signature"))
_WORDLESS: Final = frozenset(("content", "text"))
# Tools that the caller runs. Any other kind may run at Anthropic, where its output is read as input.
_OWN_TOOLS: Final = ("custom", "bash_", "text_editor_", "computer_", "memory_")


def check_base(base: SplitResult) -> None:
    refuse_path(base, _PATH_AT_END)


def address(base: SplitResult, path: str) -> URL:
    """The path below the base URL. A base URL that ends in /v1 means the same as one that does not."""
    root = base.path.rstrip("/")
    if root.endswith("/v1") and path.startswith("/v1/"):
        path = path[3:]
    return url_below(base, root, path)


def auth_headers(base: SplitResult, key: str | None) -> dict[str, str]:
    return {**({"x-api-key": key} if key else {}), "anthropic-version": VERSION}


def only_path(lane: Lane, reconcilable: bool) -> str | None:
    """`check_body` refuses every other path, in all lanes."""
    return None


def check_body(url: str, fields: Mapping[str, Any], may_be_background: bool) -> str | None:
    if url.partition("?")[0] != MESSAGES:
        reason = f"is for {url}; Anthropic takes {MESSAGES}, and chat requests, which are translated"
        raise LineRefused(reason, LinePart.URL)
    refuse_chat(fields, MESSAGES)
    if fields.get("stream"):
        raise LineRefused("asks for a stream, which is not supported", LinePart.BODY)
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise LineRefused("names no model", LinePart.MODEL)
    if not isinstance(messages := fields.get("messages"), list) or not messages:
        raise LineRefused("has no messages", LinePart.BODY)
    tokens = fields.get("max_tokens")
    if tokens is None:
        raise LineRefused(f"has no max_tokens, which Anthropic requires{ADD_TOKENS}", LinePart.BODY)
    if type(tokens) is not int or tokens < 1:
        reason = f"has max_tokens {preview(tokens)}; it must be a whole number above 0"
        raise LineRefused(reason, LinePart.BODY)
    return model


def is_body(fields: Mapping[str, Any]) -> bool:
    return not _BODY_KEYS.isdisjoint(fields)


def sends_metadata(fields: Mapping[str, Any]) -> bool:
    """Anthropic knows one kind of metadata; any other is the caller's own, and Anthropic would refuse it."""
    metadata = fields.get("metadata")
    return isinstance(metadata, dict) and metadata.keys() == {"user_id"}


def url_of_body(fields: Mapping[str, Any], model: str | None) -> str:
    return MESSAGES


def url_of_prompt(model: str | None) -> str:
    return MESSAGES


def prompt_member(url: str, prompt: str, is_text: bool) -> str:
    return f'"messages":[{{"role":"user","content":{prompt}}}]' if is_text else f'"messages":{prompt}'


def model_members(fields: Mapping[str, Any], model: str | None) -> list[str]:
    return [f'"model":{quote_json(model)}'] if model is not None and "model" not in fields else []


with_model = body_with_model


def trace_attributes(base_url: str, url: str, fields: Mapping[str, Any]) -> dict[str, str | int]:
    return request_attributes(base_url, "chat", "anthropic", fields.get("model"), fields.get("max_tokens"))


def question(fields: Mapping[str, Any]) -> str | None:
    return question_in(fields.get("messages"))


def estimate(
    url: str, body: str, fields: Mapping[str, Any], output_tokens_expected: int = OUTPUT_TOKENS_EXPECTED
) -> TokenEstimate:
    """A reply, the model's thinking included, never has more than `max_tokens`."""
    read = _Input()
    for name in _ASKED:
        if name in fields:
            read.add(fields[name])
    hosted = _has_hosted_tools(fields)
    most: int | None = None
    if read.bounded and not hosted:
        # A token is a byte at least, of JSON too; and its punctuation makes up for what surrounds a message.
        most = utf8_length(body) - read.data_bytes + read.data_tokens_max + PREAMBLE_TOKENS_MAX
        most += TOOLS_TOKENS_MAX if "tools" in fields or "output_config" in fields else 0
    model, tokens = fields.get("model"), fields.get("max_tokens")
    bound = tokens if type(tokens) is int and tokens > 0 else None
    return TokenEstimate(
        -(-read.bytes // BYTES_PER_TOKEN) + read.tokens,
        output_tokens_expected if bound is None else min(bound, output_tokens_expected),
        bound,
        most,
        one_pass=not hosted,
        model=model if isinstance(model, str) else None,
        tier="fast" if fields.get("speed") == "fast" else None,
    )


class _Input(InputSize):
    def add_object(self, value: dict[str, Any]) -> None:
        kind, source = value.get("type"), value.get("source")
        if "role" in value:
            self.tokens += MESSAGE_TOKENS
        if kind == "image" and isinstance(source, dict):
            self.data_bytes += longest_text(source)
            self.tokens += IMAGE_TOKENS_EXPECTED
            self.data_tokens_max += IMAGE_TOKENS_MAX
            return
        if isinstance(source, dict) and source.get("type") in ("base64", "url", "file"):
            # A document: how many pages it has is not known before it is read.
            self.bounded = False
            self.tokens += longest_text(source) // DOCUMENT_BYTES_PER_TOKEN
            return
        for name, inner in value.items():
            if name not in _UNREAD:
                self.add(inner)
                self.bytes += 0 if name in _WORDLESS else len(name)


def _has_hosted_tools(fields: Mapping[str, Any]) -> bool:
    """Tools that Anthropic runs itself: their output is read, and paid for, as often as the model decides."""
    tools = fields.get("tools")
    if fields.get("mcp_servers") or fields.get("container"):
        return True
    return isinstance(tools, list) and any(
        not isinstance(tool, dict) or not str(tool.get("type") or "custom").startswith(_OWN_TOOLS) for tool in tools
    )


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
