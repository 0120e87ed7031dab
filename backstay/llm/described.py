"""What a trace says of a request, in OpenTelemetry's words: the model and the kind of call, nothing of what it asks."""

import json
from typing import Final
from urllib.parse import urlsplit

from backstay.llm.requests import unseal

MODEL_CHARACTERS_MAX: Final = 100
_OPERATIONS: Final = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}
_PROVIDERS: Final = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "api.mistral.ai": "mistral_ai",
    "api.groq.com": "groq",
    "api.deepseek.com": "deepseek",
}


def described(base_url: str, body: str) -> dict[str, str | int]:
    request, host = unseal(body), urlsplit(base_url).hostname or ""
    said: dict[str, str | int] = {
        "gen_ai.operation.name": _OPERATIONS.get(request.url, request.url.rpartition("/")[2]),
        "gen_ai.provider.name": _PROVIDERS.get(host, host),
        "server.address": host,
    }
    try:
        asked = json.loads(request.body)
    except (ValueError, RecursionError):
        return said
    model, tokens = (asked.get("model"), asked.get("max_tokens")) if isinstance(asked, dict) else (None, None)
    if isinstance(model, str):
        said["gen_ai.request.model"] = model[:MODEL_CHARACTERS_MAX]
    if isinstance(tokens, int):
        said["gen_ai.request.max_tokens"] = tokens
    return said
