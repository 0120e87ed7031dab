"""AWS Bedrock: Converse and the models' own bodies, and batches in S3 at half the price."""

from typing import Final

from backstay.llm.provider import LlmProvider
from backstay.llm.providers.bedrock import chat, replies, requests
from backstay.llm.providers.bedrock.aws import BedrockAccess, records_min, sign_for
from backstay.llm.providers.bedrock.batches import BedrockBatches

PROVIDER: Final = LlmProvider(
    "bedrock",
    BedrockAccess(*requests.ACCESS),
    requests,
    replies,
    batches=BedrockBatches,
    batch_requests_min=records_min,
    chat=chat,
    answers=chat.ANSWERS,
    model_prefixes=requests.MODEL_PREFIXES,
    url_prefixes=(requests.MODEL,),
    price_list="aws",
    signer=sign_for,
)
