"""Azure OpenAI: OpenAI's API at an address of the user's own, where a model is the name of a deployment.

Its key is in the header api-key. There are two forms of address. The newer one has /openai/v1. The older one is chosen
by `?api-version=…` at the end of the base URL: its calls have the deployment in their path.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import SplitResult, quote, urlsplit

from yarl import URL

from backstay.llm.lines import LlmRequest
from backstay.llm.provider import LlmProvider, ProviderReply
from backstay.llm.providers.openai import requests
from backstay.llm.providers.openai.batch_api import BATCHES, MARK, WINDOW, FilesAndBatches
from backstay.llm.providers.openai.batches import OpenAiBatches
from backstay.llm.providers.openai.stored_calls import BackgroundResponses
from backstay.llm.providers.openai_compatible import PresetRequests, preset
from backstay.llm.shards import Shard

_ROOT: Final = "/openai/v1"
_OLD_ROOT: Final = "/openai"
_TOKEN_DOTS: Final = 2
_DEPLOYED: Final = "/deployments/"
_OF_DEPLOYMENTS: Final = frozenset((requests.CHAT, requests.COMPLETIONS, requests.EMBEDDINGS))


class AzureRequests(PresetRequests):
    def address(self, base: SplitResult, path: str) -> URL:
        if not _is_old(base):
            return super().address(base, path)
        given = base.path.rstrip("/")
        return requests.address(base._replace(path=given or _OLD_ROOT), path)

    @staticmethod
    def auth_headers(base: SplitResult, key: str | None) -> dict[str, str]:
        if key and key.startswith("ey") and key.count(".") == _TOKEN_DOTS:
            return {"authorization": f"Bearer {key}"}  # a token of Microsoft Entra; keys have no dots
        return {"api-key": key} if key else {}


def _is_old(base: SplitResult) -> bool:
    return "api-version=" in base.query


def call_path(base_url: str, url: str, fields: Mapping[str, Any]) -> str:
    """Where a request goes: in the older form its deployment is in the path, unless the base URL has it already."""
    base, model = urlsplit(base_url), fields.get("model")
    if not _is_old(base) or _DEPLOYED in base.path or url not in _OF_DEPLOYMENTS or not isinstance(model, str):
        return url
    return f"{_DEPLOYED}{quote(model, safe='')}{url.removeprefix('/v1')}"


class AzureFilesAndBatches(FilesAndBatches):
    """Azure's guide creates every batch for chat; each line has its own path, without the version."""

    def line_middle(self, url: str) -> str:
        return super().line_middle(url if url == requests.RESPONSES else url.removeprefix("/v1"))

    async def create(self, file_id: str, shard: Shard, seconds: float) -> ProviderReply:
        path = requests.CHAT if shard.key.url == requests.RESPONSES else shard.key.url
        asked = {"input_file_id": file_id, "endpoint": path.removeprefix("/v1"), "completion_window": WINDOW}
        return await self._wire.post(BATCHES, json.dumps({**asked, "metadata": {MARK: shard.digest}}), seconds)


class AzureBatches(OpenAiBatches):
    """A file is processed before a batch can be made of it, and a deployment has few tokens that may wait: both are as
    at OpenAI, only more often. A late batch does not expire."""

    calls = AzureFilesAndBatches

    def group_of(self, request: LlmRequest, fields: Mapping[str, Any]) -> tuple[str | None, str]:
        model, path = super().group_of(request, fields)
        if path.startswith(_DEPLOYED):
            path = f"/v1/{path.removeprefix(_DEPLOYED).partition('/')[2]}"
        return model, path


PROVIDER: Final[LlmProvider] = replace(
    preset(
        "azure",
        "",
        base_url_env="AZURE_OPENAI_ENDPOINT",
        key_env="AZURE_OPENAI_API_KEY",
        requests=AzureRequests(_ROOT),
        tasks=BackgroundResponses,
        batches=AzureBatches,
        price_list="azure",
    ),
    call_path=call_path,
)
