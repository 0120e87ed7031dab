"""OpenAI, and every service that speaks its API: Azure, Groq, Together, vLLM, gateways and many more."""

from typing import Final

from backstay.llm.openai import replies, requests
from backstay.llm.openai.batches import OpenAiBatches
from backstay.llm.openai.call_lookup import StoredCompletions
from backstay.llm.openai.tasks import BackgroundResponses
from backstay.llm.provider import LlmProvider

OPENAI: Final = LlmProvider(
    "openai",
    requests.ACCESS,
    requests,
    replies,
    call_lookup=StoredCompletions,
    tasks=BackgroundResponses,
    batches=OpenAiBatches,
)
