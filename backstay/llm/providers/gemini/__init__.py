"""Google's Gemini API: single calls, and batches at half the price."""

from typing import Final

from backstay.llm.provider import LlmProvider
from backstay.llm.providers.gemini import calls, chat
from backstay.llm.providers.gemini.batches import GeminiBatches

PROVIDER: Final = LlmProvider(
    "gemini",
    calls.ACCESS,
    calls,
    calls,
    batches=GeminiBatches,
    chat=chat,
    answers=chat.ANSWERS,
    model_prefixes=("gemini-",),
    url_prefixes=calls.URL_PREFIXES,
    price_list="google",
    find_access=calls.access_in,
)
