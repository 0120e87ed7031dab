"""AWS Bedrock: Converse and the models' own bodies, and batches in S3 at half the price."""

from typing import Final

from backstay.llm.provider import LlmProvider
from backstay.llm.providers.bedrock import calls, chat
from backstay.llm.providers.bedrock.aws import BedrockAccess, records_min, sign_for
from backstay.llm.providers.bedrock.batches import BedrockBatches

PROVIDER: Final = LlmProvider(
    "bedrock",
    BedrockAccess(*calls.ACCESS),
    calls,
    calls,
    batches=BedrockBatches,
    batch_requests_min=records_min,
    chat=chat,
    answers=chat.ANSWERS,
    model_prefixes=calls.MODEL_PREFIXES,
    url_prefixes=(calls.MODEL,),
    price_list="aws",
    signer=sign_for,
)
