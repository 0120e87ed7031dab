"""Anthropic: messages, and message batches at half the price."""

from typing import Final

from backstay.llm.provider import LlmProvider
from backstay.llm.providers.anthropic import calls, chat
from backstay.llm.providers.anthropic.batches import AnthropicBatches

PROVIDER: Final = LlmProvider(
    "anthropic",
    calls.ACCESS,
    calls,
    calls,
    batches=AnthropicBatches,
    chat=chat,
    answers=chat.ANSWERS,
    model_prefixes=("claude-",),
    url_prefixes=(calls.MESSAGES,),
    price_list="anthropic",
)
