"""Anthropic: messages, and message batches at half the price."""

from typing import Final

from backstay.llm.provider import LlmProvider
from backstay.llm.providers.anthropic import chat, replies, requests
from backstay.llm.providers.anthropic.batches import AnthropicBatches

PROVIDER: Final = LlmProvider(
    "anthropic",
    requests.ACCESS,
    requests,
    replies,
    batches=AnthropicBatches,
    chat=chat,
    answers=chat.ANSWERS,
    model_prefixes=("claude-",),
    url_prefixes=(requests.MESSAGES,),
    price_list="anthropic",
)
