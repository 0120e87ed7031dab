"""Replies as they come from a provider, and what is read of them at a price."""

import json
from typing import Any

from backstay.core.models import Failed, Succeeded, Usage
from backstay.llm.prices import PricePerMillion
from backstay.llm.provider import ProviderReply
from backstay.llm.providers.openai.replies import read_reply
from backstay.llm.rate_limits import NO_HINTS, LimitHints

PRICE = PricePerMillion(150_000, 600_000, 75_000)
CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "gpt-4o-mini-2024-07-18",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1_000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 400}},
}


DEAR = PricePerMillion(300_000, 1_200_000, 150_000)
MODEL = "gpt-4o-mini"


class Priced:
    """Prices that are on no list."""

    def __call__(self, model: str, tier: str | None = None) -> PricePerMillion | None:
        if not model.startswith(MODEL):
            return None
        return DEAR if tier == "priority" else PRICE

    def usage_by_list(self, model: str, tier: str | None, body: object) -> tuple[Usage, ...]:
        return ()


priced = Priced()


def read(text: str, status: int = 200, learned: LimitHints = NO_HINTS, **headers: str) -> Succeeded | Failed:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return read_reply(ProviderReply(status, named, text), learned, priced)


def failed(text: str, status: int = 200, learned: LimitHints = NO_HINTS, **headers: str) -> Failed:
    outcome = read(text, status, learned, **headers)
    assert isinstance(outcome, Failed)
    return outcome


def verdict(outcome: Failed) -> str:
    return f"{outcome.failure.code} {outcome.failure.kind}"


def error(message: str, code: Any = None, kind: str = "invalid_request_error") -> str:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})
