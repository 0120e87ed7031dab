"""Anthropic's requests: addresses, keys, which bodies are taken, and how many tokens they need."""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult

from yarl import URL

from backstay.llm.bodies import BYTES_PER_TOKEN, InputSize, longest_text, utf8_length
from backstay.llm.chat_format import refuse_chat
from backstay.llm.endpoint import Lane, refuse_path, url_below
from backstay.llm.lines import LinePart, LineRefused, body_with_model, preview, quote_json
from backstay.llm.provider import OUTPUT_TOKENS_EXPECTED, ProviderAccess, TokenEstimate, request_attributes

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
