"""How a request is addressed, authorised and written, and what is added to it so that it can be found again."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from yarl import URL

from backstay.core.errors import ErrorCode, Permanent, UsageError
from backstay.llm.endpoint import Lane
from backstay.llm.lines import LinePart, LineRefused, Member, members, quote_json
from backstay.llm.openai.tokens import estimate as estimate  # it belongs to the form of a request
from backstay.llm.provider import ProviderAccess

CHAT: Final = "/v1/chat/completions"
RESPONSES: Final = "/v1/responses"
EMBEDDINGS: Final = "/v1/embeddings"
COMPLETIONS: Final = "/v1/completions"
MODEL_NEEDED: Final = frozenset((CHAT, RESPONSES, EMBEDDINGS, COMPLETIONS))
REFERENCE: Final = "backstay_ref"  # the key in a request's metadata
MODEL_CHARACTERS_MAX: Final = 100

ACCESS: Final = ProviderAccess(
    base_url="https://api.openai.com/v1",
    base_url_env="OPENAI_BASE_URL",
    key_env="OPENAI_API_KEY",
    models_path="/v1/models",
    reference_header="x-client-request-id",
)

_BODY_KEYS: Final = frozenset(("messages", "input", "model"))
_METADATA_PAIRS_MAX: Final = 16  # by the provider's own rule
_PATH_AT_END: Final = re.compile(r"/(?:chat/completions|completions|responses|embeddings|moderations)/*$")
_OPERATIONS: Final = {CHAT: "chat", RESPONSES: "chat", COMPLETIONS: "text_completion", EMBEDDINGS: "embeddings"}
_SERVICES: Final = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "api.mistral.ai": "mistral_ai",
    "api.groq.com": "groq",
    "api.deepseek.com": "deepseek",
}


def check_base(base: SplitResult) -> None:
    if (extra := _PATH_AT_END.search(base.path)) is not None:
        shorter = base._replace(path=base.path[: extra.start()]).geturl()
        raise UsageError(
            f"the base URL must not end in {extra[0]}: every request names its own path below it",
            hint=f"give {shorter}",
        )


def address(base: SplitResult, path: str) -> URL:
    """The path of a base URL replaces the /v1 of the request's path; a base URL without a path keeps it."""
    root = base.path.rstrip("/")
    if root and path.startswith("/v1/"):
        path = path[3:]
    where, _, query = path.partition("#")[0].partition("?")
    query = "&".join(part for part in (base.query, query) if part)
    return URL(f"{base.scheme}://{base.netloc}{root}{where}{'?' if query else ''}{query}")


def auth_headers(base: SplitResult, key: str | None) -> dict[str, str]:
    if not key:
        return {}
    headers = {"authorization": f"Bearer {key}"}
    if (base.hostname or "").endswith(".openai.azure.com"):
        headers["api-key"] = key
    return headers


def only_path(lane: Lane, reconcilable: bool) -> str | None:
    if lane is Lane.BACKGROUND:
        return RESPONSES
    return CHAT if reconcilable else None


def check_body(url: str, fields: Mapping[str, Any], may_be_background: bool) -> str | None:
    if fields.get("stream"):
        raise LineRefused("asks for a stream, which is not supported", LinePart.BODY)
    if fields.get("background") and not may_be_background:
        reason = "asks for a background response; use --lane background, which waits for it"
        raise LineRefused(reason, LinePart.BODY)
    model = fields.get("model")
    named = model if isinstance(model, str) else None
    if url in MODEL_NEEDED and not named and not (url == RESPONSES and "prompt" in fields):
        raise LineRefused("names no model", LinePart.MODEL)
    return named


def is_body(fields: Mapping[str, Any]) -> bool:
    return not _BODY_KEYS.isdisjoint(fields)


def sends_metadata(fields: Mapping[str, Any]) -> bool:
    """Files of bodies are written for OpenAI's cookbook, whose script never sends the metadata, and writes it beside
    the reply. Only together with `"store": true` can it be meant for the provider."""
    return fields.get("store") is True


def url_of_body(fields: Mapping[str, Any], model: str | None) -> str:
    if "messages" in fields:
        return CHAT
    if "input" in fields:
        return EMBEDDINGS if "embed" in str(fields.get("model")) else RESPONSES
    return COMPLETIONS if "prompt" in fields and not isinstance(fields["prompt"], dict) else RESPONSES


def url_of_prompt(model: str | None) -> str:
    return CHAT


def prompt_member(url: str, prompt: str, is_text: bool) -> str:
    path = url.partition("?")[0]
    if path.endswith("/chat/completions"):
        return f'"messages":[{{"role":"user","content":{prompt}}}]' if is_text else f'"messages":{prompt}'
    return f'"prompt":{prompt}' if path.endswith("/completions") else f'"input":{prompt}'


def model_members(fields: Mapping[str, Any], model: str | None) -> list[str]:
    return [f'"model":{quote_json(model)}'] if model is not None and "model" not in fields else []


def trace_attributes(base_url: str, url: str, fields: Mapping[str, Any]) -> dict[str, str | int]:
    host = urlsplit(base_url).hostname or ""
    attributes: dict[str, str | int] = {
        "gen_ai.operation.name": _OPERATIONS.get(url, url.rpartition("/")[2]),
        "gen_ai.provider.name": _SERVICES.get(host, host),
        "server.address": host,
    }
    model, tokens = fields.get("model"), fields.get("max_tokens")
    if isinstance(model, str):
        attributes["gen_ai.request.model"] = model[:MODEL_CHARACTERS_MAX]
    if isinstance(tokens, int):
        attributes["gen_ai.request.max_tokens"] = tokens
    return attributes


def add_reference(body: str, ref: str, added: Mapping[str, str]) -> tuple[str, bool]:
    """The body with members whose values are given as JSON, and with the reference in its metadata; the rest stays byte
    for byte. Also returns whether there was room for the reference."""
    try:
        found = members(text := body.strip())
    except LineRefused as refused:
        raise Permanent(f"the body {refused}", ErrorCode.GW_4XX) from None
    metadata = next((member for member in reversed(found) if member.key == "metadata"), None)
    merged = _merge_metadata(text, metadata, ref)
    return splice(text, found, {**added, **merged}), bool(merged)


def splice(text: str, found: Sequence[Member], values: Mapping[str, str]) -> str:
    """The object with these values: replaced where it has the member, otherwise added at its beginning."""
    pieces: list[str] = []
    at = 1  # after the brace
    for member in found:
        if member.key in values:
            pieces += (text[at : member.start], values[member.key])
            at = member.end
    there = {member.key for member in found}
    new = [f"{json.dumps(key)}:{value}" for key, value in values.items() if key not in there]
    comma = "," if new and found else ""
    return "".join(("{", ",".join(new), comma, *pieces, text[at:]))


def _merge_metadata(text: str, metadata: Member | None, ref: str) -> dict[str, str]:
    """The user's own metadata is kept; if there is no room left, the reference is left out."""
    if metadata is None or metadata.value is None:
        return {"metadata": json.dumps({REFERENCE: ref})}
    if not isinstance(metadata.value, dict) or len({**metadata.value, REFERENCE: ref}) > _METADATA_PAIRS_MAX:
        return {}
    own = text[metadata.start : metadata.end]
    return {"metadata": splice(own, members(own), {REFERENCE: json.dumps(ref)})}
