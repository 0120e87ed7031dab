"""Google's Gemini API: single calls, and batches at half the price."""

from typing import Final

from backstay.llm.provider import LlmProvider
from backstay.llm.providers.gemini import chat, replies, requests
from backstay.llm.providers.gemini.batches import GeminiBatches

PROVIDER: Final = LlmProvider(
    "gemini",
    requests.ACCESS,
    requests,
    replies,
    batches=GeminiBatches,
    chat=chat,
    answers=chat.ANSWERS,
    model_prefixes=("gemini-",),
    url_prefixes=requests.URL_PREFIXES,
    price_list="google",
    find_access=requests.access_in,
)
