"""OpenAI, and every service that speaks its API: Azure, Groq, Together, vLLM, gateways and many more."""

from typing import Final

from backstay.llm.provider import LlmProvider
from backstay.llm.providers.openai import replies, requests
from backstay.llm.providers.openai.batches import OpenAiBatches
from backstay.llm.providers.openai.stored_calls import BackgroundResponses, StoredCompletions
from backstay.llm.schemas import OPENAI_DIALECT

PROVIDER: Final = LlmProvider(
    "openai",
    requests.ACCESS,
    requests,
    replies,
    call_lookup=StoredCompletions,
    tasks=BackgroundResponses,
    batches=OpenAiBatches,
    answers=requests.OpenAiAnswers(OPENAI_DIALECT),
    model_prefixes=("gpt-", "chatgpt-", "o1", "o3", "o4", "text-embedding-", "codex-", "ft:", "omni-moderation-"),
    price_list="openai",
)
